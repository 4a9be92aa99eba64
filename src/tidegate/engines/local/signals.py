"""Signals on the way: to the batch script, or to the steps that it has started by `srun`."""

import os
from collections.abc import Callable, Sequence

from tidegate.engines.local import trees

BATCH, STEPS, ALL = "batch", "steps", "all"
STEP = b"SLURM_STEP_ID="
"""Only what an `srun` has started carries it."""


def send_to(to: str, first: int, processes: Callable[[], Sequence[int]], number: int) -> None:
    """`to`: BATCH the first process alone, STEPS whatever is part of a step, ALL both, or one step by its number."""
    if to == BATCH:
        trees.send((first,), number)
        return
    mark = STEP + os.fsencode(to) if to.isdecimal() else b""
    for pid in processes():
        said = [entry for entry in trees.environment(pid) if entry.startswith(STEP)]
        if to == ALL or (mark in said if mark else said):
            trees.send((pid,), number)
