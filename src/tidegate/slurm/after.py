"""`--dependency=after:ID[+MINUTES]`: a job that waits until others have begun.

The kernel knows no such condition: the job is held, and released here when the last of them has begun or is over. What
waits so is found again after a restart.
"""

import asyncio
from collections.abc import Callable, Sequence

from tidegate.api.live import LiveInbox
from tidegate.api.table import job_of_event
from tidegate.model import commands as cmd
from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS
from tidegate.model.events import Event
from tidegate.model.jobs import Job
from tidegate.slurm.views import slurm_of
from tidegate.world.world import World

NEWS = (ev.JobStarted, ev.JobEnded, ev.JobDropped)
BY = "what it waited for has begun"


class Afters:
    """A watcher of the journal."""

    def __init__(self, aio: asyncio.AbstractEventLoop, world: World, inbox: LiveInbox, now: Callable[[], int]) -> None:
        self.aio = aio
        self.world = world
        self.inbox = inbox
        self.now = now
        self.waiting: dict[int, Job] = {}
        self.wanted: set[int] = set()  # those that somebody waits for
        for job in list(world.jobs.values()):
            self.note(job)
        self.look()

    def note(self, job: Job) -> None:
        after = slurm_of(job).after
        parked = self.world.parked.get(job.id)
        if after and parked is not None and parked.held:
            self.waiting[job.id] = job
            self.wanted.update(other for other, _ in after)

    def seen(self, events: Sequence[Event]) -> None:
        pass

    def safe(self, seq: int, events: Sequence[Event]) -> None:
        del seq
        fresh = False
        for event in events:
            if isinstance(event, ev.JobSubmitted) and slurm_of(event.job).after:
                self.note(event.job)
                fresh = True
            elif self.wanted and isinstance(event, NEWS) and job_of_event(event) in self.wanted:
                fresh = True
        if fresh:
            self.look()

    def look(self) -> None:
        """Lets go whose time has come, and looks again when the next one's has."""
        now, soonest = self.now(), 0
        for job in list(self.waiting.values()):
            at = self.release_ms(job)
            if job.id not in self.world.jobs:
                del self.waiting[job.id]
            elif at is not None and at <= now:
                del self.waiting[job.id]
                self.inbox.put(cmd.Release(job.id, BY), lambda _: None)
            elif at is not None:
                soonest = min(soonest or at, at)
        self.wanted = {other for job in self.waiting.values() for other, _ in slurm_of(job).after}
        if soonest:
            self.aio.call_later((soonest - now) / 1000, self.look)

    def release_ms(self, job: Job) -> int | None:
        """When it may go; None: somebody has not begun."""
        latest = 0
        for other, delay_ms in slurm_of(job).after:
            begun = self.begun_ms(other)
            if begun is None:
                return None
            latest = max(latest, begun + delay_ms)
        return latest

    def begun_ms(self, job: int) -> int | None:
        """Of an array the first of its tasks; what is over has begun, or never will."""
        if job not in self.world.jobs:
            return 0
        run = self.world.runs.get(job << ARRAY_BITS)
        runs = [run] if run is not None else self.world.runs_of(job)
        return min((one.start_ms for one in runs), default=None)
