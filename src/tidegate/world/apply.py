"""`apply`: one event into the state. Live, recovery, replay and forecast all fold with it."""

from bisect import bisect_left
from typing import assert_never

from msgspec.structs import replace

from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS, FOREVER_MS, index_of
from tidegate.model.jobs import Outcome
from tidegate.world import arrays
from tidegate.world.accounts import charge, reopen
from tidegate.world.ended import job_gone, name_environment, notice_sent, remember_run
from tidegate.world.gauges import arrived, note_start, tide_turned, watch_anew, watch_pools
from tidegate.world.holds import count_run
from tidegate.world.kept import kept_rows
from tidegate.world.nodes import blame, change_node, forgive
from tidegate.world.pauses import is_suspended, resumed, stopped_ms, suspended, suspension_changed
from tidegate.world.pool import FITTING_KEPT
from tidegate.world.records import NO_TRIES, ArrayState, Excess, HaltAsked, Parked, Run, Tries
from tidegate.world.reservations import change_reservation
from tidegate.world.saves import ask_no_more, asked, begin_saving, kept, stop_saving
from tidegate.world.waiting import (
    can_start,
    count_alike,
    end_promises,
    enter_lane,
    leave_lane,
    park,
    promise_made,
    promise_over,
    rank_anew,
    regroup,
    set_array,
    take_off,
    vacate,
    wait_again,
    watch_deadline,
)
from tidegate.world.world import KEYS_EXPIRE_MS, World

INTERRUPTED_KEPT_MS = 60_000


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
        case ev.JobReady() | ev.JobHeld() | ev.JobReleased() | ev.JobChanged():
            _conditions_changed(world, event)
        case ev.JobDropped():
            _job_dropped(world, event)
        case ev.TimePassed():
            del world.timers[: bisect_left(world.timers, (event.at + 1, 0))]
            world.ripe.clear()
            world.emptying.clear()
        case ev.HaltRequested():
            _halt_requested(world, event)
        case ev.JobSuspended() | ev.JobResumed() | ev.SuspensionChanged():
            _pause_changed(world, event)
        case ev.CheckpointAsked():
            asked(world, event, world.jobs[event.task >> ARRAY_BITS])
        case ev.CheckpointKept():
            kept(world, event)
        case ev.AttemptLost() | ev.AttemptFailed():
            _attempt_over(world, event)
        case ev.TaskRested():
            _task_rested(world, event)
        case ev.EnvironmentKept():
            world.environments[event.name] = event.env
            world.digest.environments.touched.add(event.name)
        case ev.NoticeSent():
            notice_sent(world, event.job)
        case ev.StraySeen() | ev.StrayGone():
            _stray_changed(world, event)
        case ev.LookedAgain():
            _looked_again(world, event)
        case ev.TideTurned():
            tide_turned(world, event)
        case ev.PolicyChanged():
            _policy_changed(world, event)
        case ev.ExcessApproved() | ev.ExcessOver():
            _excess_changed(world, event)
        case ev.ReservationMade() | ev.ReservationMoved() | ev.ReservationOver():
            change_reservation(world, event)
        case ev.NodeChanged() | ev.NodeSuspected() | ev.NodeTried() | ev.NodeCleared():
            change_node(world, event)
            watch_pools(world, event.at)
        case _:
            assert_never(event)


def _stray_changed(world: World, event: ev.StraySeen | ev.StrayGone) -> None:
    key = (event.task, event.attempt)
    match event:
        case ev.StraySeen():
            world.strays[key] = world.ordered = world.seq
            world.digest.strays.touched.add(key)
        case ev.StrayGone():
            world.strays.pop(key, None)
            world.digest.strays.gone(key)


def _looked_again(world: World, event: ev.LookedAgain) -> None:
    pool = world.pools[event.pool]
    pool.freed = None
    world.stirred[pool.name] = pool
    world.looks.pop(pool.name, None)


def _policy_changed(world: World, event: ev.PolicyChanged) -> None:
    before, stood = world.policy, world.has_standings
    world.policy, world.policy_version = event.policy, event.version
    if before.queues or event.policy.queues:
        reopen(world, before.share.half_life_ms, event.at)
    if before.kept or event.policy.kept:
        for pool in world.pools.values():
            pool.keep(kept_rows(event.policy, pool))
    anew = stood or world.has_standings or before.kept or event.policy.kept
    if before.queues or event.policy.queues or anew:
        regroup(world)
    if before.tide is not None or event.policy.tide is not None:
        watch_anew(world, before.tide, event.at)
    for pool in world.pools.values():
        pool.freed = None
        world.stirred[pool.name] = pool


def _excess_changed(world: World, event: ev.ExcessApproved | ev.ExcessOver) -> None:
    match event:
        case ev.ExcessApproved():
            world.excesses[event.queue] = Excess(event.amounts, event.until, event.by, event.note)
            world.digest.excesses.touched.add(event.queue)
        case ev.ExcessOver():
            del world.excesses[event.queue]
            world.digest.excesses.gone(event.queue)
    for pool in world.pools.values():
        if pool.lanes:
            world.stirred[pool.name] = pool


