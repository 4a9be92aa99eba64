"""`apply`: one event into the state. Live, recovery, replay and forecast all fold with it."""

from bisect import bisect_right, insort
from collections import deque
from itertools import islice
from typing import Any, assert_never

from msgspec.structs import replace

from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS, FOREVER_MS, index_of, job_of
from tidegate.model.jobs import After, AfterKind, Job, Outcome
from tidegate.model.nodes import NodeState
from tidegate.world.digest import Notes
from tidegate.world.lanes import Lane, LaneKey, lane_key
from tidegate.world.pool import FITTING_KEPT, Pool
from tidegate.world.records import NO_RUNS, ArrayState, HaltAsked, Parked, Run
from tidegate.world.world import KEYS_EXPIRE_MS, OUTCOMES_KEPT, USERS_KEPT, World


def apply(world: World, event: ev.Event) -> None:
    world.seq += 1
    match event:
        case ev.CycleRan():
            _cycle_ran(world, event)
        case ev.JobSubmitted():
            _job_submitted(world, event)
        case ev.JobStarted():
            _job_started(world, event)
        case ev.JobEnded():
            _job_ended(world, event)
        case ev.EstimateRaised():
            _estimate_raised(world, event)
        case ev.JobLaunched():
            world.launching.pop(event.task, None)
        case ev.JobReady() | ev.JobHeld() | ev.JobReleased():
            _conditions_changed(world, event)
        case ev.JobDropped():
            _job_dropped(world, event)
        case ev.TimePassed():
            del world.timers[: bisect_right(world.timers, (event.at, FOREVER_MS))]
            world.ripe.clear()
            world.emptying.clear()
        case ev.HaltRequested():
            world.halting[event.task] = HaltAsked(event.attempt, event.outcome, world.seq)
            world.ordered = world.seq
            world.digest.halting.touched.add(event.task)
        case ev.AttemptLost():
            _attempt_lost(world, event)
        case ev.NodeChanged():
            _node_changed(world, event)
        case ev.StraySeen():
            world.strays[event.task, event.attempt] = world.ordered = world.seq
            world.digest.strays.touched.add((event.task, event.attempt))
        case ev.StrayGone():
            world.strays.pop((event.task, event.attempt), None)
            world.digest.strays.gone((event.task, event.attempt))
        case ev.PolicyChanged():
            world.policy, world.policy_version = event.policy, event.version
            for pool in world.pools.values():
                pool.freed = None
                world.stirred[pool.name] = pool
        case _:
            assert_never(event)


def _cycle_ran(world: World, event: ev.CycleRan) -> None:
    world.cycle = event.number
    for promise in event.promised:
        world.promises[promise.task] = promise
        world.digest.promises.touched.add(promise.task)
        world.pools[world.jobs[promise.task >> ARRAY_BITS].pool].promised[promise.task] = None
    for task in event.withdrawn:
        _promise_over(world, world.pools[world.jobs[task >> ARRAY_BITS].pool], task)
    for pool in world.stirred.values():
        pool.settle()
        if event.cut:
            pool.freed = None
    if not event.cut:
        world.stirred.clear()


def _end_promises(world: World, job: Job) -> None:
    pool = world.pools[job.pool]
    for task in [task for task in pool.promised if job_of(task) == job.id]:
        _promise_over(world, pool, task)


def _promise_over(world: World, pool: Pool, task: int) -> None:
    if task in pool.promised:
        del pool.promised[task], world.promises[task]
        world.digest.promises.gone(task)


# -- jobs --------------------------------------------------------------------------------------------------


def _job_submitted(world: World, event: ev.JobSubmitted) -> None:
    job = event.job
    spec = job.spec
    world.jobs[job.id] = job
    world.digest.jobs.touched.add(job.id)
    if job.id >= world.next_job:
        world.next_job = job.id + 1
    if event.key:
        _remember_key(world, event)
    if spec.array is not None:
        world.arrays[job.id] = ArrayState(0, (), 0, 0, False)
        world.digest.arrays.touched.add(job.id)
    if spec.deadline_ms < FOREVER_MS:
        insort(world.timers, (spec.deadline_ms - job.estimate_ms + 1, job.id))
    if spec.after or spec.held or spec.begin_ms > event.at:
        _park(world, job, Parked(spec.after, False, spec.held, spec.begin_ms))
    else:
        enter_lane(world, job)


