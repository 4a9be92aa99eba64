"""The rule: only frozen values, complete enough to be replayed without looking anything up.

Nothing here has behaviour beyond reading its own fields. Times are milliseconds since the epoch of the
run, resources are integers (milli-cpu, MiB, milli-gpu, or a plain count), and every order ends in an id.
"""
