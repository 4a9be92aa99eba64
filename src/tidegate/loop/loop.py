"""The loop: reports, time and commands become events; events become state; state becomes decisions.

Nothing acts on a decision before its event is in the journal: directives and answers go out after the flush.
"""

from collections.abc import Sequence
from enum import StrEnum
from itertools import compress

from mypy_extensions import mypyc_attr

from tidegate.core.accept import accept
from tidegate.core.decide import decide
from tidegate.core.directives import directives
from tidegate.core.due import due, next_due
from tidegate.core.memo import Memo
from tidegate.core.reconcile import reconcile
from tidegate.core.tides import turned
from tidegate.loop.history import apply_and_record
from tidegate.model.commands import Command, Refused
from tidegate.model.engine import Ended, Inventory, Report
from tidegate.model.events import Event
from tidegate.ports import Clock, Engine, Inbox, Journal
from tidegate.world.apply import apply
from tidegate.world.world import World

COMMANDS_PER_TURN_MAX = 10_000


class Cadence(StrEnum):
    """When a cycle runs."""

    BATCHED = "batched"  # once a turn, when all that happened by then is known
    PER_EVENT = "per-event"  # after every submission and every end, as published simulations do


@mypyc_attr(allow_interpreted_subclasses=True)  # tests watch it from a subclass
class Loop:
    def __init__(
        self,
        world: World,
        clock: Clock,
        journal: Journal,
        engine: Engine,
        inbox: Inbox,
        cadence: Cadence = Cadence.BATCHED,
    ) -> None:
        self.world = world
        self.clock = clock
        self.journal = journal
        self.engine = engine
        self.inbox = inbox
        self.cadence = cadence
        self.memo = Memo()
        self.unanswered: list[tuple[Command, tuple[Event, ...] | Refused]] = []
        self.delivered = 0  # directives up to this event number are with the engine
        self.unfinished = False  # the last cycle was cut, and got somewhere
        self.unsafe = False  # the last flush failed: what happened is not to be told, nor anything more taken in
        # When each will next have something to say, as far as it can tell; None: at any time, or never.
        self.due_at: int | None = 0
        self.engine_at: int | None = None
        self.inbox_at: int | None = None

    def run(self) -> None:
        while self.turn():
            pass

    def turn(self) -> bool:
        """One round. False: nothing can ever happen again. After a JournalFullError call it again, in a while."""
        now = self.clock.now()
        if self.unsafe:
            pass
        elif self.cadence is Cadence.PER_EVENT:
            self._per_event(now)
        else:
            self._batched(now)
        self.unsafe = True
        self.journal.flush()
        self.unsafe = False
        if self.unanswered or self.world.ordered > self.delivered:
            self._act(now)
        return self.clock.wait(now if self.unfinished else self._next_at())

    def engine_speaks(self) -> None:
        """Sooner than it could tell: its reports are asked for in the next turn."""
        self.engine_at = None

    # -- the two cadences --------------------------------------------------------------------------------

    def _batched(self, now: int) -> None:
        if self.engine_at is None or self.engine_at <= now:
            for report in self.engine.reports(now):
                self._reconcile(report, now)
        if self.world.ripe or self.world.emptying or (self.due_at is not None and self.due_at <= now):
            self._let_time_pass(now)
        if self.inbox_at is None or self.inbox_at <= now:
            for command in self.inbox.take(now, COMMANDS_PER_TURN_MAX):
                self._accept(command, now)
        self._cycle(now)

    def _per_event(self, now: int) -> None:
        """Within one instant: estimates, submissions, reports; each submission and each report has its cycle.

        Ends that were planned for now free their room before everything else: what the plan counted on as free
        from now on is free, whichever report comes first. Their own turn among the reports stays.
        """
        reports = self.engine.reports(now)
        planned = [self._was_planned(report, now) for report in reports]
        for report in compress(reports, planned):
            self._reconcile(report, now)
        self._let_time_pass(now)
        for command in self.inbox.take(now, COMMANDS_PER_TURN_MAX):
            self._accept(command, now)
            self._cycle(now)
        for report, is_done in zip(reports, planned, strict=True):
            if not is_done:
                self._reconcile(report, now)
            self._cycle(now)
        if self.unfinished or any(pool.grown for pool in self.world.stirred.values()):
            self._cycle(now)  # a cycle was cut, or time made a job ready

    def _was_planned(self, report: Report, now: int) -> bool:
        run = self.world.runs.get(report.task) if isinstance(report, Ended) else None
        return run is not None and run.expected_end == now

    # -- steps -------------------------------------------------------------------------------------------

    def _reconcile(self, report: Report, now: int) -> None:
        self.commit(reconcile(self.world, report, now))
        if isinstance(report, Inventory):
            self.delivered = 0  # whatever is still unconfirmed may have been lost: derive it again

    def commit(self, events: Sequence[Event]) -> None:
        """Into the journal, then into the state: a fact before it is an act."""
        if events:
            self.journal.append(events)
            world = self.world
            if self.journal.keeps_history:
                apply_and_record(world, events, self.journal)
                return
            for event in events:
                apply(world, event)

    def _accept(self, command: Command, now: int) -> None:
        answer = accept(self.world, command, now)
        if not isinstance(answer, Refused):
            self.commit(answer)
        self.unanswered.append((command, answer))

    def _let_time_pass(self, now: int) -> None:
        """What time makes true may make more true: a chain of dependencies, at most."""
        world = self.world
        while world.ripe or world.emptying or (self.due_at is not None and self.due_at <= now):
            self.commit(due(world, now))
            self.due_at = next_due(world)

    def _cycle(self, now: int) -> None:
        self.unfinished = False
        if self.world.ripe or self.world.emptying:
            self._let_time_pass(now)
        if not self.world.stirred:
            return
        looked_at = sorted(self.world.stirred) if self.world.gauges else ()
        plan = decide(self.world, self.memo, now)
        self.commit((plan.cycle, *plan.starts, *plan.halts, *plan.resumes))
        self.unfinished = bool(plan.cycle.cut and (plan.starts or plan.halts or plan.resumes))
        if looked_at and not self.unfinished:
            self._look_at_tides(looked_at, now)

    def _look_at_tides(self, pools: Sequence[str], now: int) -> None:
        """When all that can has started: what still waits is the demand. Another cycle follows where a tide turned."""
        events = turned(self.world, pools, now)
        if events:
            self.commit(events)
            self.unfinished = True

    def _act(self, now: int) -> None:
        for command, answer in self.unanswered:
            self.inbox.answer(command, answer)
        self.unanswered.clear()
        wanted = directives(self.world, self.delivered)
        self.delivered = self.world.seq
        if wanted:
            self.engine.deliver(wanted, now)

    def _next_at(self) -> int | None:
        """The soonest of what is known to come."""
        self.inbox_at, self.engine_at = self.inbox.next_at(), self.engine.next_at()
        soonest = self.due_at = next_due(self.world)
        if self.inbox_at is not None and (soonest is None or self.inbox_at < soonest):
            soonest = self.inbox_at
        if self.engine_at is not None and (soonest is None or self.engine_at < soonest):
            soonest = self.engine_at
        return soonest