def _park(world: World, job: Job, parked: Parked) -> None:
    world.parked[job.id] = parked
    world.digest.parked.touched.add(job.id)
    for after in parked.after:
        world.dependents[after.job] = (*world.dependents.get(after.job, ()), job.id)
        world.digest.dependents.touched.add(after.job)
    if parked.begin_ms:
        insort(world.timers, (parked.begin_ms, job.id))


def _remember_key(world: World, event: ev.JobSubmitted) -> None:
    """Keys come in order of time, so the expired ones are the first."""
    notes = world.digest.keys
    for key in list(world.keys):
        if world.keys[key][1] > event.at:
            break
        del world.keys[key]
        notes.gone(key)
    world.keys[event.key] = (event.job.id, event.at + KEYS_EXPIRE_MS)
    notes.touched.add(event.key)


def _conditions_changed(world: World, event: ev.JobReady | ev.JobHeld | ev.JobReleased) -> None:
    job = world.jobs[event.job]
    world.digest.parked.touched.add(job.id)
    match event:
        case ev.JobReady():
            del world.parked[job.id]
            if _can_start(world, job):
                enter_lane(world, job)
        case ev.JobHeld():
            known = world.parked.get(job.id)
            if known is None:
                if _can_start(world, job):
                    leave_lane(world, job)
                known = Parked((), False, False, 0)
            world.parked[job.id] = Parked(known.after, known.failed, True, known.begin_ms)
            _end_promises(world, job)
        case ev.JobReleased():
            known = world.parked[job.id]
            world.parked[job.id] = Parked(known.after, known.failed, False, known.begin_ms)
            world.ripe[job.id] = None


def _can_start(world: World, job: Job) -> bool:
    """Has a task that waits and is not throttled: exactly then it stands in its lane, unless parked."""
    array = job.spec.array
    if array is None:
        return job.id << ARRAY_BITS not in world.runs
    return world.arrays[job.id].available(len(array.indices), array.at_once_max) > 0


def _job_started(world: World, event: ev.JobStarted) -> None:
    task = event.task
    job = world.jobs[task >> ARRAY_BITS]
    spec = job.spec
    pool = world.pools[job.pool]
    if len(event.nodes) == 1:
        name, count = event.nodes[0]
        rows: tuple[int, ...] = (pool.row_of[name],)
        counts: tuple[int, ...] = (count,)
    else:
        rows = tuple([pool.row_of[name] for name, _ in event.nodes])
        counts = tuple([count for _, count in event.nodes])
    key = lane_key(job)
    lane = pool.lanes[key]
    seq = world.seq
    run = Run(
        task, event.attempt, job.pool, event.at, event.expected_end, event.nodes, rows, counts,
        lane.need, lane.plain, seq,
    )  # fmt: skip
    world.runs[task] = run
    pool.occupy(run)
    world.launching[task] = world.ordered = world.seq
    digest = world.digest
    digest.runs.touched.add(task)
    if pool.promised:
        _promise_over(world, pool, task)
    if world.attempts.pop(task, None) is not None:
        digest.attempts.gone(task)
    if spec.array is None:
        _leave(world, pool, lane, job)
    else:
        state = world.arrays[job.id]
        index = index_of(task)
        returned, started = state.returned, state.started
        if index in returned:
            returned = tuple(i for i in returned if i != index)
        else:
            assert spec.array.indices[started] == index, "tasks of an array start in order"
            started += 1
        _set_array(world, job, ArrayState(started, returned, state.running + 1, state.ended, state.failed))


def _job_ended(world: World, event: ev.JobEnded) -> None:
    task = event.task
    job = world.jobs[task >> ARRAY_BITS]
    run = world.runs.pop(task, None)
    if run is None:
        assert job.spec.array is not None, "a single job that never started is dropped"
        pool = world.pools[job.pool]
        _promise_over(world, pool, task)
        pool.freed = None  # what was planned around it must be looked at again
        world.stirred[pool.name] = pool
        if world.attempts.pop(task, None) is not None:
            world.digest.attempts.gone(task)
    else:
        _vacate(world, run)
        _remember_run(world, job.spec.user, event.at, run)
    if job.spec.array is None:
        _job_gone(world, job, event.outcome)
        return
    state = world.arrays[job.id]
    failed = state.failed or event.outcome is not Outcome.COMPLETED
    returned, started, running = state.returned, state.started, state.running
    if run is not None:
        running -= 1
    elif (index := index_of(task)) in returned:
        returned = tuple(i for i in returned if i != index)
    else:
        started += 1
    state = ArrayState(started, returned, running, state.ended + 1, failed)
    _set_array(world, job, state)
    if state.ended == len(job.spec.array.indices):
        _job_gone(world, job, Outcome.FAILED if failed else Outcome.COMPLETED)


