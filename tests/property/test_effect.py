"""What another policy is said to mean is what it then does; and looking changes nothing."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from tests.kit import play
from tests.kit.choose import Chooser, Drawn
from tests.kit.deep import deep, difference
from tests.kit.faulty_engine import STORM, FaultyEngine
from tests.kit.scenario import nodes_of, policy_of
from tests.kit.sim import Sim
from tests.kit.slow_tree import SlowTree
from tidegate.core.accept import accept
from tidegate.core.decide import decide
from tidegate.core.memo import Memo
from tidegate.lab import effect as looking
from tidegate.lab.effect import Tried, effect, in_line
from tidegate.model.base import job_of
from tidegate.model.commands import ChangePolicy, Refused
from tidegate.model.jobs import Job
from tidegate.policy.order import rank
from tidegate.wire.api import EffectBody
from tidegate.world.apply import apply
from tidegate.world.world import World

COUNTS = ("waiting", "looked_at", "forward", "back", "starts_before", "starts_after", "refused")


def run_time(task: int, attempt: int) -> int:
    return (5, 10, 20, 50, 130)[(task // 7 + task + attempt) % 5]


def drawn(chooser: Chooser) -> Sim:
    sim = Sim(FaultyEngine(run_time, 0, STORM), nodes_of(chooser), policy_of(chooser))
    for _ in range(chooser.integer(1, 8)):
        chooser.pick(play.STEPS)(sim, chooser, even=False)
    return sim


def total(found: EffectBody) -> dict[str, int]:
    return {name: sum(getattr(row, name) for row in found.rows) for name in COUNTS}


@given(st.data())
def test_it_is_what_the_next_cycle_does(data: st.DataObject):
    chooser = Drawn(data)
    sim = drawn(chooser)
    world, other = sim.world, policy_of(chooser)
    before, digest = deep(world), world.full_digest()
    found = effect(world, world.policy, other, sim.now)
    assert world.full_digest() == digest
    assert not difference(before, deep(world))
    twin = world.fork()
    answer = accept(twin, ChangePolicy(other), sim.now)
    assert not isinstance(answer, Refused)
    for event in answer:
        apply(twin, event)
    assert twin.runs == world.runs, "what runs is left alone"
    plan = decide(twin, Memo(), sim.now)
    if answer:
        assert total(found)["starts_after"] == len(plan.starts)
        assert max(0, found.interrupted) == len(plan.halts)
    started = {job_of(start.task) for start in plan.starts}
    assert {(row.queue, row.klass) for row in found.rows} >= {
        (world.jobs[job].spec.queue, world.jobs[job].spec.klass) for job in started
    }


@given(st.data())
def test_there_and_back_is_the_opposite(data: st.DataObject):
    chooser = Drawn(data)
    sim = drawn(chooser)
    one, other = sim.world.policy, policy_of(chooser)
    there, back = effect(sim.world, one, other, sim.now), effect(sim.world, other, one, sim.now)
    swapped = {"forward": "back", "back": "forward", "starts_before": "starts_after", "starts_after": "starts_before"}
    assert total(there) == {name: total(back)[swapped.get(name, name)] for name in COUNTS if name != "refused"} | {
        "refused": total(there)["refused"]
    }
    assert (there.promises_new, there.promises_lost) == (back.promises_lost, back.promises_new)
    same = effect(sim.world, one, one, sim.now)
    assert not any(total(same)[name] for name in ("forward", "back", "refused"))
    assert (same.promises_new, same.promises_lost, same.promises_later) == (0, 0, 0)


def looked_up(ranks: dict[int, int], job: Job) -> int:
    return ranks[job.id]


@given(st.data())
def test_the_line_is_in_order_of_rank(data: st.DataObject):
    chooser = Drawn(data)
    sim = drawn(chooser)
    policy = policy_of(chooser)
    world = Tried(sim.world, policy, sim.now).world
    for pool in world.pools.values():
        here = world.policy_in(pool.name)
        ranks = {
            job.id: rank(world, here, pool, lane, job, sim.now) for lane in pool.lanes.values() for job in lane.jobs
        }
        jobs = sorted((world.jobs[job] for job in ranks), key=lambda job: (ranks[job.id], job.submit_ms, job.id))
        left, expected, tree = [(job, 0) for job in jobs], [], SlowTree(world, sim.now)
        while left:
            found = tree.next(left, partial(looked_up, ranks))
            expected.append(found[0].id)
            left.remove(found)
        assert [job.id for job in in_line(Memo(), world, pool, sim.now)] == expected


def queued(world: World) -> int:
    return sum(len(lane.jobs) for pool in world.pools.values() for lane in pool.lanes.values())


@given(st.data())
def test_counts_bound_what_is_looked_at(data: st.DataObject):
    chooser = Drawn(data)
    sim = drawn(chooser)
    kept = {name: getattr(looking, name) for name in ("FIRST", "LOOKED_AT_MAX", "ROWS_MAX")}
    looking.FIRST, looking.LOOKED_AT_MAX, looking.ROWS_MAX = 2, 3, 2
    try:
        found = effect(sim.world, sim.world.policy, policy_of(chooser), sim.now)
    finally:
        vars(looking).update(kept)
    assert len(found.rows) <= 2
    assert found.looked_at <= 2 * 3
    for pool in sim.world.pools:  # ranked once, for the cycle and for the line
        tried = Tried(sim.world, sim.world.policy, sim.now)
        cold = in_line(Memo(), tried.world, tried.world.pools[pool], sim.now)
        assert tried.line(pool, 1000) == list(cold)
    assert found.waiting == total(found)["waiting"] == queued(sim.world)
    assert found.looked_at == total(found)["looked_at"]
