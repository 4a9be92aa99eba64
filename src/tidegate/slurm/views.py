"""Jobs and tasks as Slurm's commands see them: live or ended, each with the same questions."""

from collections.abc import Iterable, Iterator
from functools import lru_cache

from tidegate.model.base import ARRAY_BITS, index_of, job_of
from tidegate.model.events import Placement
from tidegate.model.history import Ending
from tidegate.model.jobs import CPUS, GPUS, MEMORY, NOTHING_KNOWN, Job, Outcome, Used
from tidegate.model.slurm import Slurm
from tidegate.slurm.ask import NEVER
from tidegate.slurm.words import UNLIMITED, size, uid_of
from tidegate.wire.arrays import format_indices
from tidegate.wire.hostlist import compress
from tidegate.wire.slurm import Layout, raw_id
from tidegate.world.arrays import turns
from tidegate.world.pauses import is_suspended
from tidegate.world.records import Run
from tidegate.world.world import World

MILLI = 1000
PRIORITY = 4_294_901_760
"""Slurm's basic priority counts down from there, job by job."""
NO_SLURM = Slurm()
GROUP = -1
"""As the index: the tasks of an array that wait, together."""
SHORT = {
    "PENDING": "PD", "RUNNING": "R", "SUSPENDED": "S", "COMPLETED": "CD", "CANCELLED": "CA", "FAILED": "F",
    "TIMEOUT": "TO", "NODE_FAIL": "NF", "PREEMPTED": "PR", "BOOT_FAIL": "BF", "DEADLINE": "DL",
    "OUT_OF_MEMORY": "OOM", "COMPLETING": "CG", "CONFIGURING": "CF", "REQUEUED": "RQ", "RESIZING": "RS",
    "REVOKED": "RV", "SIGNALING": "SI", "SPECIAL_EXIT": "SE", "STAGE_OUT": "SO", "STOPPED": "ST",
    "REQUEUE_HOLD": "RH", "REQUEUE_FED": "RF", "RESV_DEL_HOLD": "RD",
}  # fmt: skip
LONG = {short: long for long, short in SHORT.items()}
ORDER = {name: place for place, name in enumerate(("PENDING", "RUNNING", "SUSPENDED", "COMPLETING"))}
ENDS = {
    Outcome.COMPLETED: "COMPLETED", Outcome.FAILED: "FAILED", Outcome.OUT_OF_MEMORY: "OUT_OF_MEMORY",
    Outcome.CANCELLED: "CANCELLED", Outcome.TIMED_OUT: "TIMEOUT", Outcome.LOST: "NODE_FAIL",
    Outcome.MISSED_DEADLINE: "DEADLINE", Outcome.DEPENDENCY_FAILED: "CANCELLED",
}  # fmt: skip
REASONS = {
    Outcome.TIMED_OUT: "TimeLimit", Outcome.OUT_OF_MEMORY: "OutOfMemory", Outcome.LOST: "NodeDown",
    Outcome.MISSED_DEADLINE: "DeadLine", Outcome.DEPENDENCY_FAILED: "DependencyNeverSatisfied",
    Outcome.FAILED: "NonZeroExitCode",
}  # fmt: skip
OVER = frozenset(ENDS.values()) | {"REQUEUED", "PREEMPTED"}


