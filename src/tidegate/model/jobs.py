"""Jobs: who asks, for what shape, for how long, and under which conditions."""

from enum import StrEnum

from tidegate.model.base import FOREVER_MS, Value
from tidegate.model.slurm import Slurm

CPUS = "cpus"
MEMORY = "memory"
GPUS = "gpus"
BASE_RESOURCES = (CPUS, MEMORY, GPUS)
"""Units: milli-cpu, MiB, milli-gpu. Any other name is a plain count (licences, disks, ...)."""

GPU_LABEL = "gpu"
"""The label of a node that says which model its GPUs are."""

NODE_LABEL = "node"
"""Every node has it, without being told: its name."""

Amounts = tuple[tuple[str, int], ...]
"""Named amounts, sorted by name, zero amounts left out."""

Labels = tuple[tuple[str, tuple[str, ...]], ...]
"""Wanted node labels, sorted: (label, any of these values)."""


def amounts(**named: int) -> Amounts:
    return tuple(sorted((name, value) for name, value in named.items() if value))


class Shape(Value, frozen=True, gc=False, cache_hash=True):
    """What a job asks of nodes: `count` chunks, all at the same time or none.

    `stack` says whether several chunks may share a node (processors of a pool) or each needs
    its own (a gang of nodes).
    """

    chunk: Amounts
    count: int = 1
    stack: bool = False
    where: Labels = ()


class AfterKind(StrEnum):
    OK = "ok"
    ANY = "any"
    FAIL = "fail"


class After(Value, frozen=True, gc=False):
    """This job may start only when `job` has ended, and ended so."""

    job: int
    kind: AfterKind = AfterKind.OK


class Array(Value, frozen=True, gc=False):
    """The tasks of an array job: one record until they start."""

    indices: tuple[int, ...]
    at_once_max: int = 0  # 0: no bound


class Outcome(StrEnum):
    """How a task ended. Only these leave the world."""

    COMPLETED = "completed"
    FAILED = "failed"
    OUT_OF_MEMORY = "out_of_memory"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    MISSED_DEADLINE = "missed_deadline"
    DEPENDENCY_FAILED = "dependency_failed"


class Cause(StrEnum):
    """Why an attempt that was not cancelled ended badly."""

    EXIT = "exit"  # by itself, with a code other than 0
    SIGNAL = "signal"
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"


class RetryRule(Value, frozen=True, gc=False, omit_defaults=True):
    """One kind of end, and for exits and signals the codes from `low` to `high`."""

    cause: Cause
    low: int = 1
    high: int = 255


ANY_FAILURE = (RetryRule(Cause.EXIT), RetryRule(Cause.SIGNAL))


class Retry(Value, frozen=True, gc=False, omit_defaults=True):
    """Which bad ends are tried again, how often and how soon. Lost attempts are no fault of the job: `losses_max`."""

    times: int = 0
    on: tuple[RetryRule, ...] = ANY_FAILURE
    backoff_ms: int = 1000  # before the first retry; doubles with every other
    backoff_max_ms: int = 600_000


NO_RETRY = Retry()


class Checkpoint(Value, frozen=True, gc=False, omit_defaults=True):
    """How the job saves itself when it is asked to, so that another attempt goes on from there."""

    signal: int = 0  # what it is sent when it is asked; 0: nothing, it looks for itself
    every_ms: int = 0  # how often it is asked while it runs; 0: as the policy says
    size_mib: int = 0  # about how much it writes; 0: as the policy assumes
    where: str = ""  # a directory or a bucket for what it saves, a pattern as in Work; "": in the server's home


Pairs = tuple[tuple[str, str], ...]
"""Names and values, sorted by name."""


class Work(Value, frozen=True, gc=False, omit_defaults=True):
    """What is run. The kernel carries it to the engine and never looks inside.

    Patterns may hold %j (job), %a (array index), %t (attempt), %x (name), %u (user), %% (a percent sign).
    """

    argv: tuple[str, ...]
    script: str = ""  # text of a script; the engine writes it to a file whose path goes before `argv`
    cwd: str = "/"
    env: str = ""  # the name of a kept environment
    stdin: str = ""  # a path; "": nothing
    stdout: str = ""  # a pattern; "": a file of the server's home
    stderr: str = ""  # a pattern; "": where stdout goes
    append: bool = False
    umask: int = 0o022
    grace_ms: int = 30_000  # between being asked to end and being ended
    notify: str = ""  # a shell command that is run when the job has ended
    slurm: Slurm | None = None  # None: it did not come by Slurm's commands


class Used(Value, frozen=True, gc=False, omit_defaults=True):
    """What an attempt took, as far as the engine could tell; -1: it could not."""

    cpu_ms: int = -1
    peak_kib: int = -1
    read_kib: int = -1
    written_kib: int = -1


NOTHING_KNOWN = Used()


class JobSpec(Value, frozen=True, gc=False, omit_defaults=True, rename={"klass": "class"}):
    """What the submitter said. Everything else about a job is derived from it or decided later."""

    user: str
    shape: Shape
    limit_ms: int
    pool: str = ""  # "" asks for the default pool
    queue: str = "default"
    klass: str = "normal"
    name: str = ""
    expected_ms: int = 0  # the run time the submitter expects; 0: not said
    begin_ms: int = 0  # not before
    deadline_ms: int = FOREVER_MS  # ended by then, or not worth starting
    after: tuple[After, ...] = ()
    array: Array | None = None
    held: bool = False
    losses_max: int = 3  # lost attempts that are tried again
    retry: Retry = NO_RETRY
    checkpoint: Checkpoint | None = None
    own_fault: bool = False  # that it fails is its own affair: no node is blamed for it
    starts_over: bool = False  # it cannot save itself, and says that it may be ended and begun anew all the same
    tags: Pairs = ()
    reservation: str = ""  # runs on what is kept there, and while it is
    work: Work | None = None  # None: nothing that could run, as in a replay


class Job(Value, frozen=True, gc=False, omit_defaults=True):
    """A job as accepted: the spec, its identity, its pool, and the run time that planning assumes."""

    id: int
    submit_ms: int
    estimate_ms: int
    pool: str
    spec: JobSpec
    compared: bool = False  # with other jobs of its user: how long those ran says how long it may
