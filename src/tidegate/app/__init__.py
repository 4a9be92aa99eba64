"""The rule: the composition root. The only room that sees every other; it chooses, wires and starts.

What a client prints is decided in `cli`; here are the calls that a client makes.
"""
