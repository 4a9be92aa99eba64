"""The rule: Slurm's commands are answered here, whole, as they would be read on a screen; nothing is decided here.

A command comes as its words, its environment and its input, and goes as output and an exit code (`desk.py`). What the
client itself has to do, such as to read a file with its user's rights, is a step in between.
"""
