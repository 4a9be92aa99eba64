"""Benchmarks: `python -m bench [--smoke] [--json FILE] [--only NAME]`. See docs/benchmarks.md.

Every figure stands beside its rival, measured in the same run, in turns with it. A module here is one
benchmark: `run(plan)` gives its rows.
"""