def _cycle_ran(world: World, event: ev.CycleRan) -> None:
    world.cycle = event.number
    for promise in event.promised:
        promise_made(world, promise)
    if world.looks or event.looks:
        for name in world.stirred:
            world.looks.pop(name, None)
        world.looks.update(event.looks)
    for task in event.withdrawn:
        promise_over(world, world.pools[world.jobs[task >> ARRAY_BITS].pool], task)
    if event.cut:
        _cycle_cut(world, event.cut)
        return
    for pool in world.stirred.values():
        pool.settle()
    world.stirred.clear()


def _cycle_cut(world: World, cut: str) -> None:
    """Pools are looked at in order of name: those before the one where the count ran out are done, it is begun."""
    if not cut.startswith(ev.CUT_BY_STARTS):
        return
    last = cut.removeprefix(ev.CUT_BY_STARTS)
    for pool in [pool for pool in world.stirred.values() if pool.name <= last]:
        pool.settle()
        if pool.name != last:
            del world.stirred[pool.name]


# -- jobs --------------------------------------------------------------------------------------------------


def _job_submitted(world: World, event: ev.JobSubmitted) -> None:
    job = event.job
    spec = job.spec
    world.jobs[job.id] = job
    world.digest.jobs.touched.add(job.id)
    if job.id >= world.next_job:
        world.next_job = job.id + 1
    fitting = world.pools[job.pool].fitting
    if len(fitting) < FITTING_KEPT:
        fitting.add(world.shape_of(spec, job.pool))  # it was accepted, so it fits
    if event.key:
        _remember_key(world, event)
    if spec.array is not None:
        world.arrays[job.id] = ArrayState(0, (), 0, 0, False)
        world.digest.arrays.touched.add(job.id)
    if world.gauges:
        arrived(world, job, event.at)
    if spec.work is not None and spec.work.env:
        name_environment(world, spec.work.env)
    if spec.deadline_ms < FOREVER_MS:
        watch_deadline(world, job, event.at)
    begin_ms = spec.begin_ms
    if spec.reservation:
        begin_ms = max(begin_ms, world.reservations[spec.reservation].spec.start_ms)
    if spec.after or spec.held or begin_ms > event.at:
        park(world, job, Parked(spec.after, False, spec.held, begin_ms))
    else:
        enter_lane(world, job)


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


def _conditions_changed(world: World, event: ev.JobReady | ev.JobHeld | ev.JobReleased | ev.JobChanged) -> None:
    if isinstance(event, ev.JobChanged):
        _job_changed(world, event)
        return
    job = world.jobs[event.job]
    world.digest.parked.touched.add(job.id)
    match event:
        case ev.JobReady():
            del world.parked[job.id]
            if can_start(world, job):
                enter_lane(world, job)
        case ev.JobHeld():
            known = world.parked.get(job.id)
            if known is None:
                if can_start(world, job):
                    leave_lane(world, job)
                known = Parked((), False, False, 0)
            world.parked[job.id] = Parked(known.after, known.failed, True, known.begin_ms)
            end_promises(world, job)
        case ev.JobReleased():
            known = world.parked[job.id]
            world.parked[job.id] = Parked(known.after, known.failed, False, known.begin_ms)
            world.ripe[job.id] = None


def _job_changed(world: World, event: ev.JobChanged) -> None:
    """It stands in no lane: whatever a lane is made of may be another."""
    job = event.job
    assert world.parked[job.id].held, "only a job that is held is changed"
    for name in (world.jobs[job.id].pool, job.pool):
        pool = world.pools[name]
        pool.freed = None  # what was refused beside it, or after it, must be looked at again
        world.stirred[name] = pool
    world.jobs[job.id] = job
    world.digest.jobs.touched.add(job.id)
    watch_deadline(world, job, event.at)


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
    key = world.lane_key(job)
    lane = pool.lanes[key]
    seq = world.seq
    if world.has_queues:
        charge(world, spec.queue, spec.user, lane.need, lane.units, event.at)
    run = Run(
        task, event.attempt, job.pool, event.at, event.expected_end, event.nodes, rows, counts,
        lane.need, lane.plain, seq,
    )  # fmt: skip
    world.runs[task] = run
    pool.occupy(run)
    if pool.reserved:
        count_run(world, run, 1, event.at)
    if spec.checkpoint is not None:
        begin_saving(world, job, run)
    if world.gauges and event.attempt == 1:
        note_start(world, job, event.at)
    if job.compared:
        count_alike(world, job, 1)
    world.launching[task] = world.ordered = world.seq
    digest = world.digest
    digest.runs.touched.add(task)
    if pool.promised:
        promise_over(world, pool, task)
    if spec.array is None:
        take_off(world, pool, lane, job)
    else:
        set_array(world, job, arrays.started(world.arrays[job.id], spec.array.indices, index_of(task)))


def _halt_requested(world: World, event: ev.HaltRequested) -> None:
    task = event.task
    world.halting[task] = HaltAsked(event.attempt, event.outcome, world.seq, event.again, event.save, event.room_for)
    world.ordered = world.seq
    world.digest.halting.touched.add(task)
    ask_no_more(world, task)
    if event.room_for:
        _interrupted(world, task, event.at)
    if event.until:
        _expect(world, replace(world.runs[task], expected_end=event.until))


