"""`due`: the facts that time alone makes true. The loop asks at every turn, before it decides."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from msgspec.structs import replace

from tidegate.core.asks import asks, next_ask
from tidegate.core.blame import tried
from tidegate.core.reserve import moves
from tidegate.core.tides import next_turn, turned_by_time
from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS, FOREVER_MS, index_of, job_of
from tidegate.model.jobs import Outcome
from tidegate.model.nodes import NodeState
from tidegate.policy.admission import lasting
from tidegate.policy.estimate import raised_end
from tidegate.world.arrays import holds
from tidegate.world.records import Reservation
from tidegate.world.world import World


def due(world: World, now: int) -> tuple[ev.Event, ...]:
    events: list[ev.Event] = []
    for pool in world.pools.values():
        if pool.end_times and pool.end_times[0] <= now:
            for end in pool.end_times[: bisect_right(pool.end_times, now)]:
                for run in pool.runs_at[end].values():
                    job = world.jobs[run.task >> ARRAY_BITS]
                    later = raised_end(world.policy.estimate, job, run, world.pauses.get(run.task), now)
                    events.append(ev.EstimateRaised(now, run.task, run.attempt, later))
    if world.ripe or world.emptying or (world.timers and world.timers[0][0] <= now):
        _conditions(world, now, events)
        _drained(world, now, events)
        if world.reservations:
            events.extend(moves(world, now))
    if world.reservations:
        events.extend(_reservations_over(world, now))
    if world.asks and world.asks[0][0] <= now:
        events.extend(asks(world, now))
    if world.looks:
        events.extend(ev.LookedAgain(now, pool) for pool, at in sorted(world.looks.items()) if at <= now)
    if world.suspects:
        wanted = [name for name, suspect in world.suspects.items() if not suspect.tried and suspect.until <= now]
        events.extend(tried(world, name, now) for name in sorted(wanted))
    if world.excesses:
        over = [queue for queue, excess in world.excesses.items() if excess.until <= now]
        events.extend(ev.ExcessOver(now, queue) for queue in sorted(over))
    if world.gauges:
        events.extend(turned_by_time(world, now))
    return tuple(events)


def _reservations_over(world: World, now: int) -> Iterator[ev.Event]:
    for name in sorted(world.reservations):
        known = world.reservations[name]
        if known.spec.end_ms <= now:
            yield ev.ReservationOver(now, name, "its time is over")
        elif _given_back_at(world, known) <= now:
            unused = lasting(world.policy.reservations.unused_grace_ms)
            yield ev.ReservationOver(now, name, f"nothing ran in it for {unused}, so it is given back")


def _given_back_at(world: World, known: Reservation) -> int:
    grace_ms = world.policy.reservations.unused_grace_ms
    return FOREVER_MS if known.runs or not grace_ms or known.spec.is_maintenance else known.idle_ms + grace_ms


def _conditions(world: World, now: int, events: list[ev.Event]) -> None:
    timed = [task for _, task in world.timers[: bisect_left(world.timers, (now + 1, 0))]]
    events.append(ev.TimePassed(now))
    dropped: set[int] = set()
    for job_id in dict.fromkeys((*world.ripe, *map(job_of, timed))):
        job = world.jobs.get(job_id)
        if job is None:
            continue
        parked = world.parked.get(job_id)
        if parked is not None and parked.failed:
            events.append(ev.JobDropped(now, job_id, Outcome.DEPENDENCY_FAILED, "a job it depends on ended otherwise"))
            dropped.add(job_id)
        elif now + job.estimate_ms > job.spec.deadline_ms and _waits(world, job_id):
            events.append(ev.JobDropped(now, job_id, Outcome.MISSED_DEADLINE, "it could no longer end in time"))
            dropped.add(job_id)
        elif parked is not None and not parked.held and not parked.after and parked.begin_ms <= now:
            events.append(ev.JobReady(now, job_id))
    rested = [task for task in dict.fromkeys(timed) if job_of(task) not in dropped and _has_rested(world, task, now)]
    events.extend(ev.TaskRested(now, task) for task in rested)


def _has_rested(world: World, task: int, now: int) -> bool:
    state = world.arrays.get(job_of(task))
    return state is not None and holds(state.resting, index_of(task)) and world.tries[task].until <= now


def _drained(world: World, now: int, events: list[ev.Event]) -> None:
    """A draining node that nothing runs on any more is drained."""
    for name in world.emptying:
        node = world.nodes[name]
        if node.state is NodeState.DRAINING and not world.runs_on(name):
            events.append(ev.NodeChanged(now, replace(node, state=NodeState.DRAINED)))


def _waits(world: World, job_id: int) -> bool:
    array = world.jobs[job_id].spec.array
    if array is None:
        return job_id << ARRAY_BITS not in world.runs
    return world.arrays[job_id].waiting(len(array.indices)) > 0


def next_due(world: World) -> int | None:
    """When `due` will next have something to say, if nothing else happens."""
    soonest = world.timers[0][0] if world.timers else None
    if world.asks:
        ask_at = next_ask(world)
        soonest = ask_at if soonest is None else min(soonest, ask_at)
    if world.looks:
        look_at = min(world.looks.values())
        soonest = look_at if soonest is None else min(soonest, look_at)
    for pool in world.pools.values():
        ends = pool.end_times
        if ends and (soonest is None or ends[0] < soonest):
            soonest = ends[0]
    if world.suspects:
        for suspect in world.suspects.values():
            if not suspect.tried and (soonest is None or suspect.until < soonest):
                soonest = suspect.until
    for known in world.reservations.values():
        over = min(known.spec.end_ms, _given_back_at(world, known))
        if soonest is None or over < soonest:
            soonest = over
    for excess in world.excesses.values():
        if soonest is None or excess.until < soonest:
            soonest = excess.until
    if world.gauges:
        turn_at = next_turn(world)
        if turn_at is not None and (soonest is None or turn_at < soonest):
            soonest = turn_at
    return soonest
