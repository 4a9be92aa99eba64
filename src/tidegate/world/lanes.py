"""Lanes: the waiting jobs of one queue and class that ask for the same shape for the same time."""

from collections import deque
from dataclasses import dataclass, field

from tidegate.model.jobs import Job, Shape
from tidegate.world.records import Need

LaneKey = tuple[str, str, Shape, int]
"""(queue, class, shape, estimate)"""


def lane_key(job: Job) -> LaneKey:
    spec = job.spec
    return (spec.queue, spec.klass, spec.shape, job.estimate_ms)


@dataclass(slots=True, eq=False)
class Lane:
    """First come, first served inside; so a lane's rank is its head's, and its head is the oldest."""

    serial: int  # its name within the pool; a copy keeps it
    key: LaneKey
    units: int  # chunks of one job
    estimate_ms: int
    shape: Shape
    need: Need
    plain: bool  # stackable chunks without constraints
    owner: object  # the world that may write to it; a fork shares lanes until one side writes
    jobs: deque[Job] = field(default_factory=deque)

    @property
    def klass(self) -> str:
        return self.key[1]

    def copy_for(self, owner: object) -> "Lane":
        return Lane(
            self.serial, self.key, self.units, self.estimate_ms, self.shape, self.need, self.plain, owner, self.jobs.copy()
        )

    def insert(self, job: Job) -> None:
        """Keeps (submit, id) order; a job that returns after a loss takes its old place."""
        jobs = self.jobs
        mark = (job.submit_ms, job.id)
        at = len(jobs)
        while at and (jobs[at - 1].submit_ms, jobs[at - 1].id) > mark:
            at -= 1
        if at == len(jobs):
            jobs.append(job)
        else:
            jobs.insert(at, job)

    def remove(self, job: Job) -> None:
        if self.jobs[0] is job:
            self.jobs.popleft()
        else:
            self.jobs.remove(job)
