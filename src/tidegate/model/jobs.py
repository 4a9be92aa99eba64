"""Jobs: who asks, for what shape, for how long, and under which conditions."""

from enum import StrEnum

from tidegate.model.base import FOREVER_MS, Value

CPUS = "cpus"
MEMORY = "memory"
GPUS = "gpus"
BASE_RESOURCES = (CPUS, MEMORY, GPUS)
"""Units: milli-cpu, MiB, milli-gpu. Any other name is a plain count (licences, disks, ...)."""

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
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    MISSED_DEADLINE = "missed_deadline"
    DEPENDENCY_FAILED = "dependency_failed"


class JobSpec(Value, frozen=True, gc=False, rename={"klass": "class"}):
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


class Job(Value, frozen=True, gc=False):
    """A job as accepted: the spec, its identity, its pool, and the run time that planning assumes."""

    id: int
    submit_ms: int
    estimate_ms: int
    pool: str
    spec: JobSpec