def _job_dropped(world: World, event: ev.JobDropped) -> None:
    job = world.jobs[event.job]
    if world.parked.pop(job.id, None) is not None:
        world.digest.parked.gone(job.id)
    elif _can_start(world, job):
        leave_lane(world, job)
    world.ripe.pop(job.id, None)
    _end_promises(world, job)
    array = job.spec.array
    if array is None:
        if world.attempts.pop(job.id << ARRAY_BITS, None) is not None:
            world.digest.attempts.gone(job.id << ARRAY_BITS)
        _job_gone(world, job, event.outcome)
        return
    state = world.arrays[job.id]
    tasks = len(array.indices)
    for index in state.returned:
        task = job.id << ARRAY_BITS | index
        del world.attempts[task]
        world.digest.attempts.gone(task)
    dropped = tasks - state.started + len(state.returned)
    world.arrays[job.id] = ArrayState(tasks, (), state.running, state.ended + dropped, True)
    world.digest.arrays.touched.add(job.id)
    if state.ended + dropped == tasks:
        _job_gone(world, job, event.outcome)


def _vacate(world: World, run: Run) -> None:
    pool = world.pools[run.pool]
    pool.vacate(run)
    if pool.closed:
        for row in run.rows:
            if pool.nodes[row].state is NodeState.DRAINING:
                world.emptying[pool.names[row]] = None
    if pool.lanes:  # where nothing waits the room is looked at when something comes
        world.stirred[pool.name] = pool
    world.launching.pop(run.task, None)
    world.digest.runs.gone(run.task)
    if world.halting.pop(run.task, None) is not None:
        world.digest.halting.gone(run.task)


def _job_gone(world: World, job: Job, outcome: Outcome) -> None:
    digest = world.digest
    del world.jobs[job.id]
    digest.jobs.gone(job.id)
    if world.arrays.pop(job.id, None) is not None:
        digest.arrays.gone(job.id)
        world.ripe.pop(job.id, None)
        if world.parked.pop(job.id, None) is not None:
            digest.parked.gone(job.id)
    outcomes = world.outcomes
    outcomes[job.id] = outcome
    digest.outcomes.touched.add(job.id)
    if len(outcomes) >= 2 * OUTCOMES_KEPT:
        _forget(outcomes, digest.outcomes, OUTCOMES_KEPT)
    if world.dependents:
        for dependent in world.dependents.pop(job.id, ()):
            digest.dependents.gone(job.id)
            _resolve(world, dependent, job.id, outcome)


def _resolve(world: World, dependent: int, ended: int, outcome: Outcome) -> None:
    parked = world.parked.get(dependent)
    if parked is None:
        return
    failed = parked.failed
    left = []
    for after in parked.after:
        if after.job != ended:
            left.append(after)
        elif not satisfied(after, outcome):
            failed = True
    world.parked[dependent] = Parked(tuple(left), failed, parked.held, parked.begin_ms)
    world.digest.parked.touched.add(dependent)
    world.ripe[dependent] = None


def satisfied(after: After, outcome: Outcome) -> bool:
    match after.kind:
        case AfterKind.ANY:
            return True
        case AfterKind.OK:
            return outcome is Outcome.COMPLETED
        case AfterKind.FAIL:
            return outcome is not Outcome.COMPLETED
        case _:
            assert_never(after.kind)


def _remember_run(world: World, user: str, at: int, run: Run) -> None:
    known = world.last_runs
    last = known.get(user)
    known[user] = (
        NO_RUNS.ending(at, run.seq, at - run.start_ms) if last is None else last.ending(at, run.seq, at - run.start_ms)
    )
    world.digest.last_runs.touched.add(user)
    if len(known) >= 2 * USERS_KEPT:
        _forget(known, world.digest.last_runs, USERS_KEPT)


def _forget(records: dict[Any, Any], notes: Notes, kept: int) -> None:
    """The oldest, many at once: taking the first of a dict one by one gets slower with every one taken."""
    for key in list(islice(records, len(records) - kept)):
        del records[key]
        notes.gone(key)


