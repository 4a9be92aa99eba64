"""Gauges: what is measured of the demand in each pool, and how its tide stands. Only where the policy has a `tide`.

Two counters of arrivals lose half of themselves, one every window and one every baseline: how many come lately, and how
many usually do. What is far above the usual teaches the usual little, or a burst would hide the next one; a level that
stays becomes the usual, doubling every baseline at most.
"""

from tidegate.model.events import TideTurned
from tidegate.model.jobs import Job
from tidegate.model.policy import Tide, Tides
from tidegate.world.decay import ONE, halved
from tidegate.world.records import Gauge, Turn
from tidegate.world.world import World

ARRIVAL_BITS = 20
TURNS_KEPT = 8
LEARNT_FACTOR = 2
"""Arrivals beyond so many times the usual do not count as usual."""


def watch_pools(world: World, at: int) -> None:
    """Every pool has a gauge, from when it is there."""
    for name in world.pools if world.policy.tide is not None else ():
        if name not in world.gauges:
            world.gauges[name] = Gauge(Tide.CALM, at, at, at)
            world.digest.gauges.touched.add(name)


def watch_anew(world: World, before: Tides | None, at: int) -> None:
    """The policy has changed. What was measured stays, unless it was measured otherwise."""
    tide = world.policy.tide
    if tide is None or before is None or (tide.window_ms, tide.baseline_ms) != (before.window_ms, before.baseline_ms):
        for name in world.gauges:
            world.digest.gauges.gone(name)
        world.gauges = {}
    watch_pools(world, at)
    sway(world)


def sway(world: World) -> None:
    """Which policy holds where follows from the tides."""
    world.swayed = {
        name: world.in_tides[gauge.state] for name, gauge in world.gauges.items() if gauge.state in world.in_tides
    }


def tide_turned(world: World, event: TideTurned) -> None:
    gauge = world.gauges[event.pool]
    turn = Turn(event.at, event.before, event.after, event.why)
    world.gauges[event.pool] = Gauge(
        event.after, event.at, gauge.began, gauge.at, gauge.recent, gauge.usual, gauge.started, gauge.waited,
        (*gauge.turns, turn)[-TURNS_KEPT:],
    )  # fmt: skip
    world.digest.gauges.touched.add(event.pool)
    if world.in_tides:
        sway(world)
        pool = world.pools[event.pool]
        pool.freed = None  # all that waits is looked at under what holds now
        world.stirred[pool.name] = pool


def arrived(world: World, job: Job, at: int) -> None:
    tide, gauge = world.policy.tide, world.gauges[job.pool]
    assert tide is not None
    array = job.spec.array
    came = (1 if array is None else len(array.indices)) << ARRIVAL_BITS
    gauge = _moved(gauge, tide, at)
    recent = gauge.recent + came
    learnt = came
    most = LEARNT_FACTOR * (tide.arrivals_min << ARRIVAL_BITS) // max(1, tide.arrivals)
    if recent > most and is_known(tide, gauge, at):  # rarely: the rest costs more
        most = max(most, LEARNT_FACTOR * usual_lately(tide, gauge, gauge.usual, at))
        if recent > most:
            learnt = came * most // recent
    _keep(world, job.pool, gauge, recent, gauge.usual + learnt, gauge.started, gauge.waited)


def note_start(world: World, job: Job, at: int) -> None:
    """A task that never ran before has started."""
    tide, gauge = world.policy.tide, world.gauges[job.pool]
    assert tide is not None
    if tide.wait_ms:
        gauge = _moved(gauge, tide, at)
        waited = at - max(job.submit_ms, job.spec.begin_ms)
        _keep(world, job.pool, gauge, gauge.recent, gauge.usual,
              gauge.started + (1 << ARRIVAL_BITS), gauge.waited + (waited << ARRIVAL_BITS))  # fmt: skip


def _keep(world: World, pool: str, gauge: Gauge, recent: int, usual: int, started: int, waited: int) -> None:
    world.gauges[pool] = Gauge(
        gauge.state, gauge.since, gauge.began, gauge.at, recent, usual, started, waited, gauge.turns
    )
    world.digest.gauges.touched.add(pool)


def _moved(gauge: Gauge, tide: Tides, at: int) -> Gauge:
    """What is left of it by then."""
    passed = at - gauge.at
    if passed <= 0:
        return gauge
    started, waited = gauge.started, gauge.waited
    if started:
        started, waited = halved(started, passed, tide.window_ms), halved(waited, passed, tide.window_ms)
    return Gauge(
        gauge.state, gauge.since, gauge.began, at, halved(gauge.recent, passed, tide.window_ms),
        halved(gauge.usual, passed, tide.baseline_ms), started, waited, gauge.turns,
    )  # fmt: skip


def is_known(tide: Tides, gauge: Gauge, at: int) -> bool:
    """Has enough been seen to say what is usual?"""
    return at - gauge.began >= tide.baseline_ms // 4


def usual_lately(tide: Tides, gauge: Gauge, usual: int, at: int) -> int:
    """What the count of the window would be if as many came as usual. `usual`: as of `at`.

    A decayed count of so many a millisecond is that times the half-life, as far as it has been filled.
    """
    elapsed = at - gauge.began
    if elapsed <= 0:
        return 0
    filled = ONE - halved(ONE, elapsed, tide.window_ms)
    filled_by_baseline = ONE - halved(ONE, elapsed, tide.baseline_ms)
    if not filled_by_baseline:
        return 0
    return usual * tide.window_ms * filled // (tide.baseline_ms * filled_by_baseline)
