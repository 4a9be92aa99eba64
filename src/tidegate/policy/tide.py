"""Tide: is the demand in a pool a burst? Signals with a high and a low mark, and times that a state lasts at least.

One signal above its mark lets the tide rise; all of them down to a part of their marks lets it ebb. In between nothing
turns, so a signal that hovers about its mark cannot make the policy flutter.
"""

from typing import NamedTuple, assert_never

from tidegate.model.events import Seen
from tidegate.model.policy import Tide, Tides
from tidegate.world.decay import halved
from tidegate.world.gauges import ARRIVAL_BITS, is_known, usual_lately
from tidegate.world.pool import Pool
from tidegate.world.records import Gauge
from tidegate.world.world import World

STEPS_A_WINDOW = 4
MILLI = 1000
UNBOUNDED = 1 << 62


class TurnTo(NamedTuple):
    state: Tide
    why: str


class Flow(NamedTuple):
    """Arrivals and waits of one pool at one time, with the marks they are held against; ARRIVAL_BITS bits."""

    lately: int
    usual: int
    most: int  # arrivals above this are a burst; they are not looked at: none is
    wait_ms: int


def turn_of(world: World, pool: Pool, now: int) -> TurnTo | None:
    """Where the tide of the pool turns now; None: it stays."""
    tide, gauge = world.policy.tide, world.gauges[pool.name]
    assert tide is not None
    match gauge.state:
        case Tide.CALM:
            why = _high(world, pool, tide, gauge, now)
            return TurnTo(Tide.RISING, why) if why else None
        case Tide.RISING:
            if now < gauge.since + tide.hold_ms:
                return None
            if _is_low(world, pool, tide, gauge, now):
                return TurnTo(Tide.CALM, "it did not hold")
            return TurnTo(Tide.SURGE, _high(world, pool, tide, gauge, now) or "it holds")
        case Tide.SURGE:
            over = now >= gauge.since + tide.hold_ms and _is_low(world, pool, tide, gauge, now)
            return TurnTo(Tide.EBBING, "no more than usual waits and comes") if over else None
        case Tide.EBBING:
            why = _high(world, pool, tide, gauge, now)
            if why:
                return TurnTo(Tide.SURGE, why)
            over = now >= gauge.since + tide.ebb_ms and _is_low(world, pool, tide, gauge, now)
            return TurnTo(Tide.CALM, "it stayed so") if over else None
        case _:
            assert_never(gauge.state)


