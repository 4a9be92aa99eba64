"""Order: who goes first. A rank is an integer; smaller goes first, ties by submit time and job id."""

from typing import assert_never

from tidegate.model.jobs import Job, JobSpec
from tidegate.model.policy import OrderBy, PolicySpec
from tidegate.policy import SHARE_BITS
from tidegate.policy.likely import deferral
from tidegate.world.lanes import Lane
from tidegate.world.pool import Pool
from tidegate.world.world import World

AGED = -(1 << 62)
"""The rank of a job past the ageing bound: before all others, first come first served."""


def rank(world: World, pool: Pool, lane: Lane, job: Job, now: int) -> int:
    return rank_within(world, ageing_bound(world.policy, lane), pool, lane, job, now)


def rank_within(world: World, bound: int, pool: Pool, lane: Lane, job: Job, now: int) -> int:
    """With the ageing bound of the lane at hand."""
    policy, order = world.policy, world.policy.order
    if bound and now - job.submit_ms >= bound:
        return AGED
    match order.by:
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
        case _:
            assert_never(order.by)


def ageing_bound(policy: PolicySpec, lane: Lane) -> int:
    """0: its jobs do not age."""
    classes = policy.classes
    known = classes.get(lane.klass) if classes else None
    return (known.ageing_bound_ms if known is not None else 0) or policy.order.ageing_bound_ms


def moves_with_time(policy: PolicySpec) -> bool:
    """Do ranks change against each other while nothing happens? (Ageing is treated apart.)"""
    return policy.order.by is OrderBy.EXPANSION


def compares(policy: PolicySpec, spec: JobSpec) -> bool:
    """Does the rank of the job depend on how long others of its user ran?"""
    return policy.order.by is OrderBy.DEFERRED and bool(spec.user)


def dominant_share(pool: Pool, lane: Lane) -> int:
    """The largest share of the pool, over its resources, that one job of the lane takes."""
    return max(
        (amount * lane.shape.count << SHARE_BITS) // max(1, pool.capacity[column]) for column, amount in lane.need
    )