def _attempt_lost(world: World, event: ev.AttemptLost) -> None:
    task = event.task
    job = world.jobs[job_of(task)]
    _vacate(world, world.runs.pop(task))
    world.attempts[task] = event.attempt
    world.digest.attempts.touched.add(task)
    if job.spec.deadline_ms < FOREVER_MS:
        insort(world.timers, (max(event.at, job.spec.deadline_ms - job.estimate_ms + 1), job.id))
    if job.spec.array is not None:
        state = world.arrays[job.id]
        returned = tuple(sorted((*state.returned, index_of(task))))
        _set_array(world, job, ArrayState(state.started, returned, state.running - 1, state.ended, state.failed))
    elif job.id not in world.parked:
        enter_lane(world, job)


def _estimate_raised(world: World, event: ev.EstimateRaised) -> None:
    run = world.runs[event.task]
    pool = world.pools[run.pool]
    pool.unexpect(run)
    world.runs[run.task] = raised = replace(run, expected_end=event.expected_end, raises=run.raises + 1)
    pool.expect(raised)
    world.digest.runs.touched.add(run.task)
    pool.freed = None  # what was promised on the old end must be looked at again
    world.stirred[pool.name] = pool


def _node_changed(world: World, event: ev.NodeChanged) -> None:
    node = event.node
    for name, _ in node.capacity:
        world.columns.setdefault(name, len(world.columns))
    world.nodes[node.name] = node
    world.digest.nodes.touched.add(node.name)
    pool = world.pools.get(node.pool)
    if pool is None:
        pool = world.pools[node.pool] = Pool(node.pool)
    capacity = [0] * len(world.columns)
    for name, amount in node.capacity:
        capacity[world.columns[name]] = amount
    pool.set_node(node, capacity)
    world.stirred[pool.name] = pool


# -- lanes -------------------------------------------------------------------------------------------------


def enter_lane(world: World, job: Job) -> None:
    pool = world.pools[job.pool]
    key = lane_key(job)
    lane = pool.lanes.get(key)
    if lane is None:
        _new_lane(world, pool, key, job)
    else:
        if lane.owner is not world.token:
            lane = _own(world, pool, lane)
        lane.insert(job)
        if lane.jobs[0] is job:
            pool.changed[lane.serial] = lane
    pool.grown = True
    world.stirred[pool.name] = pool


def _new_lane(world: World, pool: Pool, key: LaneKey, job: Job) -> None:
    shape = key[2]
    need = world.need_of(shape.chunk)
    if len(pool.fitting) < FITTING_KEPT:
        pool.fitting.add(shape)  # it was accepted, so it fits
    assert need is not None, "accept refuses what no node ever had"
    serial = pool.lane_serial = pool.lane_serial + 1
    lane = pool.lanes[key] = Lane(serial, key, need, world.token, deque((job,)))
    pool.join(need, plain=lane.plain)
    pool.fresh[serial] = pool.changed[serial] = lane


def leave_lane(world: World, job: Job) -> None:
    """Without having been started: what was planned around it must be looked at again."""
    pool = world.pools[job.pool]
    _leave(world, pool, pool.lanes[lane_key(job)], job)
    pool.freed = None


def _leave(world: World, pool: Pool, lane: Lane, job: Job) -> None:
    if lane.owner is not world.token:
        lane = _own(world, pool, lane)
    lane.remove(job)
    pool.changed[lane.serial] = lane
    world.stirred[pool.name] = pool
    if not lane.jobs:
        del pool.lanes[lane.key]
        pool.part(lane.need, plain=lane.plain)
        pool.fresh.pop(lane.serial, None)


def _own(world: World, pool: Pool, lane: Lane) -> Lane:
    """A copy to write to, after a fork."""
    mine = pool.lanes[lane.key] = pool.changed[lane.serial] = lane.copy_for(world.token)
    if lane.serial in pool.fresh:
        pool.fresh[lane.serial] = mine
    return mine


def _set_array(world: World, job: Job, state: ArrayState) -> None:
    """An array stands in its lane exactly while one of its tasks may start."""
    could = _can_start(world, job)
    world.arrays[job.id] = state
    world.digest.arrays.touched.add(job.id)
    if job.id in world.parked:
        return
    can = _can_start(world, job)
    if could and not can:
        leave_lane(world, job)
    elif can and not could:
        enter_lane(world, job)
    else:
        pool = world.pools[job.pool]
        pool.grown = True
        world.stirred[pool.name] = pool
