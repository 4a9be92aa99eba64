"""Jobs, tasks and nodes as clients see them."""

from collections.abc import Iterable, Iterator

from tidegate.model.base import ARRAY_BITS, index_of, job_of, task_key
from tidegate.model.jobs import CPUS, GPUS, MEMORY, Job, Shape
from tidegate.wire import states
from tidegate.wire.api import JobRow, NodeRow, SavedBody
from tidegate.wire.arrays import format_indices
from tidegate.wire.outputs import checkpoints_of
from tidegate.world.arrays import turns
from tidegate.world.pauses import is_suspended
from tidegate.world.pool import CLOSED, Pool
from tidegate.world.records import NO_TRIES, Pause, Run
from tidegate.world.world import World

MILLI = 1000


def live_rows(world: World, jobs: Iterable[Job], *, named: bool = True) -> Iterator[JobRow]:
    """Tasks that have been started each have a row; those of an array that wait share one, the first. To name them
    takes as long as they are many, so who only counts them says so.
    """
    of_arrays: dict[int, list[Run]] = {}
    if world.arrays:
        for run in world.runs.values():
            if job_of(run.task) in world.arrays:
                of_arrays.setdefault(job_of(run.task), []).append(run)
    for job in jobs:
        array = job.spec.array
        if array is None:
            alone = world.runs.get(job.id << ARRAY_BITS)
            yield waiting_row(world, job, named=named) if alone is None else running_row(world, job, alone)
            continue
        if world.arrays[job.id].waiting(len(array.indices)):
            yield waiting_row(world, job, named=named)
        for run in of_arrays.get(job.id, ()):
            yield running_row(world, job, run)


def job_row(job: Job, state: str) -> JobRow:
    """What every row of the job says."""
    spec = job.spec
    cpus, memory, gpus = amounts_of(spec.shape)
    return JobRow(
        id=job.id, state=state, name=spec.name, user=spec.user, queue=spec.queue, klass=spec.klass, pool=job.pool,
        submit_ms=job.submit_ms, limit_ms=spec.limit_ms, cpus=cpus / MILLI, memory_mib=memory, gpus=gpus // MILLI,
        node_count=1 if spec.shape.stack else spec.shape.count, tags=dict(spec.tags),
    )  # fmt: skip


def amounts_of(shape: Shape) -> tuple[int, int, int]:
    """Milli-cpus, MiB and milli-gpus of one chunk."""
    cpus = memory = gpus = 0
    for name, amount in shape.chunk:
        if name == CPUS:
            cpus = amount
        elif name == MEMORY:
            memory = amount
        elif name == GPUS:
            gpus = amount
    return cpus, memory, gpus


def waiting_row(world: World, job: Job, *, named: bool) -> JobRow:
    state, reason = waiting_state(world, job)
    row = job_row(job, state)
    row.reason = reason
    array = job.spec.array
    if array is None:
        tries = world.tries.get(job.id << ARRAY_BITS)
        row.attempts = tries.attempt if tries is not None else 0
    else:
        stand = world.arrays[job.id]
        row.tasks = stand.waiting(len(array.indices))
        if named:
            row.indices = format_indices(sorted([*turns(stand, array.indices), *stand.resting]))
    return row


def waiting_state(world: World, job: Job) -> tuple[str, str]:
    parked = world.parked.get(job.id)
    if parked is None:
        return states.WAITING, waits_for(world, job)
    if parked.held:
        return states.HELD, "held; `tide release` lets it go"
    if parked.after:
        return states.WAITING, "after " + ", ".join(f"{after.job}:{after.kind}" for after in parked.after[:8])
    tries = world.tries.get(job.id << ARRAY_BITS)
    if tries is not None and tries.attempt:
        return states.WAITING, f"attempt {tries.attempt} ended badly; it is tried again after a pause"
    reserved = world.reservations.get(job.spec.reservation)
    if reserved is not None and parked.begin_ms == reserved.spec.start_ms:
        return states.WAITING, f"for reservation {job.spec.reservation} to begin"
    return states.WAITING, "for its earliest start" if parked.begin_ms else "about to be ready"


