"""Preemption comes to rest, keeps to its rules and its budget, and interrupts nobody in vain."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.kit.choose import Chooser, Seeded
from tests.kit.scenario import QUEUES, nodes_of, preemption_of, queues_of, shape_of
from tidegate.core.feedback import HAS_AGED, HAS_SUNK
from tidegate.engines.virtual import VirtualEngine
from tidegate.journals.memory import MemoryJournal
from tidegate.lab.ports import VirtualClock
from tidegate.lab.replay import set_up
from tidegate.loop.loop import Loop
from tidegate.model.base import ARRAY_BITS
from tidegate.model.commands import Command, Submit
from tidegate.model.events import AttemptLost, Event, HaltRequested, JobStarted, JobSubmitted
from tidegate.model.jobs import Checkpoint, JobSpec
from tidegate.model.policy import (
    SAVE_FIRST,
    Backfill,
    Feedback,
    Fit,
    FitBy,
    JobClass,
    Order,
    OrderBy,
    PolicySpec,
    Preempt,
    Share,
)
from tidegate.world.world import World

FOR_EVER = 1 << 40
REST_MS = 3_600_000
WORLDS, WORLDS_SLOW = 300, 10_000
CHUNK = 100
TURNS_MAX = 5000


def policy_of(chooser: Chooser) -> PolicySpec:
    return PolicySpec(
        "drawn",
        Order(
            chooser.pick((OrderBy.FCFS, OrderBy.SMALLEST_AREA, OrderBy.PRIORITY, OrderBy.FEEDBACK, OrderBy.FEEDBACK)),
            then=chooser.pick((OrderBy.FCFS, OrderBy.SMALLEST_AREA, OrderBy.SHORTEST_REMAINING)),
        ),
        Backfill(chooser.pick((1, 2, 1 << 30))),
        Fit(chooser.pick(tuple(FitBy))),
        classes={
            "urgent": JobClass(level=1, preempt=chooser.pick(tuple(Preempt))),
            "normal": JobClass(preempt=chooser.pick(tuple(Preempt))),
            "spare": JobClass(level=-1, preempt=Preempt.REQUEUE),
        },
        queues=queues_of(chooser) if chooser.integer(0, 3) else {},
        share=Share(chooser.pick((0, 50))),
        preemption=preemption_of(chooser),
        feedback=feedback_of(chooser),
    )


def feedback_of(chooser: Chooser) -> Feedback:
    """A bound now and then that comes into play before the end."""
    bound, turn = chooser.pick((FOR_EVER, FOR_EVER, REST_MS // 2)), chooser.pick((0, 100))
    return Feedback(chooser.pick(((), (10,), (5, 40, 300))), 1, ageing_bound_ms=bound, turn_ms=turn)


class Script:
    """Everybody who ever comes, at their times."""

    def __init__(self, chooser: Chooser) -> None:
        self.coming: list[tuple[int, Command]] = []
        at = 0
        for _ in range(chooser.integer(2, 4)):
            self.coming += [(at, Submit(spec_of(chooser))) for _ in range(chooser.integer(1, 6))]
            at += chooser.integer(0, 30)

    def take(self, now: int, at_most: int) -> list[Command]:
        taken = [command for at, command in self.coming if at <= now]
        self.coming = [(at, command) for at, command in self.coming if at > now]
        return taken

    def answer(self, command: Command, result: object) -> None:
        pass

    def next_at(self) -> int | None:
        return self.coming[0][0] if self.coming else None


def at_rest(seed: int) -> Loop:
    """Jobs that never end by themselves, all there from early on; then nothing but time."""
    chooser = Seeded(seed)
    clock, journal = VirtualClock(), MemoryJournal()
    policy, nodes = policy_of(chooser), nodes_of(chooser)
    engine = VirtualEngine(lambda _task, _attempt: FOR_EVER)
    loop = Loop(World(), clock, journal, engine, Script(chooser))
    set_up(loop, nodes, policy)
    quiet_from, seen = 0, 0
    for _ in range(TURNS_MAX):
        going_on = loop.turn()
        now = clock.now()
        if any(is_interruption(event) for event in journal.events[seen:]):
            quiet_from = now
        seen = len(journal.events)
        if not going_on or now > quiet_from + REST_MS or (ages(policy) and now > 4 * REST_MS):
            return loop
    raise AssertionError(f"no rest after {sum(map(is_interruption, journal.events))} interruptions, at {clock.now()}")


def ages(policy: PolicySpec) -> bool:
    """Where jobs never end those past the bound take turns for ever, each once in a bound: see check_turns."""
    return policy.order.by is OrderBy.FEEDBACK and policy.feedback.ageing_bound_ms < FOR_EVER


def spec_of(chooser: Chooser) -> JobSpec:
    return JobSpec(
        user=chooser.pick("uvw"), shape=shape_of(chooser), limit_ms=FOR_EVER, pool="p", queue=chooser.pick(QUEUES),
        klass=chooser.pick(("urgent", "normal", "normal", "spare")),
        checkpoint=Checkpoint() if chooser.integer(0, 1) else None,
    )  # fmt: skip


def is_interruption(event: Event) -> bool:
    return isinstance(event, HaltRequested) and bool(event.room_for)


CHUNKS = [
    pytest.param(first, marks=pytest.mark.slow if first >= WORLDS else ()) for first in range(0, WORLDS_SLOW, CHUNK)
]


@pytest.mark.parametrize("first", CHUNKS)
def test_it_comes_to_rest(first: int):
    for seed in range(first, first + CHUNK):
        try:
            check_rules(at_rest(seed))
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


def check_rules(loop: Loop) -> None:
    assert isinstance(loop.journal, MemoryJournal)
    policy, events = loop.world.policy, loop.journal.events
    specs = {event.job.id: event.job.spec for event in events if isinstance(event, JobSubmitted)}
    started: dict[int, int] = {}
    for event in events:
        if isinstance(event, JobStarted):
            started[event.task] = event.at
        elif isinstance(event, HaltRequested) and event.room_for:
            victim, other = specs[event.task >> ARRAY_BITS], specs[event.room_for >> ARRAY_BITS]
            lower, higher = policy.classes[victim.klass], policy.classes[other.klass]
            assert lower.level <= higher.level
            assert lower.preempt is not Preempt.NEVER
            assert lower.preempt not in SAVE_FIRST or victim.checkpoint is not None
            assert event.at - started[event.task] >= policy.preemption.min_run_ms
            assert lower.level < higher.level or victim.queue != other.queue or is_by_feedback(event)
    check_turns(policy, events)
    users = Counter((at // 60_000, specs[task >> ARRAY_BITS].user) for at, task in interruptions(events))
    most = policy.preemption.user_max
    assert not most or all(count <= 2 * most for count in users.values())


def check_turns(policy: PolicySpec, events: list[Event]) -> None:
    """Who takes room for its age has waited for the bound since it was submitted or last ran, and keeps its turn."""
    rules, turns = policy.feedback, dict[int, int]()
    waits: dict[int, int] = {}
    for event in events:
        if isinstance(event, JobSubmitted):
            waits[event.job.id << ARRAY_BITS] = event.at
        elif isinstance(event, AttemptLost):
            waits[event.task] = event.at
        elif isinstance(event, JobStarted) and event.at - waits[event.task] >= rules.ageing_bound_ms:
            turns[event.task] = event.at + rules.turn_ms
        elif isinstance(event, HaltRequested) and is_by_feedback(event):
            assert event.at >= turns.get(event.task, 0)
            if event.by.endswith(HAS_AGED):
                assert event.at - waits[event.room_for] >= rules.ageing_bound_ms


def is_by_feedback(event: HaltRequested) -> bool:
    return event.by.endswith((HAS_SUNK, HAS_AGED))


def interruptions(events: list[Event]) -> Iterator[tuple[int, int]]:
    for event in events:
        if isinstance(event, HaltRequested) and event.room_for:
            yield event.at, event.task
