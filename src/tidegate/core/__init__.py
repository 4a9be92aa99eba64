"""The rule: what the kernel chooses, as pure functions. State and `now` in, values out; only `apply` changes.

`KERNEL` is the version of these choices: raise it when the same events would be decided otherwise.
"""

KERNEL = 1