def _pause_changed(world: World, event: ev.JobSuspended | ev.JobResumed | ev.SuspensionChanged) -> None:
    match event:
        case ev.JobSuspended():
            suspended(world, event)
            if event.room_for:
                _interrupted(world, event.task, event.at)
        case ev.JobResumed():
            resumed(world, event)
        case ev.SuspensionChanged():
            suspension_changed(world, event)


def _interrupted(world: World, task: int, at: int) -> None:
    recent = [one for one in world.interrupted if one[0] > at - INTERRUPTED_KEPT_MS]
    world.interrupted = (*recent, (at, world.jobs[task >> ARRAY_BITS].spec.user))


def _job_ended(world: World, event: ev.JobEnded) -> None:
    task = event.task
    job = world.jobs[task >> ARRAY_BITS]
    run = world.runs.pop(task, None)
    if run is None:
        assert job.spec.array is not None, "a single job that never started is dropped"
        pool = world.pools[job.pool]
        promise_over(world, pool, task)
        pool.freed = None  # what was planned around it must be looked at again
        world.stirred[pool.name] = pool
    else:
        stopped = stopped_ms(world, task, event.at) if world.pauses else 0
        vacate(world, run, event.at)
        if world.saves:
            stop_saving(world, task)
        remember_run(world, job, event.at, run, stopped)
        if world.alike:
            rank_anew(world, job, ended=True)
        if event.blames:
            blame(world, job.id, run)
        elif world.marks and event.outcome is Outcome.COMPLETED:
            forgive(world, run)
    array = job.spec.array
    if array is None:
        if world.tries:
            _tries_over(world, task)
        job_gone(world, job, event.outcome)
        return
    failed = event.outcome is not Outcome.COMPLETED
    state = arrays.ended(world.arrays[job.id], array.indices, index_of(task), ran=run is not None, failed=failed)
    set_array(world, job, state)
    _tries_over(world, task)  # only now: by them it was in its lane
    if state.ended == len(array.indices):
        job_gone(world, job, Outcome.FAILED if state.failed else Outcome.COMPLETED)


def _job_dropped(world: World, event: ev.JobDropped) -> None:
    job = world.jobs[event.job]
    if world.parked.pop(job.id, None) is not None:
        world.digest.parked.gone(job.id)
    elif can_start(world, job):
        leave_lane(world, job)
    world.ripe.pop(job.id, None)
    end_promises(world, job)
    array = job.spec.array
    if array is None:
        _tries_over(world, job.id << ARRAY_BITS)
        job_gone(world, job, event.outcome)
        return
    state = world.arrays[job.id]
    for index in (*state.returned, *state.resting):
        _tries_over(world, job.id << ARRAY_BITS | index)
    world.arrays[job.id] = state = arrays.dropped(state, len(array.indices))
    world.digest.arrays.touched.add(job.id)
    if state.ended == len(array.indices):
        job_gone(world, job, event.outcome)


def _attempt_over(world: World, event: ev.AttemptLost | ev.AttemptFailed) -> None:
    """The task is to have another one."""
    task = event.task
    job = world.jobs[task >> ARRAY_BITS]
    run = world.runs.pop(task)
    ran_ms = event.at - run.start_ms - stopped_ms(world, task, event.at)
    vacate(world, run, event.at)
    known = world.tries.get(task, NO_TRIES)
    failed = known.failed + isinstance(event, ev.AttemptFailed)
    lost = known.lost + (isinstance(event, ev.AttemptLost) and event.counts)
    ran_ms, kept_ms = known.ran_ms + ran_ms, known.kept_ms + stop_saving(world, task)
    world.tries[task] = Tries(event.attempt, failed, lost, event.until, ran_ms, kept_ms)
    world.digest.tries.touched.add(task)
    if event.blames:
        blame(world, job.id, run)
    wait_again(world, job, task, event.at, event.until)


def _task_rested(world: World, event: ev.TaskRested) -> None:
    job = world.jobs[event.task >> ARRAY_BITS]
    set_array(world, job, arrays.rested(world.arrays[job.id], index_of(event.task)))
    pool = world.pools[job.pool]
    pool.freed = None  # it may come before the task that holds the promise of the array
    world.stirred[pool.name] = pool


def _tries_over(world: World, task: int) -> None:
    if world.tries.pop(task, None) is not None:
        world.digest.tries.gone(task)


def _estimate_raised(world: World, event: ev.EstimateRaised) -> None:
    run = world.runs[event.task]
    raises = run.raises if is_suspended(world, event.task) else run.raises + 1
    _expect(world, replace(run, expected_end=event.expected_end, raises=raises))


def _expect(world: World, run: Run) -> None:
    """Another end than was planned with."""
    pool = world.pools[run.pool]
    pool.unexpect(world.runs[run.task])
    world.runs[run.task] = run
    pool.expect(run)
    world.digest.runs.touched.add(run.task)
    pool.freed = None  # what was promised on the old end must be looked at again
    world.stirred[pool.name] = pool
