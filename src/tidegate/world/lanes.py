"""Lanes: the waiting jobs of one queue and class that ask for the same shape for the same time."""

from collections import deque
from dataclasses import dataclass, field

from tidegate.model.jobs import Job, Shape

LaneKey = tuple[str, str, Shape, int]
"""(queue, class, shape, estimate)"""


def lane_key(job: Job) -> LaneKey:
    spec = job.spec
    return (spec.queue, spec.klass, spec.shape, job.estimate_ms)


@dataclass(slots=True, eq=False)
class Lane:
    """First come, first served inside; so a lane's rank is its head's, and its head is the oldest."""

    key: LaneKey
    queue: str
    klass: str
    shape: Shape
    estimate_ms: int
    units: int  # chunks of one job
    need: tuple[tuple[int, int], ...]  # (column, amount) a chunk asks of the pool's columns
    owner: object  # the world that may write to it; a fork shares lanes until it writes
    jobs: deque[Job] = field(default_factory=deque)

    def copy_for(self, owner: object) -> "Lane":
        return Lane(
            self.key,
            self.queue,
            self.klass,
            self.shape,
            self.estimate_ms,
            self.units,
            self.need,
            owner,
            self.jobs.copy(),
        )

    def insert(self, job: Job) -> None:
        """Keeps (submit, id) order; a job that returns after a loss takes its old place."""
        jobs = self.jobs
        mark = (job.submit_ms, job.id)
        if not jobs or (jobs[-1].submit_ms, jobs[-1].id) < mark:
            jobs.append(job)
            return
        at = len(jobs)
        while at and (jobs[at - 1].submit_ms, jobs[at - 1].id) > mark:
            at -= 1
        jobs.insert(at, job)

    def remove(self, job: Job) -> None:
        if self.jobs[0] is job:
            self.jobs.popleft()
        else:
            self.jobs.remove(job)
