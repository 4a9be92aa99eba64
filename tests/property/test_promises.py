"""Promises are kept: nobody starts later than first told, while limits hold and no node is lost."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.kit.choose import Chooser, Drawn
from tests.kit.faulty_engine import FaultyEngine
from tests.kit.scenario import nodes_of, policy_of, spec_of
from tests.kit.sim import Sim
from tidegate.engines.virtual import RunTime
from tidegate.model.base import ARRAY_BITS
from tidegate.model.commands import Submit
from tidegate.model.events import CycleRan, JobStarted
from tidegate.model.jobs import JobSpec
from tidegate.model.nodes import Node
from tidegate.model.policy import DEPTH_ALL, Estimate, Order, PolicySpec, Preempt

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


def play(nodes: Sequence[Node], policy: PolicySpec, arrivals: Arrivals, runs: RunTime = run_time) -> Sim:
    sim = Sim(FaultyEngine(runs, 0), nodes, policy)
    for at, job, spec in arrivals:
        sim.advance(at - sim.now)
        sim.send(Submit(spec, job))
    sim.drain()
    return sim


@given(st.data(), st.booleans())
def test_conservative_backfilling_keeps_every_first_promise(data: st.DataObject, even: bool):
    chooser = Drawn(data)
    drawn = undisturbed(policy_of(chooser, cut=False))  # a limit of its queues may come between
    policy = replace(drawn, backfill=replace(drawn.backfill, depth=DEPTH_ALL), estimate=Estimate())
    check_first_promises(play(nodes_of(chooser, even=even), policy, arrivals_of(chooser, even=even)), policy)


def check_first_promises(sim: Sim, policy: PolicySpec) -> None:
    """Whoever goes ahead delays nobody by more than `slip` says."""
    ledger = sim.ledger
    late = {}
    for task, start in ledger.first_start.items():
        allowed = ledger.jobs[task >> ARRAY_BITS].estimate_ms * policy.backfill.slip_percent // 100
        if start > ledger.first_promise.get(task, start) + allowed:
            late[task] = (start, ledger.first_promise[task], allowed)
    assert not late, f"task: (start, first promise, how much it may slip) {late}"


@given(st.data(), st.booleans(), st.sampled_from((0, 1, 10, 50, 100)))
def test_backfilling_delays_the_first_in_line_by_its_slip_at_most(data: st.DataObject, even: bool, percent: int):
    """First come, first served: nobody else has a turn before it, so only those who go ahead could delay it."""
    chooser = Drawn(data)
    drawn = policy_of(chooser, cut=False)
    backfill = replace(drawn.backfill, depth=1, slip_percent=percent)
    policy = PolicySpec("drawn", Order(), backfill, drawn.fit)
    check_first_promises(play(nodes_of(chooser, even=even), policy, arrivals_of(chooser, even=even)), policy)


def aged_first(sim: Sim, arrivals: Arrivals, bound: int) -> list[tuple[int, int]]:
    """(job, when) of every job that aged while it waited, with the time from which no elder waited any more."""
    starts = sim.ledger.first_start
    found = []
    for at, job, spec in arrivals:
        over = [start for task, start in starts.items() if task >> ARRAY_BITS < job]
        since = max(at + bound, *over, 0)
        if spec.array is None and starts.get(job << ARRAY_BITS, 0) > since:
            found.append((job, since))
    return found


def ageing(chooser: Chooser, depth: int) -> PolicySpec:
    drawn = policy_of(chooser, cut=False)
    order = Order(drawn.order.by, chooser.pick((5, 12)))
    backfill = replace(drawn.backfill, depth=depth, slip_percent=0)
    return replace(drawn, order=order, backfill=backfill, estimate=Estimate(), tide=None)


def undisturbed(policy: PolicySpec) -> PolicySpec:
    classes = {name: replace(known, preempt=Preempt.NEVER) for name, known in policy.classes.items()}
    queues = {name: replace(queue, limit=(), user_limit=()) for name, queue in policy.queues.items()}
    return replace(policy, classes=classes, queues=queues)


DEPTHS = st.sampled_from((0, 1, 2, DEPTH_ALL))


@given(st.data(), st.booleans(), DEPTHS)
def test_the_eldest_aged_job_is_never_promised_a_later_start(data: st.DataObject, even: bool, depth: int):
    """Runs end early, others come and go; what it was told stays true, and it holds a promise until it starts."""
    chooser = Drawn(data)
    policy = ageing(chooser, depth)
    arrivals = arrivals_of(chooser, even=even)
    sim = play(nodes_of(chooser, even=even), policy, arrivals)
    for job, since in aged_first(sim, arrivals, policy.order.ageing_bound_ms):
        task, told = job << ARRAY_BITS, None
        for event in sim.journal.events:
            if isinstance(event, CycleRan) and event.at >= since:
                promised = [promise.start_by for promise in event.promised if promise.task == task]
                assert task not in event.withdrawn
                assert told is None or not promised or promised[0] <= told, f"job {job}: {told}, now {promised}"
                told = promised[0] if promised else told
            elif isinstance(event, JobStarted) and event.task == task:
                assert told is None or event.at <= told
                break


@given(st.data(), st.booleans(), DEPTHS)
def test_an_aged_job_is_delayed_by_no_younger_one(data: st.DataObject, even: bool, depth: int):
    """Where runs take what was estimated, who comes after it aged makes no difference to it.

    But nobody is interrupted here, for that one goes back to its old place; and no queue has a limit, for a limit
    keeps no room free for a job that it does not let through yet.
    """
    chooser = Drawn(data)
    policy = undisturbed(ageing(chooser, depth))
    nodes, arrivals = nodes_of(chooser, even=even), arrivals_of(chooser, even=even)
    limits = {job: spec.limit_ms for _, job, spec in arrivals}

    def exactly(task: int, attempt: int) -> int:
        return limits[task >> ARRAY_BITS]

    sim = play(nodes, policy, arrivals, exactly)
    for job, since in aged_first(sim, arrivals, policy.order.ageing_bound_ms):
        alone = play(nodes, policy, [arrival for arrival in arrivals if arrival[0] < since], exactly)
        task = job << ARRAY_BITS
        assert sim.ledger.first_start[task] <= alone.ledger.first_start[task], f"job {job}, eldest since {since}"
