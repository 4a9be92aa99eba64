"""A cycle of the kernel equals the slow reference, and both ways to count room agree where they must."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.kit.choose import Drawn, Seeded, one_in
from tests.kit.faulty_engine import FaultyEngine
from tests.kit.scenario import nodes_of, policy_of, spec_of
from tests.kit.sim import Sim
from tidegate.core import decide as decide_module
from tidegate.core.place import ColumnPlacer
from tidegate.model.commands import Submit
from tidegate.model.events import CycleRan, Event, JobStarted
from tidegate.model.nodes import Node
from tidegate.model.policy import Backfill, PolicySpec, Preempt


def run_time(task: int, attempt: int) -> int:
    return (1, 5, 10, 20, 50, 130)[(task // 7 + task + attempt) % 6]


@given(st.data(), st.booleans())
def test_every_cycle_equals_the_slow_reference(data: st.DataObject, even: bool):
    """No faults, no commands but submissions: what is left is choosing. The simulation compares each cycle."""
    chooser = Drawn(data)
    sim = Sim(FaultyEngine(run_time, 0), nodes_of(chooser, even=even), policy_of(chooser, cut=False))
    for _ in range(chooser.integer(1, 6)):
        specs = [spec_of(chooser, ["p"], even=even) for _ in range(chooser.integer(1, 4))]
        sim.send(*(Submit(spec) for spec in specs))
        sim.advance(chooser.integer(0, 30))
    sim.drain()


def choices(seed: int, nodes: list[Node], policy: PolicySpec) -> list[Event]:
    """What a run decides, with the nodes of promises left out: a counted pool names none."""
    chooser = Seeded(seed)
    sim = Sim(FaultyEngine(run_time, 0), nodes, policy)
    sim.loop.watched = False
    for _ in range(12):
        sim.send(*(Submit(spec_of(chooser, ["p"], even=True)) for _ in range(chooser.integer(1, 4))))
        sim.advance(chooser.integer(0, 30))
    sim.drain()
    chosen: list[Event] = []
    for event in sim.journal.events:
        if isinstance(event, CycleRan):
            promised = tuple(replace(promise, nodes=()) for promise in event.promised)
            chosen.append(replace(event, promised=promised))
        elif isinstance(event, JobStarted):
            chosen.append(event)
    return chosen


@pytest.mark.parametrize("seed", range(24))
def test_counting_equals_searching(seed: int, monkeypatch: pytest.MonkeyPatch):
    """On one node always; on several while nothing is promised. (Promises of a counted pool take no nodes.)

    Nobody is suspended: that pool is searched, and its promises change when it is counted again.
    """
    chooser = Seeded(seed)
    several = one_in(chooser, 2)
    nodes = nodes_of(chooser, even=True)[: None if several else 1]
    policy = policy_of(chooser, cut=False)
    classes = {
        name: replace(klass, preempt=Preempt.REQUEUE) if klass.preempt is Preempt.SUSPEND else klass
        for name, klass in policy.classes.items()
    }
    policy = replace(policy, classes=classes)
    if several:
        policy = replace(policy, backfill=Backfill(0), order=replace(policy.order, ageing_bound_ms=0))
    counted = choices(seed, nodes, policy)
    assert any(isinstance(event, JobStarted) for event in counted)
    monkeypatch.setattr(decide_module, "placer_for", ColumnPlacer)
    assert choices(seed, nodes, policy) == counted
