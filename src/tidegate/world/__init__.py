"""The rule: the state, and `apply`, the only function that changes it.

The world holds live jobs only. Whatever is kept for speed (columns, lanes, sorted ends) is derived from the
records, so `world.check` can recompute it and `world.digest` need not include it.
"""
