"""Checkpoints in the home that nobody goes on from: removed when the task has completed, else after a while.

A thread does it, for a large directory takes long. Directories that users named are theirs, and never looked at.
"""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

from tidegate.model.base import index_of, job_of
from tidegate.model.events import Event, JobEnded
from tidegate.model.jobs import Outcome
from tidegate.wire.outputs import JOBS_PER_SHARD, checkpoints_place
from tidegate.world.world import World

KEPT_S = 7 * 24 * 3600
SWEEP_EVERY_S = 3600


class Leftovers:
    """Sees each end of a task that could save itself; and looks over all of them now and then."""

    def __init__(self, home: Path, world: World) -> None:
        self.place = Path(checkpoints_place(str(home)))
        self.world = world
        self.over: list[JobEnded] = []  # and not safe yet
        self.thread = ThreadPoolExecutor(1, "leftovers")

    def seen(self, events: Sequence[Event]) -> None:
        saves = self.world.saves
        if saves:
            self.over += [event for event in events if isinstance(event, JobEnded) and event.task in saves]

    def safe(self, seq: int, events: Sequence[Event]) -> None:
        del seq, events
        if self.over:
            over, self.over = self.over, []
            self.thread.submit(self._end, over)

    def sweep(self) -> None:
        self.thread.submit(self._sweep, frozenset(self.world.jobs), time.time() - KEPT_S)

    def close(self) -> None:
        self.thread.shutdown(wait=True, cancel_futures=True)

    # -- in the thread -----------------------------------------------------------------------------------

    def _end(self, over: list[JobEnded]) -> None:
        for event in over:
            job = job_of(event.task)
            shard = self.place / str(job // JOBS_PER_SHARD)
            for place in (shard / str(job), shard / f"{job}_{index_of(event.task)}"):
                if not place.is_dir():
                    continue
                if event.outcome is Outcome.COMPLETED:
                    rmtree(place, ignore_errors=True)
                else:
                    os.utime(place)  # what it is kept for is counted from now

    def _sweep(self, live: frozenset[int], before: float) -> None:
        """A job that came meanwhile has a directory that is younger."""
        for shard in self._inside(self.place):
            for place in self._inside(shard):
                job = place.name.partition("_")[0]
                if job.isdecimal() and int(job) not in live and newest(place) < before:
                    rmtree(place, ignore_errors=True)
            with suppress(OSError):
                shard.rmdir()  # unless something is left in it

    def _inside(self, place: Path) -> list[Path]:
        try:
            return sorted(place.iterdir())
        except OSError:
            return []


def newest(place: Path) -> float:
    """When it, or what is right in it, was last changed."""
    with suppress(OSError):
        return max(path.lstat().st_mtime for path in (place, *place.iterdir()))
    return time.time()
