"""`accept`: a command becomes events or a refusal. A refusal says what would cure it."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, assert_never

from msgspec.structs import replace

from tidegate.core.again import lose
from tidegate.core.asks import ask
from tidegate.core.by_hand import no_live, resume, suspend
from tidegate.core.reserve import end_reservation, not_entitled, reserve
from tidegate.model import commands as cmd
from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS, ARRAY_TASKS_MAX
from tidegate.model.commands import Refused
from tidegate.model.jobs import After, Job, JobSpec, Outcome
from tidegate.model.nodes import Node, NodeState
from tidegate.policy.admission import default_pool, no_queue, refusal, said
from tidegate.policy.estimate import estimate
from tidegate.policy.order import compares
from tidegate.world import arrays
from tidegate.world.ended import satisfied
from tidegate.world.pauses import is_suspended
from tidegate.world.records import Excess, Run
from tidegate.world.world import World

JOB_ID_MAX = 1 << 42
CHUNKS_MAX = 1 << 24
AMOUNT_MAX = 1 << 40
LIMIT_MAX_MS = 1 << 53
RETRIES_MAX = 1000
SIGNAL_MAX = 64
EXCESS_MAX_MS = 366 * 86_400_000
Answer = tuple[ev.Event, ...] | Refused


def accept(world: World, command: cmd.Command, now: int) -> Answer:
    match command:
        case cmd.Submit():
            return _submit(world, command, now)
        case cmd.Cancel():
            return _cancel(world, command, now)
        case cmd.Requeue():
            return _requeue(world, command, now)
        case cmd.Suspend():
            return suspend(world, command, now)
        case cmd.Resume():
            return resume(world, command, now)
        case cmd.AskCheckpoint():
            return _ask_checkpoint(world, command, now)
        case cmd.Hold() | cmd.Release():
            return _hold_or_release(world, command, now)
        case cmd.Change():
            return _change(world, command, now)
        case cmd.SetNode():
            return _set_node(world, command, now)
        case cmd.SetNodeState():
            return _set_node_state(world, command, now)
        case cmd.ChangePolicy():
            return _change_policy(world, command, now)
        case cmd.ApproveExcess():
            return _approve(world, command, now)
        case cmd.Reserve():
            return reserve(world, command, now)
        case cmd.EndReservation():
            return end_reservation(world, command, now)
        case cmd.RevokeExcess():
            return (ev.ExcessOver(now, command.queue, command.by),) if command.queue in world.excesses else ()
        case _:
            assert_never(command)


# -- submit ------------------------------------------------------------------------------------------------


def _submit(world: World, command: cmd.Submit, now: int) -> Answer:
    if command.key:
        known = world.keys.get(command.key)
        if known is not None and known[1] > now:
            return ()  # the same wish again: it has its job
    job_id = command.job or world.next_job
    if job_id in world.jobs or job_id in world.outcomes or not 0 < job_id < JOB_ID_MAX:
        return Refused(f"job id {job_id} is taken or out of range", "leave the id out: the next free one is given")
    spec = command.spec
    name = spec.pool or default_pool(world)
    if spec.reservation and not spec.pool and spec.reservation in world.reservations:
        name = world.reservations[spec.reservation].pool
    pool = world.pools.get(name)
    if pool is None or world.shape_of(spec, name) not in pool.fitting:
        refused = _check_shape(world, spec, name)
        if refused is not None:
            return refused
    refused = _check_times(spec, now) or _check_checkpoint(spec) or refusal(world, spec, now)
    if refused is not None:
        return refused
    if spec.reservation:
        refused = not_entitled(world, spec, name, now)
        if refused is not None:
            return refused
    if spec.array is not None:
        refused = _check_array(spec)
        if refused is not None:
            return refused
    if spec.after:
        unmet = _unmet(world, spec)
        if isinstance(unmet, Refused):
            return unmet
        spec = replace(spec, after=unmet)
    job = Job(job_id, now, estimate(world, spec, now), name, spec, compares(world, spec))
    submitted = ev.JobSubmitted(now, job, command.key)
    if spec.work is None and not command.env:
        return (submitted,)
    kept = _environment(world, command, now)
    return kept if isinstance(kept, Refused) else (*kept, submitted)


def _environment(world: World, command: cmd.Submit, now: int) -> Answer:
    """Kept with the first job that names it."""
    work, env = command.spec.work, command.env
    name = work.env if work is not None else ""
    if not name:
        return Refused("an environment comes without a name", "name it in the work") if env else ()
    if name in world.environments:
        return ()
    if not env:
        return Refused(f"environment {name!r} is not known", "bring its variables along with the submission")
    if not rises(variable for variable, _ in env):
        return Refused("a variable is named twice, or not in order", "name each once, sorted by name")
    return (ev.EnvironmentKept(now, name, env),)


def _check_times(spec: JobSpec, now: int) -> Refused | None:
    limit = spec.limit_ms
    if not 0 < limit <= LIMIT_MAX_MS:
        return Refused(f"time limit {limit} ms is out of range", "give a time limit above 0 and below 300 years")
    if spec.expected_ms < 0 or spec.begin_ms < 0:
        return Refused("a time is negative", "give times that are not below 0")
    retry = spec.retry
    if not 0 <= spec.losses_max <= RETRIES_MAX or not 0 <= retry.times <= RETRIES_MAX:
        return Refused("a number of retries is out of range", f"give 0 to {RETRIES_MAX}")
    if retry.times and not 0 <= retry.backoff_ms <= retry.backoff_max_ms <= LIMIT_MAX_MS:
        return Refused(
            f"a back-off from {retry.backoff_ms} to at most {retry.backoff_max_ms} ms is out of range",
            "give times that are not below 0 and below 300 years, the first no longer than the longest",
        )
    if spec.deadline_ms < max(now, spec.begin_ms) + min(spec.expected_ms or limit, limit):
        return Refused(
            "the deadline is earlier than the soonest possible end",
            "lower the time limit, or move the deadline or the earliest start",
        )
    return None


def _check_checkpoint(spec: JobSpec) -> Refused | None:
    said = spec.checkpoint
    if said is None:
        return None
    if spec.starts_over:
        return Refused("the job says that it can save itself, and that it cannot", "say one of them")
    if not 0 <= said.signal <= SIGNAL_MAX:
        return Refused(f"there is no signal {said.signal}", f"give one from 1 to {SIGNAL_MAX}")
    if not 0 <= said.every_ms <= LIMIT_MAX_MS or not 0 <= said.size_mib <= AMOUNT_MAX:
        return Refused("how often it saves, or how much, is out of range", "give an interval and a size above 0")
    return None


def _check_array(spec: JobSpec) -> Refused | None:
    array = spec.array
    assert array is not None
    indices = array.indices
    if not indices or indices[0] < 0 or indices[-1] >= ARRAY_TASKS_MAX or array.at_once_max < 0:
        return Refused("the array has no tasks, or an index out of range", f"use indices 0 to {ARRAY_TASKS_MAX - 1}")
    if not rises(indices):
        return Refused("array indices repeat or are not in order", "list each index once, in rising order")
    return None


def rises(values: Iterable[Any]) -> bool:
    return all(a < b for a, b in pairwise(values))


def _check_shape(world: World, spec: JobSpec, name: str) -> Refused | None:
    """Is it a sound shape, and would it fit if the pool were empty and every node up?"""
    shape = spec.shape
    if not 0 < shape.count <= CHUNKS_MAX:
        return Refused(f"{shape.count} chunks asked for", f"ask for 1 to {CHUNKS_MAX}")
    if not shape.chunk or not all(0 < amount <= AMOUNT_MAX for _, amount in shape.chunk):
        return Refused("the job asks for no resource, or for an amount out of range", "ask for at least one cpu or gpu")
    if not rises(name for name, _ in shape.chunk) or not rises(label for label, _ in shape.where):
        return Refused("a resource or label is named twice, or not in order", "name each once, sorted by name")
    pool = world.pools.get(name)
    if pool is None:
        known = ", ".join(sorted(world.pools)) or "none: there are no nodes yet"
        return Refused(f"there is no pool {name!r}", f"name one of: {known}")
    need = world.need_of(shape.chunk)
    if need is None or any(column >= len(pool.capacity) for column, _ in need):
        missing = [r for r, _ in shape.chunk if world.columns.get(r, len(pool.capacity)) >= len(pool.capacity)]
        return Refused(f"no node of pool {name!r} has {', '.join(missing)}", "ask for less, or for another pool")
    fits = pool.count_most(world.shape_of(spec, name), need)
    if fits >= shape.count:
        return None
    each = ", ".join(said(resource, amount) for resource, amount in shape.chunk)
    asked = each if shape.count == 1 else f"{shape.count} x ({each})"
    kept = "" if world.shape_of(spec, name) is shape else " beside what is kept for other classes"
    return Refused(
        f"{asked} can never fit in pool {name!r}: all its nodes together hold {fits}{kept}",
        "ask for fewer or smaller chunks, or for another pool",
    )


def _unmet(world: World, spec: JobSpec) -> tuple[After, ...] | Refused:
    """The dependencies that are not resolved yet; a fact must not need another look."""
    unmet = []
    for after in spec.after:
        if after.job in world.jobs:
            unmet.append(after)
            continue
        outcome = world.outcomes.get(after.job)
        if outcome is None:
            return Refused(f"job {after.job} is not known", "depend on a job that waits, runs or ended lately")
        if not satisfied(after, outcome):
            return Refused(
                f"job {after.job} ended as {outcome}, so `{after.kind}` can never be met", "leave that dependency out"
            )
    return tuple(unmet)


# -- cancel, requeue, hold, release ------------------------------------------------------------------------


def _cancel(world: World, command: cmd.Cancel, now: int) -> Answer:
    job = world.jobs.get(command.job)
    if job is None:
        return no_live(command.job)
    by = f"cancelled by {command.by}" if command.by else "cancelled"
    if command.index >= 0:
        return _cancel_task(world, job, command.index, now, by)
    runs = world.runs_of(job.id)
    halts = tuple([halt for run in runs for halt in _halt(world, run, now, by)])
    array = job.spec.array
    state = world.arrays.get(job.id)
    waits = not runs if array is None or state is None else state.waiting(len(array.indices)) > 0
    return (*halts, ev.JobDropped(now, job.id, Outcome.CANCELLED, by)) if waits else halts


def _cancel_task(world: World, job: Job, index: int, now: int, by: str) -> Answer:
    task = job.id << ARRAY_BITS | index
    run = world.runs.get(task)
    if run is not None:
        return _halt(world, run, now, by)
    return _not_waiting(world, job, index) or (ev.JobEnded(now, task, 0, Outcome.CANCELLED, 0, by),)


def _halt(world: World, run: Run, now: int, by: str) -> tuple[ev.Event, ...]:
    """For good, also if it was to be requeued."""
    known = world.halting.get(run.task)
    if known is not None and not known.again:
        return ()
    return (ev.HaltRequested(now, run.task, run.attempt, Outcome.CANCELLED, by),)


def _requeue(world: World, command: cmd.Requeue, now: int) -> Answer:
    """What waits has nothing to lose: there nothing is to be done."""
    job = world.jobs.get(command.job)
    if job is None:
        return no_live(command.job)
    by = f"requeued by {command.by}" if command.by else "requeued"
    runs = world.runs_of(job.id)
    if command.index >= 0:
        task = job.id << ARRAY_BITS | command.index
        runs = [run for run in runs if run.task == task]
        refused = None if runs else _not_waiting(world, job, command.index)
        if refused is not None:
            return refused
    ending = [run.task for run in runs if run.task in world.halting]
    if runs and len(ending) == len(runs) and not any(world.halting[task].again for task in ending):
        return Refused(f"job {job.id} is being cancelled", "submit it again")
    return tuple(
        [
            ev.HaltRequested(now, run.task, run.attempt, Outcome.CANCELLED, by, True, job.spec.checkpoint is not None)
            for run in runs
            if run.task not in world.halting
        ]
    )


def _ask_checkpoint(world: World, command: cmd.AskCheckpoint, now: int) -> Answer:
    """At once, whatever else writes: somebody wants it. An ask that is open is not made again."""
    job = world.jobs.get(command.job)
    if job is None:
        return no_live(command.job)
    if job.spec.checkpoint is None:
        return Refused(f"job {job.id} did not say that it can save itself", "submit it with --checkpoint")
    runs = world.runs_of(job.id)
    if command.index >= 0:
        runs = [run for run in runs if run.task == job.id << ARRAY_BITS | command.index]
    if not runs:
        return Refused(f"nothing of job {job.id} runs", "ask it while it does; what waits has nothing to save")
    able = [
        run.task
        for run in runs
        if run.task not in world.halting and run.task not in world.launching and not is_suspended(world, run.task)
    ]
    if not able:
        return Refused(f"job {job.id} is starting, suspended or being ended", "ask it while it runs")
    return tuple([ask(world, task, now) for task in able if not world.saves[task].is_open])


def _not_waiting(world: World, job: Job, index: int) -> Refused | None:
    """Of a task that does not run: that it does not wait either."""
    array = job.spec.array
    if array is None:
        return Refused(f"job {job.id} is not an array", "leave the index out")
    if not arrays.is_waiting(world.arrays[job.id], array.indices, index):
        return Refused(f"task {job.id}[{index}] is not live", "look at the queue for live tasks")
    return None


def _hold_or_release(world: World, command: cmd.Hold | cmd.Release, now: int) -> Answer:
    job = world.jobs.get(command.job)
    if job is None:
        return no_live(command.job)
    parked = world.parked.get(job.id)
    held = parked is not None and parked.held
    if isinstance(command, cmd.Release):
        return (ev.JobReleased(now, job.id, command.by),) if held else ()
    if job.spec.array is None and job.id << ARRAY_BITS in world.runs:
        return Refused(f"job {job.id} is running", "hold works on waiting jobs; cancel it instead")
    return () if held else (ev.JobHeld(now, job.id, command.by),)


def _is_same_job(old: JobSpec, new: JobSpec) -> bool:
    """Whose it is, its tasks, and what it waits for stay."""
    same_tasks = (old.array.indices if old.array else ()) == (new.array.indices if new.array else ())
    return same_tasks and (old.user, old.after, old.begin_ms) == (new.user, new.after, new.begin_ms)


def _change(world: World, command: cmd.Change, now: int) -> Answer:
    """Held for the moment, so that it leaves its lane as what it was and comes back as what it is."""
    job, spec = world.jobs.get(command.job), command.spec
    if job is None:
        return no_live(command.job)
    if world.runs_of(job.id):
        return Refused(f"job {job.id} is running", "what runs keeps what it asked for; cancel it and submit it anew")
    if not _is_same_job(job.spec, spec):
        return Refused(f"job {job.id} would be somebody else's, or have other tasks", "submit another job")
    name = spec.pool or default_pool(world)
    refused = _check_shape(world, spec, name) or _check_times(spec, now) or refusal(world, spec, now)
    if refused is not None:
        return refused
    parked = world.parked.get(job.id)
    changed = ev.JobChanged(now, Job(job.id, job.submit_ms, estimate(world, spec, now), name, spec), command.by)
    if parked is not None and parked.held:
        return (changed,)
    return (ev.JobHeld(now, job.id, command.by), changed, ev.JobReleased(now, job.id, command.by))


# -- limits of queues --------------------------------------------------------------------------------------


def _approve(world: World, command: cmd.ApproveExcess, now: int) -> Answer:
    queue = world.policy.queues.get(command.queue)
    if queue is None:
        return no_queue(world, command.queue)
    limited = [bound.resource for bound in queue.limit]
    if not limited:
        return Refused(f"queue {command.queue!r} has no limit", "name one that has, or one above it")
    for resource, amount in command.amounts:
        if resource not in limited:
            return Refused(
                f"queue {command.queue!r} has no limit on {resource}", f"approve more of: {', '.join(limited)}"
            )
        if not 0 < amount <= AMOUNT_MAX:
            return Refused(f"{said(resource, amount)} more is out of range", "approve more than nothing")
    if not command.amounts or not rises(resource for resource, _ in command.amounts):
        return Refused("no resource is named, or one twice or not in order", "name each once, sorted by name")
    if not now < command.until <= now + EXCESS_MAX_MS:
        return Refused("the time is over already, or more than a year away", "approve it for a time up to a year")
    excess = Excess(command.amounts, command.until, command.by, command.note)
    if world.excesses.get(command.queue) == excess:
        return ()
    return (ev.ExcessApproved(now, command.queue, excess.amounts, excess.until, excess.by, excess.note),)


# -- policy ------------------------------------------------------------------------------------------------


def _change_policy(world: World, command: cmd.ChangePolicy, now: int) -> Answer:
    """The same again is no change, whatever version it was meant for: a wish may be sent twice."""
    version = world.policy_version
    if version and command.policy == world.policy:
        return ()
    if command.if_version not in {-1, version}:
        return Refused(
            f"the policy in force is version {version} ({world.policy.name!r}), not {command.if_version}: "
            "it was changed meanwhile",
            f"look at what changed; then say version {version}",
        )
    return (ev.PolicyChanged(now, version + 1, command.policy, command.by, command.note),)


# -- nodes -------------------------------------------------------------------------------------------------


def _set_node(world: World, command: cmd.SetNode, now: int) -> Answer:
    node = command.node
    known = world.nodes.get(node.name)
    if known is not None and known.pool != node.pool:
        return Refused(f"node {node.name} is in pool {known.pool!r}", "give the node another name in the other pool")
    if not node.name or not node.capacity or not all(0 <= amount <= AMOUNT_MAX for _, amount in node.capacity):
        return Refused("a node needs a name, and amounts that are not negative", "correct the node")
    if not rises(name for name, _ in node.capacity):
        return Refused("a resource is named twice, or not in order", "name each once, sorted by name")
    return _by_operator(world, node, now)


def _set_node_state(world: World, command: cmd.SetNodeState, now: int) -> Answer:
    node = world.nodes.get(command.name)
    if node is None:
        return Refused(f"there is no node {command.name!r}", "look at the nodes for their names")
    state = command.state
    if state is NodeState.DRAINING and not world.runs_on(node.name):
        state = NodeState.DRAINED
    elif state is NodeState.DRAINED and world.runs_on(node.name):
        state = NodeState.DRAINING
    return _by_operator(world, replace(node, state=state, why=command.why), now)


def _by_operator(world: World, node: Node, now: int) -> tuple[ev.Event, ...]:
    """Nothing is held against the node any more, and nothing tried there: an operator knows better."""
    known = node.name in world.suspects or node.name in world.marks
    cleared: tuple[ev.Event, ...] = (ev.NodeCleared(now, node.name),) if known else ()
    if not cleared and world.nodes.get(node.name) == node:
        return ()
    return (*cleared, ev.NodeChanged(now, node), *lost_with(world, node.name, node.state, node.why, now))


def lost_with(world: World, name: str, state: NodeState, why: str, now: int) -> tuple[ev.Event, ...]:
    """What a node takes along when it goes down."""
    if state is not NodeState.DOWN:
        return ()
    why = f"node {name} went down: {why or 'no reason given'}"
    return tuple([lose(world, run.task, run.attempt, why, now) for run in world.runs_on(name)])
