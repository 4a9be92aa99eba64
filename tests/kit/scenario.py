"""Random clusters, policies and jobs: small, and full of ties and special cases."""

from collections.abc import Sequence
from itertools import product

from msgspec.structs import replace

from tests.kit.choose import Chooser, one_in
from tidegate.model.base import FOREVER_MS
from tidegate.model.jobs import (
    ANY_FAILURE,
    After,
    AfterKind,
    Array,
    Cause,
    Checkpoint,
    JobSpec,
    Retry,
    RetryRule,
    Shape,
    Work,
    amounts,
)
from tidegate.model.nodes import Node
from tidegate.model.policy import (
    BY_STANDING,
    DEPTH_ALL,
    PART_BITS,
    Backfill,
    Bound,
    CandidateOrder,
    Checkpoints,
    Cycle,
    Estimate,
    EstimateFrom,
    Feedback,
    Fit,
    FitBy,
    InTide,
    JobClass,
    Kept,
    Order,
    OrderBy,
    PolicySpec,
    Preempt,
    Preemption,
    Queue,
    Reservations,
    Share,
    Tide,
    Tides,
    Users,
)

CPU = 1000
DEPTHS = (0, 1, 2, DEPTH_ALL)
ORDERS = tuple(by for by in OrderBy if by not in BY_STANDING)
CANDIDATES = tuple(product(CandidateOrder, (0, 0, 12, 60)))
"""In which order, and from when on a promise is firm."""
LIMITS = (10, 20, 20, 30, 50, 100)
AFTER = tuple(AfterKind)


def nodes_of(chooser: Chooser, *, pool: str = "p", even: bool = False, least: int = 1) -> list[Node]:
    """`even`: as in a pool that is counted, all nodes with processors only."""
    found = []
    for number in range(chooser.integer(least, 4)):
        labels = () if one_in(chooser, 2) else (("zone", chooser.pick("ab")),)
        memory = 0 if even else chooser.pick((0, 4, 8))
        gpus = 0 if even else chooser.pick((0, 0, 2 * CPU))
        capacity = amounts(cpus=chooser.integer(1, 4) * CPU, memory=memory, gpus=gpus)
        found.append(Node(f"{pool}{number}", pool, capacity, labels))
    return found


def policy_of(chooser: Chooser, *, cut: bool = True) -> PolicySpec:
    cycle = Cycle()
    if cut and one_in(chooser, 6):
        cycle = Cycle(starts_max=chooser.integer(1, 3))
    policy = PolicySpec(
        "drawn",
        order_by(chooser.pick(ORDERS), chooser),
        backfill_of(chooser),
        Fit(chooser.pick(tuple(FitBy))),
        Estimate(chooser.pick(tuple(EstimateFrom)), raise_steps_ms=(7, 20)),
        {
            "urgent": JobClass(chooser.pick((0, 0, 1)), 25, ageing_bound_ms=chooser.pick((0, 0, 10))),
            "normal": JobClass(preempt=chooser.pick((Preempt.NEVER, Preempt.NEVER, *Preempt))),
        },
        queues_of(chooser) if one_in(chooser, 2) else {},
        Share(chooser.pick((0, 50))),
        preemption_of(chooser),
        Checkpoints(
            chooser.pick((0, 12)), chooser.pick((0, 256)), answer_max_ms=30, at_once_max=chooser.pick((0, 1, 2))
        ),
        cycle,
        reservations=Reservations(chooser.pick((0, 0, 12)), chooser.pick(((), (Bound("cpus", CPU),))), 40, 30),
        kept=kept_of(chooser) if one_in(chooser, 5) else {},
        tide=tide_of(chooser) if one_in(chooser, 3) else None,
    )
    return with_feedback(chooser, policy)


def order_by(by: OrderBy, chooser: Chooser) -> Order:
    return Order(
        by, chooser.pick((0, 0, 15, 60)), per_doubling_ms=20, short_ms=5, scout_from=chooser.pick((0, 2, 3)), wide_ms=30
    )


def backfill_of(chooser: Chooser) -> Backfill:
    order, firm_after_ms = chooser.pick(CANDIDATES)
    slip_percent = chooser.pick((0, 0, 10, 60))
    return Backfill(chooser.pick(DEPTHS), order, slip_percent=slip_percent, firm_after_ms=firm_after_ms)


def with_feedback(chooser: Chooser, spec: PolicySpec) -> PolicySpec:
    order, tide = order_of(chooser, spec.order), spec.tide
    if tide is not None and order.by in BY_STANDING:  # which does not come and go with the tide
        tide = replace(tide, states={state: replace(other, order=None) for state, other in tide.states.items()})
    return replace(spec, order=order, feedback=feedback_of(chooser), tide=tide)


def kept_of(chooser: Chooser) -> dict[str, Kept]:
    return {"some": Kept(chooser.pick((0, 1)), chooser.pick((0, 40)), classes=("urgent",))}


def tide_of(chooser: Chooser) -> Tides:
    """One that turns often."""
    return Tides(
        depth=chooser.pick((0, 1, 3)),
        arrivals=chooser.pick((0, 1, 3)),
        arrivals_min=chooser.pick((1, 3)),
        wait_ms=chooser.pick((0, 5)),
        utilization_percent=chooser.pick((0, 0, 50)),
        ebb_percent=chooser.pick((0, 50, 100)),
        window_ms=chooser.pick((5, 20)),
        baseline_ms=chooser.pick((20, 100)),
        hold_ms=chooser.pick((0, 3, 10)),
        ebb_ms=chooser.pick((0, 5)),
        states={state.value: in_tide_of(chooser) for state in Tide if state is not Tide.CALM},
    )


