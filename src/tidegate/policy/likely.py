"""Likely: how long a waiting job will probably run, as a delay, so that what is short goes first.

Every run time that says something about the job has a vote: its limit, the last two runs of its user, and, most of
all, the last two runs that were alike. A vote is a number of doublings and their mean is what counts, so a run that
failed within seconds weighs as much as one of days. Weights are those of docs/decisions/0014.
"""

from tidegate.model.jobs import Job
from tidegate.model.policy import Order
from tidegate.world.lanes import Lane
from tidegate.world.records import NONE_ALIKE
from tidegate.world.world import World

STEPS = 16
"""A doubling is counted in so many steps: finer would be false precision."""

LIMIT_VOTES, USER_VOTES, ALIKE_VOTES = 2, 1, 8


def deferral(world: World, order: Order, lane: Lane, job: Job) -> int:
    """How much later the job counts as submitted: by no more than its limit alone would say, and a scout not at all."""
    alike = world.alike.get(lane.alike, NONE_ALIKE)
    if not alike.running and 0 < order.scout_from <= len(lane.jobs) and job is lane.jobs[0]:
        return 0
    limit, short = lane.estimate_ms, order.short_ms
    votes, total = LIMIT_VOTES, LIMIT_VOTES * doublings(limit, short)
    for run_ms in alike.last.after():
        votes += ALIKE_VOTES
        total += ALIKE_VOTES * doublings(min(run_ms, limit), short)
    known = world.last_runs.get(lane.user)
    for run_ms in known.after() if known is not None else ():
        votes += USER_VOTES
        total += USER_VOTES * doublings(min(run_ms, limit), short)
    return order.per_doubling_ms * total // (STEPS * votes)


def doublings(run_ms: int, short_ms: int) -> int:
    """log2(1 + run / short), in steps, rounded down."""
    return ((short_ms + run_ms) ** 16 // short_ms**16).bit_length() - 1
