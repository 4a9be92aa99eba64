"""Asks: which running jobs are to save themselves now. Spread, so that a shared file system is never stormed."""

from bisect import bisect_left

from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS
from tidegate.world.saves import ask_every, writes_for
from tidegate.world.world import World


def next_ask(world: World) -> int:
    """When somebody may be asked next; there is somebody to be."""
    first = max(world.asks[0][0], world.writes_until)
    most = world.policy.checkpoints.at_once_max
    if most:
        given_up = _given_up_at(world)
        if len(given_up) >= most:
            first = max(first, given_up[len(given_up) - most])
    return first


def asks(world: World, now: int) -> list[ev.Event]:
    """Those whose turn it is, in order, as far as all may write at once."""
    policy = world.policy
    most = policy.checkpoints.at_once_max
    busy = sum(at > now for at in _given_up_at(world)) if most else 0
    writes_until = world.writes_until
    events: list[ev.Event] = []
    for _, task in world.asks[: bisect_left(world.asks, (now + 1, 0))]:
        if writes_until > now or (most and busy >= most):
            break
        job, save = world.jobs[task >> ARRAY_BITS], world.saves[task]
        every = ask_every(policy, job)  # 0: the policy has changed since, and this is the last time
        events.append(ev.CheckpointAsked(now, task, save.attempt, save.number + 1, now + every if every else 0))
        writes_until = now + writes_for(policy, job)
        busy += 1
    return events


def _given_up_at(world: World) -> list[int]:
    """When each ask that is not answered is given up, in order."""
    answer_max_ms = world.policy.checkpoints.answer_max_ms
    return sorted(save.asked_ms + answer_max_ms for save in world.saves.values() if save.is_open)
