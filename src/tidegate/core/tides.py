"""Tides: where the demand in a pool has become a burst, or is none any more."""

from collections.abc import Iterable, Sequence

from tidegate.model.events import TideTurned
from tidegate.policy.tide import seen, turn_of, turns_at
from tidegate.world.pool import Pool
from tidegate.world.world import World


def turned(world: World, pools: Sequence[str], now: int) -> list[TideTurned]:
    """In the pools that a cycle has looked at."""
    return _turned(world, ((world.pools[name], now) for name in pools), now)


def turned_by_time(world: World, now: int) -> list[TideTurned]:
    found = ((world.pools[name], turns_at(world, world.pools[name])) for name in sorted(world.gauges))
    return _turned(world, ((pool, at) for pool, at in found if at is not None and at <= now), now)


def next_turn(world: World) -> int | None:
    """When a tide turns if nothing else happens."""
    times = [at for at in (turns_at(world, world.pools[name]) for name in world.gauges) if at is not None]
    return min(times, default=None)


def _turned(world: World, pools: Iterable[tuple[Pool, int]], now: int) -> list[TideTurned]:
    """Each judged as of its own time: what was due a moment ago is due."""
    events = []
    for pool, at in pools:
        to = turn_of(world, pool, at)
        if to is not None:
            before = world.gauges[pool.name].state
            events.append(TideTurned(now, pool.name, before, to.state, to.why, seen(world, pool, at)))
    return events
