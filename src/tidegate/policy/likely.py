"""Likely: how long a waiting job will probably run. It orders jobs, and says who is likely to be done in time.

Every run time that says something about the job has a vote: its limit, the last two runs of its user, the last two of
as many chunks, and the last two that asked for the same time, too. A vote is a number of doublings and their mean is
what counts, so a run that failed within seconds weighs as much as one of days. Weights are those of
docs/decisions/0014.
"""

from tidegate.model.jobs import Job
from tidegate.model.policy import Order
from tidegate.world.lanes import Lane
from tidegate.world.records import NONE_ALIKE
from tidegate.world.world import World

STEP_BITS = 6
"""A doubling is counted in so many bits: finer would be false precision."""
MORE_BITS = 20
LIMIT_VOTES, USER_VOTES, KIN_VOTES, ALIKE_VOTES = 2, 1, 4, 8


def deferral(world: World, order: Order, lane: Lane, job: Job) -> int:
    """How much later the job counts as submitted: by no more than its limit alone would say.

    The first of a lane where none alike runs is a scout: what it shows, all behind it tell apart by. So it is put ahead
    by a doubling for every doubling of those who wait for it.
    """
    steps = likely(world, order, lane, job)
    waiting = len(lane.jobs)
    if 0 < order.scout_from <= waiting and job is lane.jobs[0]:
        alike = world.alike.get(lane.alike)
        if alike is None or not alike.running:
            steps -= doublings(waiting - 1, 1)
    return order.per_doubling_ms * steps >> STEP_BITS


def likely_ms(world: World, order: Order, lane: Lane, job: Job) -> int:
    limit, short = lane.estimate_ms, order.short_ms
    steps = likely(world, order, lane, job)
    return limit if steps >= doublings(limit, short) else min(limit, max(short, span(steps, short)))


def likely(world: World, order: Order, lane: Lane, job: Job) -> int:
    """In steps of doublings beyond `short`."""
    limit, short = lane.estimate_ms, order.short_ms
    votes, total = LIMIT_VOTES, LIMIT_VOTES * doublings(limit, short)
    if not job.compared:
        return total // votes
    alike = world.alike
    for runs, weight in (
        (alike.get(lane.alike, NONE_ALIKE).last, ALIKE_VOTES),
        (alike.get(lane.kin, NONE_ALIKE).last, KIN_VOTES),
        (world.last_runs.get(job.spec.user, NONE_ALIKE.last), USER_VOTES),
    ):
        for run_ms in runs.after():
            votes += weight
            total += weight * doublings(min(run_ms, limit), short)
    return total // votes


def doublings(run: int, short: int) -> int:
    """log2(1 + run / short), in steps: straight between whole doublings, rounded down."""
    times = (short + run << MORE_BITS) // short
    whole = times.bit_length() - 1 - MORE_BITS
    return (whole << STEP_BITS) + ((times >> whole) - (1 << MORE_BITS) >> MORE_BITS - STEP_BITS)


def span(steps: int, short: int) -> int:
    """The other way round: the run of so many doublings."""
    part = (1 << STEP_BITS) + (steps & (1 << STEP_BITS) - 1)
    return (short * part << (steps >> STEP_BITS) >> STEP_BITS) - short