def in_tide_of(chooser: Chooser) -> InTide:
    return InTide(
        chooser.pick((None, order_by(chooser.pick(ORDERS), chooser))),
        chooser.pick((None, backfill_of(chooser))),
        chooser.pick((None, Fit(chooser.pick(tuple(FitBy))))),
        chooser.pick((None, preemption_of(chooser))),
    )


def order_of(chooser: Chooser, order: Order) -> Order:
    """Sometimes one that goes by what jobs have used or saved."""
    if not one_in(chooser, 2):
        return order
    by = chooser.pick((OrderBy.FEEDBACK, OrderBy.FEEDBACK, OrderBy.SHORTEST_REMAINING))
    return replace(order, by=by, then=chooser.pick([order for order in OrderBy if order is not OrderBy.FEEDBACK]))


def feedback_of(chooser: Chooser) -> Feedback:
    """Small enough that jobs get to the lowest rung, and old."""
    rungs = chooser.pick(((), (5,), (2, 8, 20)))
    return Feedback(rungs, 2, ageing_bound_ms=chooser.pick((15, 60, 200)), turn_ms=chooser.pick((0, 10)))


def preemption_of(chooser: Chooser) -> Preemption:
    return Preemption(
        level_gap=chooser.pick((0, 1)),
        reclaim_after_ms=chooser.pick((0, 20)),
        share_margin_percent=chooser.pick((0, 10)),
        min_run_ms=chooser.pick((0, 8)),
        budget_percent=chooser.pick((10, 50, 100)),
        user_max=chooser.pick((0, 1, 3)),
        grace_ms=chooser.pick((0, 5)),
        hold_ms=chooser.pick((10, 60)),
    )


QUEUES = ("default", "a", "a/b", "a/c", "d")


def queues_of(chooser: Chooser) -> dict[str, Queue]:
    """Some of QUEUES: what the policy does not name is a queue of the root."""
    return {name: _queue_of(chooser) for name in QUEUES if not one_in(chooser, 6)}


def _queue_of(chooser: Chooser) -> Queue:
    return Queue(
        weight=chooser.integer(1, 3),
        guarantee=chooser.pick(((), (Bound("cpus", 2 * CPU),), (Bound("cpus", CPU), Bound("memory", 4)))),
        limit=chooser.pick(((), (), (Bound("cpus", 4 * CPU),), (Bound("cpus", part=1 << PART_BITS - 1),))),
        users=chooser.pick(tuple(Users)),
        user_limit=chooser.pick(((), (), (Bound("cpus", 3 * CPU),))),
    )


def shape_of(chooser: Chooser, *, even: bool = False) -> Shape:
    if even:
        return Shape(amounts(cpus=CPU), chooser.integer(1, 6), stack=True)
    chunk = amounts(
        cpus=chooser.integer(1, 3) * CPU, memory=chooser.pick((0, 0, 2, 4)), gpus=chooser.pick((0, 0, 0, CPU))
    )
    where = (("zone", chooser.pick((("a",), ("b",), ("a", "b")))),) if one_in(chooser, 5) else ()
    return Shape(chunk, chooser.integer(1, 3), stack=one_in(chooser, 2), where=where)


def spec_of(chooser: Chooser, pools: Sequence[str], *, even: bool = False, plain: bool = False) -> JobSpec:
    """`plain`: nothing but a shape and a limit."""
    spec = {
        "user": chooser.pick("uvw"),
        "shape": shape_of(chooser, even=even),
        "limit_ms": chooser.pick(LIMITS),
        "pool": chooser.pick(pools),
        "klass": chooser.pick(("normal", "normal", "urgent")),
        "queue": chooser.pick(QUEUES),
    }
    if not plain and one_in(chooser, 4):
        first = chooser.integer(0, 3)
        indices = tuple(first + 2 * i for i in range(chooser.integer(1, 5)))
        spec["array"] = Array(indices, chooser.pick((0, 0, 1, 2)))
    if not plain and one_in(chooser, 4):
        spec["checkpoint"] = Checkpoint(every_ms=chooser.pick((0, 7)), size_mib=chooser.pick((0, 1)))
    if not plain and one_in(chooser, 3):
        spec["expected_ms"] = chooser.pick((1, 5, 15, 200))
    return JobSpec(**spec)  # type: ignore[arg-type]  # a dict of many types


def retry_of(chooser: Chooser) -> Retry:
    rules = (ANY_FAILURE, (RetryRule(Cause.EXIT, 1, 99), RetryRule(Cause.OUT_OF_MEMORY), RetryRule(Cause.TIMED_OUT)))
    return Retry(chooser.integer(0, 3), chooser.pick(rules), chooser.pick((0, 5, 40)), chooser.pick((40, 60)))


def conditions_of(chooser: Chooser, jobs: Sequence[int], now: int) -> dict[str, object]:
    """What may keep a job from its lane. `jobs`: ids it may depend on."""
    given: dict[str, object] = {"losses_max": chooser.pick((0, 1, 3)), "retry": retry_of(chooser)}
    if one_in(chooser, 4):
        given["work"] = Work(("true",), env=chooser.pick(("", "e1", "e2")), notify=chooser.pick(("", "mail")))
    if one_in(chooser, 4):
        given["begin_ms"] = now + chooser.integer(0, 40)
    if one_in(chooser, 4):
        given["deadline_ms"] = now + chooser.integer(10, 200) if one_in(chooser, 2) else FOREVER_MS
    if one_in(chooser, 8):
        given["held"] = True
    if jobs and one_in(chooser, 3):
        count = chooser.integer(1, min(2, len(jobs)))
        given["after"] = tuple(After(chooser.pick(jobs), chooser.pick(AFTER)) for _ in range(count))
    return given
