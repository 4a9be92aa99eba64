"""A client that waits for jobs to end: one request that is answered when some have, or when its time is up."""

import asyncio

import msgspec

from tidegate.api.follow import Waits
from tidegate.api.http import Request
from tidegate.api.past import Past
from tidegate.api.words import Tasks
from tidegate.wire import api
from tidegate.world.world import World

GATHER_S = 0.1


class Poll:
    """One client that waits for jobs to end."""

    def __init__(
        self, world: World, past: Past, waits: Waits, request: Request, tasks: Tasks, known: int, timeout_ms: int
    ) -> None:
        self.world = world
        self.past = past
        self.waits = waits
        self.request = request
        self.tasks = tasks
        self.known = known
        self.timeout_ms = timeout_ms
        self.is_over = False
        self.gather: asyncio.TimerHandle | None = None

    def start(self) -> None:
        body = self._look()
        if self.known < 0 or body.ended > self.known or body.ended == body.total or not self.timeout_ms:
            self._answer(body)
            return
        self.unwatch = self.waits.add(self.tasks.jobs, self._again)
        self.timer = self.past.aio.call_later(self.timeout_ms / 1000, self._time_up)
        self.request.on_gone = self._over

    def _look(self) -> api.WaitBody:
        return self.past.progress(self.world, self.tasks)

    def _again(self) -> None:
        """At once when the last has ended; else a little later, for others will have ended by then."""
        if not any(job in self.world.jobs for job in self.tasks.jobs):
            self._time_up()
        elif self.gather is None:
            self.gather = self.past.aio.call_later(GATHER_S, self._gathered)

    def _gathered(self) -> None:
        self.gather = None
        body = self._look()
        if body.ended > self.known and not self.is_over:
            self._over()
            self._answer(body)

    def _time_up(self) -> None:
        self._over()
        self._answer(self._look())

    def _over(self) -> None:
        if not self.is_over:
            self.is_over = True
            self.unwatch()
            self.timer.cancel()
            if self.gather is not None:
                self.gather.cancel()

    def _answer(self, body: api.WaitBody) -> None:
        self.request.answer(200, msgspec.json.encode(body))