def turns_at(world: World, pool: Pool) -> int | None:
    """When the tide of the pool turns if nothing else happens; None: it stays."""
    tide, gauge = world.policy.tide, world.gauges[pool.name]
    assert tide is not None
    if gauge.state is Tide.CALM:
        return None
    if gauge.state is Tide.RISING:
        return gauge.since + tide.hold_ms
    if not _is_shallow(world, pool, tide):
        return None
    at = max(gauge.at, gauge.since + (tide.hold_ms if gauge.state is Tide.SURGE else tide.ebb_ms))
    while not _is_slow(tide, gauge, at):  # what decays is low some day
        at += max(1, tide.window_ms // STEPS_A_WINDOW)
    return at


def lasts_until(world: World, gauge: Gauge) -> int:
    """The state of the tide is the same until then at least, unless it rises from ebbing."""
    tide = world.policy.tide
    assert tide is not None
    match gauge.state:
        case Tide.CALM:
            return gauge.since
        case Tide.RISING | Tide.SURGE:
            return gauge.since + tide.hold_ms
        case Tide.EBBING:
            return gauge.since + tide.ebb_ms
        case _:
            assert_never(gauge.state)


def seen(world: World, pool: Pool, now: int) -> Seen:
    tide, gauge = world.policy.tide, world.gauges[pool.name]
    assert tide is not None
    flow = _flow(tide, gauge, now)
    return Seen(
        waiting_tasks(world, pool, UNBOUNDED), flow.lately >> ARRIVAL_BITS, flow.usual * MILLI >> ARRIVAL_BITS,
        flow.wait_ms, utilization_percent(pool),
    )  # fmt: skip


# -- the marks ---------------------------------------------------------------------------------------------


def _high(world: World, pool: Pool, tide: Tides, gauge: Gauge, now: int) -> str:
    """What is above its mark, in words; '': nothing."""
    if (
        tide.depth
        and waiting_tasks(world, pool, tide.depth + 1) > tide.depth
        and (not tide.utilization_percent or utilization_percent(pool) >= tide.utilization_percent)
    ):
        return f"{waiting_tasks(world, pool, UNBOUNDED)} tasks wait, more than {tide.depth}"
    if not tide.wait_ms and gauge.recent <= tide.arrivals_min << ARRIVAL_BITS:
        return ""  # it only decays: no need to look
    flow = _flow(tide, gauge, now)
    if tide.arrivals and flow.lately > flow.most:
        usual = flow.usual * MILLI >> ARRIVAL_BITS
        return (
            f"{flow.lately >> ARRIVAL_BITS} tasks came lately and {usual // MILLI}.{usual % MILLI // 100} usually do: "
            f"more than {tide.arrivals} times as many"
        )
    if tide.wait_ms and flow.wait_ms > tide.wait_ms:
        return f"those that started lately had waited {flow.wait_ms // MILLI} s, more than {tide.wait_ms // MILLI} s"
    return ""


def _is_low(world: World, pool: Pool, tide: Tides, gauge: Gauge, now: int) -> bool:
    return _is_shallow(world, pool, tide) and _is_slow(tide, gauge, now)


def _is_shallow(world: World, pool: Pool, tide: Tides) -> bool:
    if not tide.depth:
        return True
    most = tide.depth * tide.ebb_percent // 100
    return waiting_tasks(world, pool, most + 1) <= most


def _is_slow(tide: Tides, gauge: Gauge, at: int) -> bool:
    if not tide.wait_ms and gauge.recent * 100 <= (tide.arrivals_min << ARRIVAL_BITS) * tide.ebb_percent:
        return True  # it only decays: no need to look
    flow = _flow(tide, gauge, at)
    if tide.arrivals and flow.lately * 100 > flow.most * tide.ebb_percent:
        return False
    return not tide.wait_ms or flow.wait_ms * 100 <= tide.wait_ms * tide.ebb_percent


# -- what is measured --------------------------------------------------------------------------------------


def _flow(tide: Tides, gauge: Gauge, now: int) -> Flow:
    passed = max(0, now - gauge.at)
    started = halved(gauge.started, passed, tide.window_ms) if passed else gauge.started
    waited = halved(gauge.waited, passed, tide.window_ms) if passed else gauge.waited
    wait_ms = waited // started if started >> ARRIVAL_BITS - 1 else 0  # less than half a start says nothing
    if not tide.arrivals:
        return Flow(0, 0, 0, wait_ms)
    lately = halved(gauge.recent, passed, tide.window_ms) if passed else gauge.recent
    usual = halved(gauge.usual, passed, tide.baseline_ms) if passed else gauge.usual
    usual = usual_lately(tide, gauge, usual, now)
    if not is_known(tide, gauge, now):
        return Flow(0, usual, 0, wait_ms)
    return Flow(lately, usual, max(tide.arrivals_min << ARRIVAL_BITS, tide.arrivals * usual), wait_ms)


def waiting_tasks(world: World, pool: Pool, enough: int) -> int:
    """How many tasks wait for nothing but room or their turn; no further than to `enough`."""
    arrays, found = world.arrays, 0
    for lane in pool.lanes.values():
        if arrays:
            for job in lane.jobs:
                array = job.spec.array
                found += 1 if array is None else arrays[job.id].available(len(array.indices), array.at_once_max)
                if found >= enough:
                    return found
        else:
            found += len(lane.jobs)
        if found >= enough:
            break
    return found


def utilization_percent(pool: Pool) -> int:
    """Of the resource that is used most, on nodes that take work."""
    most, closed = 0, sorted(pool.closed)
    for column, capacity in enumerate(pool.capacity):
        free = int(pool.free[column].sum()) - sum([int(pool.free[column, row]) for row in closed])
        whole = capacity - sum([int(pool.total[column, row]) for row in closed])
        if whole > 0:
            most = max(most, 100 * (whole - free) // whole)
    return most
