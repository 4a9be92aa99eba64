"""Feedback: who has sunk so far that another may take its room, and when the next will have (docs/decisions/0018).

Rungs are constant at one instant, and whoever was interrupted is no higher than before. So a job that takes room from
lower rungs cannot have it taken back by them.
"""

from typing import NamedTuple

from tidegate.model.jobs import Job
from tidegate.model.policy import OrderBy, PolicySpec
from tidegate.policy.order import ageing_bound
from tidegate.world.lanes import Lane
from tidegate.world.pauses import without_pauses
from tidegate.world.records import Run
from tidegate.world.rungs import rung_of, sinks_below_at, turn_until
from tidegate.world.world import World

HAS_AGED = "that job has waited past its bound"
HAS_SUNK = "this one has used so much more that it is on a lower rung"


class Claim(NamedTuple):
    """What a job in its turn may take by feedback."""

    rung: int
    is_aged: bool


def claim_of(world: World, lane: Lane, job: Job, task: int, now: int) -> Claim | None:
    policy = world.policy_in(job.pool)
    if policy.order.by is not OrderBy.FEEDBACK:
        return None
    tries = world.tries.get(task)
    bound = ageing_bound(policy, lane)
    is_aged = bound > 0 and now - (lane.since or job.submit_ms) >= bound
    return Claim(rung_of(policy, job, tries.ran_ms) if tries is not None and lane.sinks else 0, is_aged)


def may_take_at(world: World, claim: Claim, other: Job, run: Run, now: int) -> int | None:
    """From when on the room of a run; None: not before it is itself interrupted or ends."""
    policy, tries = world.policy, world.tries.get(run.task)
    turn = turn_until(policy, other, run, tries)
    run = without_pauses(world, run, now)
    if claim.is_aged:
        return turn
    below = sinks_below_at(policy, other, run, tries, claim.rung)
    return None if below is None else max(turn, below)


def ages_at(policy: PolicySpec, by_age: list[tuple[int, int, Lane]]) -> int | None:
    """When the next of those who wait may take what they may not yet. `by_age`: sorted."""
    return by_age[0][0] if by_age and policy.order.by is OrderBy.FEEDBACK else None
