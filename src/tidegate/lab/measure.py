"""What a replay measures: listeners on the journal for the figures and for the digest; and what it writes down."""

from array import array
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from tidegate.lab.pauses import Pauses
from tidegate.loop.promises import Promises
from tidegate.model.base import ARRAY_BITS, index_of
from tidegate.model.events import (
    AttemptFailed,
    AttemptLost,
    CheckpointKept,
    CycleRan,
    Event,
    HaltRequested,
    JobDropped,
    JobEnded,
    JobResumed,
    JobStarted,
    JobSubmitted,
    JobSuspended,
)
from tidegate.model.jobs import Job

SHORT_MS = 10_000
"""Bounded slowdown counts a job as at least this long."""
MINUTE_MS = 60_000
Row = tuple[int, int, int, int, tuple[tuple[str, int], ...]]
"""(task, submit, start, end, nodes) of an ended task; times in ms."""


class DecisionDigest:
    """A hash over every choice of the kernel, in order: cycles and starts."""

    def __init__(self) -> None:
        self.hash = blake2b(digest_size=16)
        self.encode = msgspec.msgpack.Encoder().encode

    def append(self, events: Sequence[Event]) -> None:
        encode = self.encode
        self.hash.update(b"".join([encode(e) for e in events if type(e) is CycleRan or type(e) is JobStarted]))

    def flush(self) -> None:
        pass

    def hex(self) -> str:
        return self.hash.hexdigest()


