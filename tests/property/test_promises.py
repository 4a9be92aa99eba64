"""Promises are kept: nobody starts later than first told, while limits hold and no node is lost."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.kit.choose import Chooser, Drawn
from tests.kit.faulty_engine import FaultyEngine
from tests.kit.scenario import nodes_of, policy_of, spec_of
from tests.kit.sim import Sim
from tidegate.model.base import ARRAY_BITS
from tidegate.model.commands import Submit
from tidegate.model.jobs import JobSpec
from tidegate.model.nodes import Node
from tidegate.model.policy import DEPTH_ALL, Backfill, Estimate, Order, PolicySpec

Arrivals = Sequence[tuple[int, int, JobSpec]]
"""(time, job id, spec)"""


def run_time(task: int, attempt: int) -> int:
    """Never longer than the shortest limit, and often shorter."""
    return (1, 3, 5, 10, 10, 10)[(task // 7 + task + attempt) % 6]


def arrivals_of(chooser: Chooser, *, even: bool) -> Arrivals:
    at, found = 0, []
    for job in range(1, chooser.integer(2, 14)):
        at += chooser.pick((0, 0, 1, 4, 9))
        spec = replace(spec_of(chooser, ["p"], even=even), expected_ms=0)
        found.append((at, job, spec))
    return found


def play(nodes: Sequence[Node], policy: PolicySpec, arrivals: Arrivals) -> Sim:
    sim = Sim(FaultyEngine(run_time, 0), nodes, policy)
    for at, job, spec in arrivals:
        sim.advance(at - sim.now)
        sim.send(Submit(spec, job))
    sim.drain()
    return sim


@given(st.data(), st.booleans())
def test_conservative_backfilling_keeps_every_first_promise(data: st.DataObject, even: bool):
    chooser = Drawn(data)
    drawn = policy_of(chooser, cut=False)
    policy = replace(drawn, backfill=replace(drawn.backfill, depth=DEPTH_ALL), estimate=Estimate())
    sim = play(nodes_of(chooser, even=even), policy, arrivals_of(chooser, even=even))
    ledger = sim.ledger
    late = {
        task: (start, ledger.first_promise[task])
        for task, start in ledger.first_start.items()
        if start > ledger.first_promise.get(task, start)
    }
    assert not late, f"task: (start, first promise) {late}"


@given(st.data(), st.booleans(), st.sampled_from((0, 1, 2)))
def test_an_aged_job_is_delayed_by_no_younger_one(data: st.DataObject, even: bool, depth: int):
    """The eldest waiting job, once aged, starts no later than if nobody had come after it had aged."""
    chooser = Drawn(data)
    bound = chooser.pick((5, 12))
    order = Order(policy_of(chooser).order.by, bound)
    policy = replace(policy_of(chooser, cut=False), order=order, backfill=Backfill(depth), estimate=Estimate())
    nodes, arrivals = nodes_of(chooser, even=even), arrivals_of(chooser, even=even)
    sim = play(nodes, policy, arrivals)
    for at, job, spec in arrivals:
        start = sim.ledger.first_start.get(job << ARRAY_BITS)
        elders = [other for when, other, _ in arrivals if (when, other) < (at, job)]
        over = [sim.ledger.first_start.get(task, 0) for task in sim.ledger.first_start if task >> ARRAY_BITS in elders]
        if spec.array is not None or start is None or start <= at + bound or max(over, default=0) >= at + bound:
            continue  # it did not age, or an elder still waited then
        alone = play(nodes, policy, [arrival for arrival in arrivals if arrival[0] < at + bound])
        assert start <= alone.ledger.first_start[job << ARRAY_BITS], f"job {job}, aged at {at + bound}"
