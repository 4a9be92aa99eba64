"""What a job by Slurm's commands is sent on its way: signals, and the line that says why it ends."""

import os
import time
from collections.abc import Callable, Sequence

from tidegate.engines.local import trees

BATCH, STEPS, ALL = "batch", "steps", "all"
TIMED_OUT = "timed_out"
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


def say_end(first: int, job: str, node: str, outcome: str) -> None:
    """Into the job's own error output, as Slurm does. Nobody waits for who does not read it."""
    when = time.strftime("%Y-%m-%dT%H:%M:%S")
    why = " DUE TO TIME LIMIT" if outcome == TIMED_OUT else ""
    line = f"slurmstepd-{node}: error: *** JOB {job} ON {node} CANCELLED AT {when}{why} ***\n"
    try:
        fd = os.open(f"/proc/{first}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return  # it is gone, or its output is no file
    try:
        os.write(fd, line.encode())
    except OSError:
        pass  # a full disk, or a pipe that nobody empties
    finally:
        os.close(fd)
