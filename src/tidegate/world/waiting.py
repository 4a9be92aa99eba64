"""Where a job waits: parked, in its lane, or with all its array throttled. And where a run holds on to its nodes."""

from bisect import insort
from collections import deque

from tidegate.model.base import ARRAY_BITS, FOREVER_MS, index_of
from tidegate.model.events import Promise
from tidegate.model.jobs import Job
from tidegate.model.nodes import NodeState
from tidegate.world import arrays
from tidegate.world.accounts import charge
from tidegate.world.holds import count_run
from tidegate.world.lanes import Lane, LaneKey, alike_key
from tidegate.world.pauses import pause_over
from tidegate.world.pool import Pool
from tidegate.world.records import NONE_ALIKE, AlikeRuns, ArrayState, Parked, Run
from tidegate.world.world import World


def can_start(world: World, job: Job) -> bool:
    """Has a task that waits and is not throttled: exactly then it stands in its lane, unless parked."""
    array = job.spec.array
    if array is None:
        return job.id << ARRAY_BITS not in world.runs
    return world.arrays[job.id].available(len(array.indices), array.at_once_max) > 0


def park(world: World, job: Job, parked: Parked) -> None:
    world.parked[job.id] = parked
    world.digest.parked.touched.add(job.id)
    for after in parked.after:
        world.dependents[after.job] = (*world.dependents.get(after.job, ()), job.id)
        world.digest.dependents.touched.add(after.job)
    if parked.begin_ms:
        insort(world.timers, (parked.begin_ms, job.id << ARRAY_BITS))


def watch_deadline(world: World, job: Job, now: int) -> None:
    """While it waits: from when on it could no longer end in time?"""
    if job.spec.deadline_ms < FOREVER_MS:
        insort(world.timers, (max(now, job.spec.deadline_ms - job.estimate_ms + 1), job.id << ARRAY_BITS))


def wait_again(world: World, job: Job, task: int, now: int, until: int) -> None:
    """A task that ran: in its old place, when it has rested."""
    watch_deadline(world, job, now)
    array = job.spec.array
    if array is None:
        if until > now:
            park(world, job, Parked((), False, False, until))
        else:
            enter_lane(world, job)
        return
    if until > now:
        insort(world.timers, (until, task))
    set_array(world, job, arrays.waits_again(world.arrays[job.id], index_of(task), rests=until > now))


# -- lanes -------------------------------------------------------------------------------------------------


def enter_lane(world: World, job: Job) -> None:
    pool = world.pools[job.pool]
    key = world.lane_key(job)
    lane = pool.lanes.get(key)
    if lane is None:
        _new_lane(world, pool, key, job)
    else:
        if lane.owner is not world.token:
            lane = _own(world, pool, lane)
        lane.insert(job)
        if job.compared or lane.jobs[0] is job:  # how many of its lane wait matters to a compared job
            pool.changed[lane.serial] = lane
    pool.grown = True
    world.stirred[pool.name] = pool


def _new_lane(world: World, pool: Pool, key: LaneKey, job: Job) -> None:
    shape = key[2]
    need = world.need_of(shape.chunk)
    assert need is not None, "accept refuses what no node ever had"
    serial = pool.lane_serial = pool.lane_serial + 1
    lane = pool.lanes[key] = Lane(serial, key, need, world.token, deque((job,)))
    if lane.user:
        pool.lanes_of.setdefault(lane.user, {})[key] = None
    pool.join(need, plain=lane.plain)
    pool.fresh[serial] = pool.changed[serial] = lane


def leave_lane(world: World, job: Job) -> None:
    """Without having been started: what was planned around it must be looked at again."""
    _leave(world, world.lane_key(job), job)


def _leave(world: World, key: LaneKey, job: Job) -> None:
    pool = world.pools[job.pool]
    take_off(world, pool, pool.lanes[key], job)
    pool.freed = None


def take_off(world: World, pool: Pool, lane: Lane, job: Job) -> None:
    if lane.owner is not world.token:
        lane = _own(world, pool, lane)
    lane.remove(job)
    pool.changed[lane.serial] = lane
    world.stirred[pool.name] = pool
    if not lane.jobs:
        del pool.lanes[lane.key]
        if lane.user:
            del pool.lanes_of[lane.user][lane.key]
            if not pool.lanes_of[lane.user]:
                del pool.lanes_of[lane.user]
        pool.part(lane.need, plain=lane.plain)
        pool.fresh.pop(lane.serial, None)


def regroup(world: World) -> None:
    """The policy has changed: queues may tell their users apart now, or jobs may sink, or no more."""
    for pool in world.pools.values():
        regroup_pool(world, pool)


def regroup_pool(world: World, pool: Pool) -> None:
    moved = [(key, job) for key, lane in pool.lanes.items() for job in lane.jobs if key != world.lane_key(job)]
    for key, job in moved:
        take_off(world, pool, pool.lanes[key], job)
    for _, job in moved:
        enter_lane(world, job)


