"""Lanes: the waiting jobs of one queue and class that ask for the same shape for the same time.

Where the queue tells its users apart, or jobs are compared with others of their user, of one user.
"""

from collections import deque

from tidegate.model.jobs import Job, Shape
from tidegate.world.records import Alike, Need
from tidegate.world.rungs import Standing

LaneKey = tuple[str, str, Shape, int, str, Standing, str, int]
"""(queue, class, shape, estimate, user, standing, reservation, limit); no user where they stand together, and neither
reservation nor limit where the pool has no reservation. `World.lane_key` makes it."""


def alike_key(job: Job) -> Alike:
    return (job.spec.user, job.spec.shape.count, job.estimate_ms)


def kin_key(job: Job) -> Alike:
    return (job.spec.user, job.spec.shape.count, 0)


class Lane:
    """First come, first served inside; so a lane's rank is its head's, and its head is the oldest."""

    __slots__ = (
        "estimate_ms",
        "jobs",
        "key",
        "need",
        "owner",
        "plain",
        "rung",
        "serial",
        "shape",
        "since",
        "sinks",
        "units",
    )

    def __init__(self, serial: int, key: LaneKey, need: Need, owner: object, jobs: deque[Job]) -> None:
        self.serial = serial  # its name within the pool; a copy keeps it
        self.key = key
        self.shape = shape = key[2]
        self.estimate_ms = key[3]
        self.units = shape.count  # chunks of one job
        self.plain = shape.stack and not shape.where
        self.need = need
        rung, self.since, _ = key[5]  # since when its jobs wait; 0: each since it was submitted
        self.sinks, self.rung = rung >= 0, max(0, rung)
        self.owner = owner  # the world that may write to it; a fork shares lanes until one side writes
        self.jobs = jobs

    @property
    def queue(self) -> str:
        return self.key[0]

    @property
    def klass(self) -> str:
        return self.key[1]

    @property
    def user(self) -> str:
        return self.key[4]

    @property
    def kept_ms(self) -> int:
        """What its jobs have saved of their work."""
        return self.key[5][2]

    @property
    def alike(self) -> Alike:
        return (self.key[4], self.units, self.estimate_ms)

    @property
    def kin(self) -> Alike:
        return (self.key[4], self.units, 0)

    @property
    def reservation(self) -> str:
        return self.key[6]

    @property
    def limit_ms(self) -> int:
        return self.key[7]

    def copy_for(self, owner: object) -> "Lane":
        return Lane(self.serial, self.key, self.need, owner, self.jobs.copy())

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
