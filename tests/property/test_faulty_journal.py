"""The loop over a bad disk: what somebody was told is in the journal, whatever failed, and is told once.

A turn that fails for want of room is simply turned again. A process that dies is started again on what is safe.
"""

import random
from collections.abc import Sequence

import pytest

from tests.kit.choose import Seeded, one_in
from tests.kit.faulty_engine import CALM, STORM, FaultyEngine
from tests.kit.faulty_journal import DiskError, FaultyJournal
from tests.kit.ledger import Ledger
from tests.kit.scenario import nodes_of, policy_of, spec_of
from tests.kit.sim import ScriptedInbox, StepClock
from tidegate.loop.loop import Loop
from tidegate.loop.recovery import keep_snapshot, recovered
from tidegate.model import events as ev
from tidegate.model.base import task_key
from tidegate.model.commands import Cancel, ChangePolicy, Command, Refused, SetNode, Submit
from tidegate.model.engine import Directive, Launch
from tidegate.ports import JournalFullError
from tidegate.world.check import check
from tidegate.world.world import World

STEPS = 60
DRAIN_TURNS_MAX = 5000


def run_time(task: int, attempt: int) -> int:
    return random.Random(task * 1000 + attempt).choice((1, 5, 10, 20, 20, 50))


class Told(ScriptedInbox):
    """Whoever asked was told what is safe, or is told nothing."""

    def __init__(self, journal: FaultyJournal) -> None:
        super().__init__()
        self.journal = journal
        self.acknowledged: set[int] = set()

    def answer(self, command: Command, result: tuple[ev.Event, ...] | Refused) -> None:
        if not isinstance(result, Refused):
            assert all(event in self.journal.safe for event in result), f"{command} was answered before it was safe"
            self.acknowledged.update(event.job.id for event in result if isinstance(event, ev.JobSubmitted))


class Careful(FaultyEngine):
    """Starts nothing that is not in the journal."""

    journal: FaultyJournal

    def deliver(self, directives: Sequence[Directive], now: int) -> None:
        safe = {(event.task, event.attempt) for event in self.journal.safe if isinstance(event, ev.JobStarted)}
        launched = {(launch.task, launch.attempt) for launch in directives if isinstance(launch, Launch)}
        assert launched <= safe, "a start was delivered before it was safe"
        super().deliver(directives, now)


class Home:
    def __init__(self, seed: int, *, failing: int, dying: int) -> None:
        self.journal = FaultyJournal(seed, failing=failing, dying=dying)
        self.engine = Careful(run_time, seed, STORM if seed % 2 else CALM)
        self.engine.journal = self.journal
        self.inbox = Told(self.journal)
        self.clock = StepClock()
        self.loop = self._loop(World())
        self.deaths = 0

    def _loop(self, world: World) -> Loop:
        return Loop(world, self.clock, self.journal, self.engine, self.inbox)

    def turn(self) -> None:
        unsafe, asked = self.loop.unsafe, len(self.inbox.commands)
        try:
            self.loop.turn()
        except JournalFullError:
            assert len(self.inbox.commands) == asked or not unsafe, "nothing is taken in that cannot be kept"
            self.clock.wanted = self.clock.time
        except DiskError:
            self.deaths += 1
            self.journal.crash()
            self.inbox.commands.clear()
            found = recovered(self.journal)
            assert not check(found.world, may_be_overfull=True), check(found.world)
            self.loop = self._loop(found.world)
            self.engine.inventory_at = self.clock.time  # an engine tells a new server what it has
            self.clock.wanted = self.clock.time

    def advance(self, ms: int) -> None:
        until = self.clock.time + ms
        while True:
            self.turn()
            if self.clock.wanted is None or self.clock.wanted > until:
                break
            self.clock.time = max(self.clock.time, self.clock.wanted)
        self.clock.time = until

    def drain(self) -> None:
        self.journal.failing = self.journal.dying = 0
        self.engine.faults = CALM
        for _ in range(DRAIN_TURNS_MAX):
            self.turn()
            if self.clock.wanted is None:
                return
            self.clock.time = max(self.clock.time, self.clock.wanted)
        raise AssertionError("it does not come to rest")


@pytest.mark.parametrize("seed", range(30))
def test_nothing_that_was_acknowledged_is_lost(seed: int):
    chooser = Seeded(seed)
    home = Home(seed, failing=(150, 30, 0)[seed % 3], dying=(0, 15, 30)[seed % 3])
    nodes, policy = nodes_of(chooser), policy_of(chooser, cut=False)
    home.journal.failing, failing = 0, home.journal.failing
    home.journal.dying, dying = 0, home.journal.dying
    home.inbox.commands.extend((ChangePolicy(policy), *map(SetNode, nodes)))
    home.advance(1)
    home.journal.failing, home.journal.dying = failing, dying
    for _ in range(STEPS):
        commands: list[Command] = [Submit(spec_of(chooser, ["p"])) for _ in range(chooser.integer(0, 3))]
        live = sorted(home.loop.world.jobs)
        if live and one_in(chooser, 5):
            commands.append(Cancel(chooser.pick(live)))
        home.inbox.commands.extend(commands)
        home.advance(chooser.pick((0, 1, 5, 20)))
        if one_in(chooser, 10) and home.journal.seq == home.loop.world.seq:
            keep_snapshot(home.journal, home.loop.world)
    home.drain()
    assert home.journal.failures + home.deaths > 0
    books(home)


def books(home: Home) -> None:
    """One final state for each task of each job, in the journal and in the history."""
    ledger = Ledger()
    ledger.append(home.journal.safe)
    assert home.inbox.acknowledged <= ledger.jobs.keys()
    assert not ledger.waiting
    assert not ledger.live
    final = [task_key(row.job.id, index) for row in (*home.journal.rows, *home.journal.backlog) if row.final
             for index in row.indices]  # fmt: skip
    assert len(set(final)) == len(final)
    assert set(final) == ledger.outcome.keys()
