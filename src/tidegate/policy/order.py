"""Order: who goes first. A rank is an integer; smaller goes first, ties by submit time and job id."""

from typing import assert_never

from tidegate.model.jobs import Job, JobSpec
from tidegate.model.policy import Order, OrderBy, PolicySpec
from tidegate.policy import SHARE_BITS
from tidegate.policy.estimate import remaining
from tidegate.policy.likely import deferral
from tidegate.world.lanes import Lane
from tidegate.world.pool import Pool
from tidegate.world.world import World

RUNG = 1 << 58
"""From one rung to the next. Within one no other order comes so far: less than 300 years, or 3 with all of a pool."""
AGED = -(1 << 62)
"""The rank of a job past the ageing bound: before all others, first come first served."""
OVERDUE = AGED + 1
"""The same of one that sinks: next, and without a promise of its own, for it may take what others hold."""


def rank(world: World, policy: PolicySpec, pool: Pool, lane: Lane, job: Job, now: int) -> int:
    return rank_within(world, policy, ageing_bound(policy, lane), pool, lane, job, now)


def rank_within(world: World, policy: PolicySpec, bound: int, pool: Pool, lane: Lane, job: Job, now: int) -> int:
    """With the ageing bound of the lane at hand."""
    if bound and now - (lane.since or job.submit_ms) >= bound:
        return rank_when_aged(lane)
    by = policy.order.by
    if by is OrderBy.FEEDBACK:
        within = _rank_by(policy.order.then, world, policy, pool, lane, job, now)
        return lane.rung * RUNG + min(max(within, -RUNG // 2), RUNG // 2 - 1)
    return _rank_by(by, world, policy, pool, lane, job, now)


def is_aged(rank: int) -> bool:
    return AGED <= rank <= OVERDUE


def rank_when_aged(lane: Lane) -> int:
    return OVERDUE if lane.sinks else AGED


def _rank_by(by: OrderBy, world: World, policy: PolicySpec, pool: Pool, lane: Lane, job: Job, now: int) -> int:
    order = policy.order
    match by:
        case OrderBy.FCFS:
            return 0
        case OrderBy.SHORTEST:
            return lane.estimate_ms
        case OrderBy.SMALLEST_AREA:
            return lane.estimate_ms * dominant_share(pool, lane)
        case OrderBy.EXPANSION:
            waited = now - job.submit_ms
            return -((waited + lane.estimate_ms << SHARE_BITS) // lane.estimate_ms)
        case OrderBy.DEFERRED:
            ahead = order.wide_ms * dominant_share(pool, lane) >> SHARE_BITS if order.wide_ms else 0
            return job.submit_ms + deferral(world, order, lane, job) - ahead
        case OrderBy.PRIORITY:
            known = policy.classes.get(lane.klass)
            return job.submit_ms - (known.head_start_ms if known else 0)
        case OrderBy.SHORTEST_REMAINING:
            return remaining(policy.estimate, lane.estimate_ms, lane.kept_ms)
        case OrderBy.FEEDBACK:
            return 0
        case _:
            assert_never(by)


def ageing_bound(policy: PolicySpec, lane: Lane) -> int:
    """0: its jobs do not age."""
    if lane.sinks:
        return policy.feedback.ageing_bound_ms
    classes = policy.classes
    known = classes.get(lane.klass) if classes else None
    return (known.ageing_bound_ms if known is not None else 0) or policy.order.ageing_bound_ms


def moves_with_time(policy: PolicySpec) -> bool:
    """Do ranks change against each other while nothing happens? (Ageing is treated apart.)"""
    order = policy.order
    return OrderBy.EXPANSION in ((order.by, order.then) if order.by is OrderBy.FEEDBACK else (order.by,))


def defers(order: Order) -> bool:
    return OrderBy.DEFERRED in ((order.then,) if order.by is OrderBy.FEEDBACK else (order.by,))


def compares(world: World, spec: JobSpec) -> bool:
    """Does the rank of the job depend, in some tide, on how long others of its user ran?"""
    return bool(spec.user) and any(defers(policy.order) for policy in (world.policy, *world.in_tides.values()))


def dominant_share(pool: Pool, lane: Lane) -> int:
    """The largest share of the pool, over its resources, that one job of the lane takes."""
    return max(
        (amount * lane.shape.count << SHARE_BITS) // max(1, pool.capacity[column]) for column, amount in lane.need
    )