class Collector:
    """Waits, runs and work of every ended task; `on_end` is told of each."""

    def __init__(self, resource: str, on_end: Callable[[Row], None] | None = None, resume_ms: int = 0) -> None:
        """`resume_ms`: what an attempt that goes on from a checkpoint needs more."""
        self.resource = resource  # what utilisation is measured in
        self.on_end = on_end
        self.live: dict[int, JobSubmitted] = {}
        self.started: dict[int, JobStarted] = {}
        self.arrays: dict[int, int] = {}  # tasks of an array that have not ended
        self.waits = array("q")
        self.runs = array("q")
        self.works = array("q")  # resource x milliseconds of each; its order is that of `waits`
        self.work = 0  # resource x milliseconds
        self.first_ms: int | None = None
        self.last_ms = 0
        self.backfilled = 0
        self.preemptions = 0
        self.lately: list[int] = []  # when, of the last minute
        self.minute_max = 0  # how many in any minute,
        self.minute_percent = 0  # and of what runs and ran, where it is more than the one that is always allowed
        self.pauses = Pauses()
        self.promises = Promises(self._run_ms)
        self.resume_ms = resume_ms
        self.kept: dict[int, int] = {}  # what running attempts have saved
        self.served: dict[int, int] = {}  # useful work of earlier attempts, and
        self.lost_ms = 0  # what of all attempts was not: resource x milliseconds
        self.dropped = 0
        self.cycles = 0

    def append(self, events: Sequence[Event]) -> None:
        promises = self.promises
        for event in events:
            kind = type(event)
            if kind is CycleRan:
                self.cycles += 1
                if event.promised or promises.cause:  # type: ignore[union-attr]
                    promises.note(event)
            elif kind is JobStarted:
                self.started[event.task] = event  # type: ignore[union-attr,assignment]
                if event.task in promises.told:  # type: ignore[union-attr]
                    promises.note(event)
            elif kind is JobEnded:
                if event.task in promises.told:  # type: ignore[union-attr]
                    promises.note(event)
                self._ended(event)  # type: ignore[arg-type]
            elif kind is JobSubmitted:
                self._submitted(event)  # type: ignore[arg-type]
            elif kind is CheckpointKept:
                self.kept[event.task] = event.kept_ms  # type: ignore[union-attr]
            else:
                promises.note(event)
                self._seldom(event)

    def _seldom(self, event: Event) -> None:
        match event:
            case HaltRequested():
                if event.room_for:
                    self._preempted(event.at)
            case JobSuspended():
                if event.room_for:
                    self._preempted(event.at)
                self.pauses.suspended(event)
            case JobResumed():
                self.pauses.resumed(event)
            case AttemptLost() | AttemptFailed():
                self._interrupted(event)
            case JobDropped():
                self._dropped(event)
            case _:
                pass

    def flush(self) -> None:
        pass

    def _submitted(self, event: JobSubmitted) -> None:
        job = event.job
        self.live[job.id] = event
        if job.spec.array is not None:
            self.arrays[job.id] = len(job.spec.array.indices)
        if self.first_ms is None:
            self.first_ms = event.at

    def _preempted(self, at: int) -> None:
        """As the kernel counts against the budget: of those that run, and those of the last minute beside them."""
        self.preemptions += 1
        lately = self.lately = [before for before in self.lately if before > at - MINUTE_MS]
        gone = len(lately)
        lately.append(at)
        self.minute_max = max(self.minute_max, len(lately))
        if gone:
            self.minute_percent = max(self.minute_percent, 100 * len(lately) // (len(self.started) + gone))

    def _run_ms(self, task: int) -> int:
        """As planning assumes."""
        return self.live[task >> ARRAY_BITS].job.estimate_ms

    def _interrupted(self, event: AttemptLost | AttemptFailed) -> None:
        start, kept = self.started.pop(event.task), self.kept.pop(event.task, 0)
        self.served[event.task] = self.served.get(event.task, 0) + kept
        ran = event.at - start.at - self.pauses.over(event.task, event.at)
        self.lost_ms += (ran - kept) * self._held(self.live[event.task >> ARRAY_BITS].job)

    def _held(self, job: Job) -> int:
        shape, held = job.spec.shape, 0
        for name, amount in shape.chunk:
            if name == self.resource:
                held += amount * shape.count
        return held

    def _ended(self, event: JobEnded) -> None:
        job_id = event.task >> ARRAY_BITS
        job = self.live[job_id].job
        start = self.started.pop(event.task, None)
        if start is not None:
            began, held = start.at, self._held(job)
            run, again_ms = event.at - began - self.pauses.over(event.task, event.at), 0
            served = self.served.pop(event.task, 0)
            if served:  # it went on from a checkpoint
                again_ms = min(run, self.resume_ms)
                run += served - again_ms
                self.lost_ms += again_ms * held
            self.kept.pop(event.task, None)
            self.waits.append(event.at - max(job.submit_ms, job.spec.begin_ms) - run)
            self.runs.append(run)
            self.works.append(held * run)
            self.work += held * run
            self.backfilled += start.backfilled
            self.last_ms = max(self.last_ms, event.at)
            if self.on_end is not None:
                self.on_end((event.task, job.submit_ms, began, event.at, start.nodes))
        left = self.arrays.get(job_id, 1) - 1
        if left:
            self.arrays[job_id] = left
        else:
            del self.live[job_id]
            self.arrays.pop(job_id, None)

    def _dropped(self, event: JobDropped) -> None:
        self.dropped += 1
        if event.job not in self.arrays:
            del self.live[event.job]

    def _largest(self) -> npt.NDArray[np.int64]:
        """Which tenth of the tasks, one at least, took most of the resource; ties as they ended."""
        works = np.frombuffer(self.works, np.int64)
        return np.argsort(-works, kind="stable")[: max(1, len(works) // 10)]

    def figures(self, capacity: int) -> dict[str, Any]:
        """`capacity`: all of the resource that utilisation is measured in."""
        waits = np.frombuffer(self.waits, np.int64) if self.waits else np.zeros(0, np.int64)
        runs = np.frombuffer(self.runs, np.int64) if self.runs else np.zeros(0, np.int64)
        slowdowns = np.maximum(1.0, (waits + runs) / np.maximum(SHORT_MS, runs))
        makespan = self.last_ms - (self.first_ms or 0)
        any_ended = bool(len(waits))
        return {
            "jobs": len(waits),
            "makespan_s": makespan / 1000,
            "wait_mean_s": float(waits.mean()) / 1000 if any_ended else 0.0,
            "wait_p50_s": float(np.percentile(waits, 50)) / 1000 if any_ended else 0.0,
            "wait_p95_s": float(np.percentile(waits, 95)) / 1000 if any_ended else 0.0,
            "wait_max_s": float(waits.max()) / 1000 if any_ended else 0.0,
            "wait_mean_largest_s": float(waits[self._largest()].mean()) / 1000 if any_ended else 0.0,
            "completion_mean_s": float((waits + runs).mean()) / 1000 if any_ended else 0.0,
            "bsld_mean": float(slowdowns.mean()) if any_ended else 0.0,
            "bsld_max": float(slowdowns.max()) if any_ended else 0.0,
            "utilization": self.work / (capacity * makespan) if capacity and makespan else 0.0,
            "backfilled": self.backfilled,
            **promised(self.promises),
            "preemptions": self.preemptions,
            "preemptions_minute_max": self.minute_max,
            "preemptions_minute_percent": self.minute_percent,
            "suspensions": self.pauses.suspensions,
            "suspended_hours": self.pauses.stopped_ms / 3_600_000,
            "lost_hours": self.lost_ms / 1000 / 3_600_000,
        }


def promised(book: Promises) -> dict[str, Any]:
    """How the promises of a start were kept."""
    return {
        "promises": book.made,
        "promises_kept": book.kept,
        "late_p50_s": book.late_percentile(50) / 1000,
        "late_p90_s": book.late_percentile(90) / 1000,
        "late_max_s": book.late_percentile(100) / 1000,
        **{f"late_by_{cause}": count for cause, count in book.late_by.items()},
        "slip_max_percent": book.backfill_percent_max,
    }


class ScheduleFile:
    """`--schedule`: one line an ended task, in order of end."""

    HEADER: Final = "job_id,submit,start,wait,end,nodes\n"

    def __init__(self, path: Path, labels: dict[int, str | int]) -> None:
        self.labels = labels
        self.stream = path.open("w", encoding="utf-8")
        self.stream.write(self.HEADER)

    def write(self, row: Row) -> None:
        task, submit, start, end, nodes = row
        job, index = task >> ARRAY_BITS, index_of(task)
        name = str(self.labels.get(job, job)) + (f"_{index}" if index else "")
        placed = " ".join([node if count == 1 else f"{node}*{count}" for node, count in nodes])
        times = f"{seconds(submit)},{seconds(start)},{seconds(start - submit)},{seconds(end)}"
        self.stream.write(f"{name},{times},{placed}\n")

    def close(self) -> None:
        self.stream.close()


def seconds(ms: int) -> str:
    return str(ms // 1000) if ms % 1000 == 0 else f"{ms / 1000:.3f}"