def waits_for(world: World, job: Job) -> str:
    array = job.spec.array
    if array is not None:
        state = world.arrays[job.id]
        if array.at_once_max and state.running >= array.at_once_max:
            return f"{array.at_once_max} of its tasks run, as many as it asked for at once"
    if world.promises and any(job_of(task) == job.id for task in world.pools[job.pool].promised):
        return "for room; it is promised a start"
    return "for room, or for its turn"


def running_row(world: World, job: Job, run: Run) -> JobRow:
    row = job_row(job, running_state(world, run))
    if job.spec.array is not None:
        row.index = index_of(run.task)
    row.start_ms = run.start_ms
    row.attempts = run.attempt
    row.nodes = [name for name, _ in run.nodes]
    if row.state == states.SUSPENDED:
        row.reason = why_suspended(world.pauses[run.task])
    return row


def why_suspended(pause: Pause) -> str:
    return f"{pause.by}; " + ("`tide resume` lets it go on" if pause.held else "it goes on when its cpus are free")


def running_state(world: World, run: Run) -> str:
    if run.task in world.halting:
        return states.ENDING
    if is_suspended(world, run.task):
        return states.SUSPENDED
    return states.STARTING if run.task in world.launching else states.RUNNING


def saved_body(world: World, job: Job, index: int, home: str) -> SavedBody | None:
    """None of a job that cannot save itself. What an ended one has saved is gone from the world."""
    if job.spec.checkpoint is None:
        return None
    task = task_key(job.id, index)
    save, run, tries = world.saves.get(task), world.runs.get(task), world.tries.get(task, NO_TRIES)
    body = SavedBody(
        where=checkpoints_of(home, job, index), signal=job.spec.checkpoint.signal, asked=0, open_since_ms=None,
        next_ms=None, saved_ms=None, size_mib=0, kept_ms=tries.kept_ms, restarts=tries.attempt,
    )  # fmt: skip
    if save is not None and run is not None:
        body.asked, body.size_mib, body.restarts = save.number, save.size_mib, run.attempt - 1
        body.open_since_ms = save.asked_ms if save.is_open else None
        body.next_ms = save.next_ms or None
        body.saved_ms = run.start_ms + save.kept_ms if save.kept_ms else None
        body.kept_ms += save.kept_ms
    return body


def node_rows(world: World) -> Iterator[NodeRow]:
    jobs: dict[str, int] = {}
    for run in world.runs.values():
        for name, _ in run.nodes:
            jobs[name] = jobs.get(name, 0) + 1
    here: dict[str, list[str]] = {}  # node -> what is reserved there, now or later
    for called in sorted(world.reservations):
        for name, _ in world.reservations[called].nodes:
            here.setdefault(name, []).append(f"reserved: {called}")
    for name in sorted(world.nodes, key=natural):
        node = world.nodes[name]
        pool = world.pools[node.pool]
        row = pool.row_of[name]
        free = pool.free[:, row] + (CLOSED if row in pool.closed else 0)
        yield NodeRow(
            name=name, pool=node.pool, state=str(node.state), capacity=dict(node.capacity),
            free={resource: int(free[world.columns[resource]]) for resource, _ in node.capacity},
            labels=dict(node.labels), why=node.why or "; ".join([*here.get(name, ()), *_kept(world, pool, row)]),
            jobs=jobs.get(name, 0),
        )  # fmt: skip


def _kept(world: World, pool: Pool, row: int) -> Iterator[str]:
    entry = pool.kept.get(row)
    if entry is not None:
        classes = ", ".join(world.policy.kept[entry].classes) or "nobody"
        yield f"kept for {classes} by the policy ({entry})"


def natural(name: str) -> tuple[str, int, str]:
    """node2 before node10."""
    stem = name.rstrip("0123456789")
    return (stem, int(name[len(stem) :] or 0), name)