def _own(world: World, pool: Pool, lane: Lane) -> Lane:
    """A copy to write to, after a fork."""
    mine = pool.lanes[lane.key] = pool.changed[lane.serial] = lane.copy_for(world.token)
    if lane.serial in pool.fresh:
        pool.fresh[lane.serial] = mine
    return mine


def set_array(world: World, job: Job, state: ArrayState) -> None:
    """An array stands in its lane exactly while one of its tasks may start."""
    could = can_start(world, job)
    key = world.lane_key(job) if could and world.has_standings else None
    world.arrays[job.id] = state
    world.digest.arrays.touched.add(job.id)
    if job.id in world.parked:
        return
    can = can_start(world, job)
    if could and not can:
        _leave(world, key or world.lane_key(job), job)
    elif can and not could:
        enter_lane(world, job)
    elif key is not None and key != world.lane_key(job):  # another task is next
        _leave(world, key, job)
        enter_lane(world, job)
    else:
        pool = world.pools[job.pool]
        pool.grown = True
        world.stirred[pool.name] = pool


# -- promises and runs -------------------------------------------------------------------------------------


def may_slip_from(world: World, task: int, start: int) -> tuple[int, int]:
    """The start that a promise to start then may slip from because others go ahead, and by how much.

    It is the best that was promised; where it became later for another reason by more than that, what it became.
    """
    allowed = world.jobs[task >> ARRAY_BITS].estimate_ms * world.policy.backfill.slip_percent // 100
    told = world.told.get(task, start)
    return (start if start > told + allowed else min(told, start)), allowed


def promise_made(world: World, promise: Promise) -> None:
    task = promise.task
    if world.policy.backfill.slip_percent:
        world.told[task] = may_slip_from(world, task, promise.start_by)[0]
        world.digest.told.touched.add(task)
    world.promises[task] = promise
    world.digest.promises.touched.add(task)
    world.pools[world.jobs[task >> ARRAY_BITS].pool].promised[task] = None


def promise_over(world: World, pool: Pool, task: int) -> None:
    if task in pool.promised:
        del pool.promised[task], world.promises[task]
        world.digest.promises.gone(task)
        if world.told and world.told.pop(task, None) is not None:
            world.digest.told.gone(task)


def end_promises(world: World, job: Job) -> None:
    pool = world.pools[job.pool]
    for task in [task for task in pool.promised if task >> ARRAY_BITS == job.id]:
        promise_over(world, pool, task)


def vacate(world: World, run: Run, at: int) -> None:
    pool = world.pools[run.pool]
    pool.vacate(run)
    if pool.reserved:
        count_run(world, run, -1, at)
    if world.has_queues:
        spec = world.jobs[run.task >> ARRAY_BITS].spec
        charge(world, spec.queue, spec.user, run.need, -sum(run.counts), at)
        for other in world.pools.values():  # a limit of its queues may have kept somebody waiting anywhere
            if other.lanes or other.suspended:
                world.stirred[other.name] = other
    if pool.closed:
        for row in run.rows:
            if pool.nodes[row].state is NodeState.DRAINING:
                world.emptying[pool.names[row]] = None
    if world.pauses:
        pause_over(world, run)
    if pool.lanes or pool.suspended:  # where nothing waits the room is looked at when something comes
        world.stirred[pool.name] = pool
    job = world.jobs[run.task >> ARRAY_BITS]
    if job.compared:
        count_alike(world, job, -1)
    world.launching.pop(run.task, None)
    world.digest.runs.gone(run.task)
    if world.halting.pop(run.task, None) is not None:
        world.digest.halting.gone(run.task)


def count_alike(world: World, job: Job, change: int) -> None:
    """A compared run came or went."""
    key = alike_key(job)
    alike = world.alike.get(key, NONE_ALIKE)
    # Sorts of jobs are forgotten after very many others, and a run of one may still be on its way.
    world.alike[key] = AlikeRuns(max(0, alike.running + change), alike.last)
    world.digest.alike.touched.add(key)
    rank_anew(world, job, ended=change < 0)


def rank_anew(world: World, job: Job, *, ended: bool = False) -> None:
    """More is known of its user, so compared jobs that wait may have another rank now, in whichever pool.

    A start matters to scouts only, so to what is alike. Where room came back all is looked at anyway; an end elsewhere
    says that it has to be.
    """
    alike = alike_key(job)
    for pool in world.pools.values():
        theirs = pool.lanes_of.get(job.spec.user)
        if theirs is not None:
            for lane in map(pool.lanes.__getitem__, theirs):
                if ended or lane.alike == alike:
                    pool.changed[lane.serial] = lane
            if ended and pool.name != job.pool:
                pool.freed = None
            world.stirred[pool.name] = pool