class View:
    """One row: a job, a task of an array, or all the waiting tasks of one (`index` GROUP)."""

    __slots__ = (
        "attempt", "code", "end_ms", "final", "index", "indices", "job", "nodes", "reason", "said", "signal",
        "start_ms", "state", "used", "why",
    )  # fmt: skip

    def __init__(self, job: Job, state: str, index: int | None, nodes: Placement = ()) -> None:
        self.job = job
        self.said = slurm_of(job)
        self.state = state
        self.index = index  # None: no array
        self.indices: tuple[int, ...] = ()  # of a group
        self.reason = "None"
        self.start_ms = -1
        self.end_ms = -1
        self.nodes = nodes
        self.code = 0
        self.signal = 0
        self.attempt = 0
        self.used: Used = NOTHING_KNOWN
        self.why = ""
        self.final = True

    # -- names -------------------------------------------------------------------------------------------

    @property
    def id_text(self) -> str:
        if self.index is None:
            return str(self.job.id)
        return f"{self.job.id}_[{self.tasks_text}]" if self.index == GROUP else f"{self.job.id}_{self.index}"

    @property
    def tasks_text(self) -> str:
        if self.index is None:
            return "N/A"
        if self.index != GROUP:
            return str(self.index)
        at_once = self.job.spec.array.at_once_max if self.job.spec.array is not None else 0
        return format_indices(self.indices) + (f"%{at_once}" if at_once else "")

    @property
    def raw(self) -> int:
        return self.job.id if self.index in {None, GROUP} else raw_id(self.job, self.index or 0)

    @property
    def task(self) -> int:
        return self.job.id << ARRAY_BITS | max(0, self.index or 0)

    @property
    def account(self) -> str:
        return self.said.account or self.job.spec.user

    @property
    def qos(self) -> str:
        return self.said.qos or self.job.spec.klass

    @property
    def priority(self) -> int:
        return 0 if self.reason == "JobHeldUser" else max(1, PRIORITY - self.job.id)

    # -- what it asked for -------------------------------------------------------------------------------

    @property
    def cpus(self) -> int:
        shape = self.job.spec.shape
        if self.said.exclusive and not self.nodes:  # whole nodes are known when it has them
            return max(self.said.tasks, shape.count) * (self.said.cpus_per_task or 1)
        return max(1, dict(shape.chunk).get(CPUS, 0) * shape.count // MILLI)

    @property
    def gpus(self) -> int:
        shape = self.job.spec.shape
        return dict(shape.chunk).get(GPUS, 0) * shape.count // MILLI

    @property
    def memory_mib(self) -> int:
        shape = self.job.spec.shape
        if self.said.cpu_memory_mib:
            return self.said.cpu_memory_mib * self.cpus
        return dict(shape.chunk).get(MEMORY, 0) * shape.count

    @property
    def node_count(self) -> int:
        shape = self.job.spec.shape
        return len(self.nodes) or (1 if shape.stack else shape.count)

    @property
    def tasks(self) -> int:
        return self.said.tasks or self.node_count

    @property
    def memory_text(self) -> str:
        """What was asked, of a processor or a node."""
        return size(self.said.cpu_memory_mib or self.said.node_memory_mib or self.memory_mib)

    @property
    def limit_ms(self) -> int:
        return UNLIMITED if self.said.timeless else self.job.spec.limit_ms

    @property
    def tres(self) -> str:
        memory = f",mem={size(self.memory_mib)}" if self.memory_mib else ""
        gpus = f",gres/gpu={self.gpus}" if self.gpus else ""
        return f"cpu={self.cpus}{memory},node={self.node_count},billing={self.cpus}{gpus}"

    @property
    def sorted_tres(self) -> str:
        gpus = f",gres/gpu={self.gpus}" if self.gpus else ""
        memory = f",mem={size(self.memory_mib)}" if self.memory_mib else ""
        return f"billing={self.cpus},cpu={self.cpus}{gpus}{memory},node={self.node_count}"

    # -- how it goes -------------------------------------------------------------------------------------

    def elapsed_ms(self, now: int) -> int:
        if self.start_ms < 0:
            return 0
        return max(0, (self.end_ms if self.end_ms >= 0 else now) - self.start_ms)

    @property
    def node_list(self) -> str:
        return compress([name for name, _ in self.nodes])

    @property
    def layout(self) -> Layout:
        return Layout(self.job, self.nodes)

    @property
    def canceller(self) -> str:
        """By whom it was cancelled, as a number; empty: nobody says."""
        _, found, name = self.why.partition("cancelled by ")
        return str(uid_of(name.split(" ", maxsplit=1)[0])) if found else "0"


@lru_cache(4096)
def slurm_of(job: Job) -> Slurm:
    work = job.spec.work
    return work.slurm if work is not None and work.slurm is not None else NO_SLURM


# -- live ----------------------------------------------------------------------------------------------------


def live(world: World, jobs: Iterable[Job]) -> Iterator[View]:
    """Each task that runs has a row, those that wait one together."""
    of_arrays: dict[int, list[Run]] = {}
    if world.arrays:
        for run in world.runs.values():
            if job_of(run.task) in world.arrays:
                of_arrays.setdefault(job_of(run.task), []).append(run)
    for job in jobs:
        array = job.spec.array
        if array is None:
            alone = world.runs.get(job.id << ARRAY_BITS)
            yield waiting(world, job) if alone is None else running(world, job, alone)
            continue
        if world.arrays[job.id].waiting(len(array.indices)):
            yield waiting(world, job)
        for run in of_arrays.get(job.id, ()):
            yield running(world, job, run)


def waiting(world: World, job: Job) -> View:
    view = View(job, "PENDING", None)
    view.reason = reason_of(world, job)
    array = job.spec.array
    if array is not None:
        stand = world.arrays[job.id]
        view.index = GROUP
        view.indices = tuple(sorted([*turns(stand, array.indices), *stand.resting]))
    tries = world.tries.get(job.id << ARRAY_BITS)
    view.attempt = tries.attempt if tries is not None and array is None else 0
    return view


def reason_of(world: World, job: Job) -> str:
    """Why it waits, in Slurm's word."""
    parked = world.parked.get(job.id)
    if parked is not None:
        if parked.held:
            said = slurm_of(job)
            return "Dependency" if said.after and not said.user_held else "JobHeldUser"
        return "Dependency" if parked.after else "BeginTime"
    array = job.spec.array
    if array is not None and array.at_once_max and world.arrays[job.id].running >= array.at_once_max:
        return "JobArrayTaskLimit"
    promised = world.pools[job.pool].promised
    if array is None:
        return "Resources" if not promised or job.id << ARRAY_BITS in promised else "Priority"
    return "Resources" if not promised or any(job_of(task) == job.id for task in promised) else "Priority"


def running(world: World, job: Job, run: Run) -> View:
    state = "SUSPENDED" if is_suspended(world, run.task) else "RUNNING"
    if run.task in world.halting:
        state = "COMPLETING"
    view = View(job, state, None if job.spec.array is None else index_of(run.task), run.nodes)
    view.start_ms = run.start_ms
    view.attempt = run.attempt
    return view


# -- ended ---------------------------------------------------------------------------------------------------


def ended(ending: Ending) -> Iterator[View]:
    """One a task."""
    job = ending.job
    for index in ending.indices:
        view = View(job, state_of(ending), None if job.spec.array is None else index, ending.nodes)
        view.start_ms, view.end_ms = ending.start_ms, ending.end_ms
        view.code, view.signal = (0, ending.signal) if ending.signal else (ending.code, 0)
        view.attempt, view.used, view.why, view.final = ending.attempt, ending.used, ending.why, ending.final
        view.reason = REASONS.get(ending.outcome, "None")
        if ending.outcome is Outcome.CANCELLED and NEVER in ending.why:
            view.reason = "DependencyNeverSatisfied"
        if ending.signal and ending.outcome is Outcome.FAILED:
            view.reason = "RaisedSignal:" + str(ending.signal)
        yield view


def state_of(ending: Ending) -> str:
    if ending.final:
        return ENDS[ending.outcome]
    return "PREEMPTED" if "made room" in ending.why else "REQUEUED"
