"""A fork and its original go their own ways: neither sees the other's events."""

from hypothesis import given
from hypothesis import strategies as st

from tests.kit import play
from tests.kit.choose import Chooser, Drawn
from tests.kit.deep import deep, difference
from tests.kit.faulty_engine import STORM, FaultyEngine
from tests.kit.scenario import nodes_of, policy_of
from tests.kit.sim import Sim
from tidegate.core.decide import decide
from tidegate.core.memo import Memo
from tidegate.world.apply import apply
from tidegate.world.check import check
from tidegate.world.world import World


def run_time(task: int, attempt: int) -> int:
    return (1, 5, 10, 20, 50)[(task // 7 + task + attempt) % 5]


def go_on(sim: Sim, chooser: Chooser, *, even: bool) -> None:
    for _ in range(chooser.integer(1, 5)):
        chooser.pick(play.STEPS)(sim, chooser, even=even)


def decide_and_apply(world: World, memo: Memo, now: int) -> None:
    plan = decide(world, memo, now)
    apply(world, plan.cycle)
    for start in plan.starts:
        apply(world, start)


@given(st.data(), st.booleans())
def test_neither_sees_the_others_events(data: st.DataObject, even: bool):
    chooser = Drawn(data)
    sim = Sim(FaultyEngine(run_time, 0, STORM), nodes_of(chooser, even=even), policy_of(chooser))
    go_on(sim, chooser, even=even)
    twin = sim.world.fork()
    before, digest, at = deep(twin), twin.full_digest(), len(sim.journal.events)
    assert digest == sim.world.full_digest() == twin.read_digest()
    go_on(sim, chooser, even=even)  # the original moves on, with its warm memo, and is watched
    assert not difference(before, deep(twin))
    assert twin.full_digest() == twin.read_digest() == digest
    assert not check(twin, may_be_overfull=sim.overfull)
    original, original_digest = deep(sim.world), sim.world.full_digest()
    third = twin.fork()
    for event in sim.journal.events[at:]:  # the twin catches up by itself
        apply(twin, event)
    assert not check(twin, may_be_overfull=sim.overfull)
    assert twin.full_digest() == twin.read_digest() == original_digest
    assert not difference(original, deep(sim.world))
    assert third.full_digest() == digest
    decide_and_apply(third, Memo(), sim.now)
    assert not difference(original, deep(sim.world))
    sim.drain()
