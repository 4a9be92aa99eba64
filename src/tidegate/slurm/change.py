"""`scontrol update jobid=...`: what can be changed of a job that waits, by its name. ValueError: it makes no sense."""

from collections.abc import Callable

from msgspec.structs import replace

from tidegate.model.jobs import CPUS, MEMORY, JobSpec, Work
from tidegate.slurm.ask import pool_named
from tidegate.slurm.desk import Desk
from tidegate.slurm.views import NO_SLURM
from tidegate.slurm.words import limit_ms, memory_mib

MILLI = 1000
NAME_MAX = 200
DEFAULT_LIMIT_MS = 30 * 24 * 3_600_000

Change = Callable[[Desk, JobSpec, str], JobSpec]


def work_of(spec: JobSpec) -> Work:
    if spec.work is None:
        raise ValueError("nothing runs of it")
    return spec.work


def said(spec: JobSpec, **fields: object) -> JobSpec:
    """With another word in what Slurm's commands said."""
    work = work_of(spec)
    return replace(spec, work=replace(work, slurm=replace(work.slurm or NO_SLURM, **fields)))


def count(value: str) -> int:
    number = int(value.partition("-")[0])
    if number < 1:
        raise ValueError(value)
    return number


def time_limit(_desk: Desk, spec: JobSpec, value: str) -> JobSpec:
    """A leading sign: so much more, or less."""
    sign = value[:1] if value[:1] in {"+", "-"} and value != "-1" else ""
    ms = limit_ms(value[len(sign) :])
    if sign:
        ms = spec.limit_ms + (ms if sign == "+" else -ms)
    return said(replace(spec, limit_ms=ms if ms > 0 else DEFAULT_LIMIT_MS), timeless=ms <= 0)


def name(_desk: Desk, spec: JobSpec, value: str) -> JobSpec:
    return replace(spec, name=value[:NAME_MAX])


def comment(_desk: Desk, spec: JobSpec, value: str) -> JobSpec:
    return said(spec, comment=value)


def wckey(_desk: Desk, spec: JobSpec, value: str) -> JobSpec:
    return said(spec, wckey=value)


def partition(desk: Desk, spec: JobSpec, value: str) -> JobSpec:
    pool = pool_named(desk.world, value)
    if not pool:
        raise ValueError(value)
    return replace(spec, pool=pool)


def account(desk: Desk, spec: JobSpec, value: str) -> JobSpec:
    queue = value if value in desk.world.policy.queues else spec.queue
    return said(replace(spec, queue=queue), account=value)


def qos(desk: Desk, spec: JobSpec, value: str) -> JobSpec:
    klass = value if value in desk.world.policy.classes else spec.klass
    return said(replace(spec, klass=klass), qos=value)


def throttle(_desk: Desk, spec: JobSpec, value: str) -> JobSpec:
    if spec.array is None:
        raise ValueError("no array")
    return replace(spec, array=replace(spec.array, at_once_max=int(value)))


def amount(spec: JobSpec, resource: str, of_chunk: int) -> JobSpec:
    chunk = {**dict(spec.shape.chunk), resource: of_chunk}
    named = tuple(sorted((key, number) for key, number in chunk.items() if number))
    return replace(spec, shape=replace(spec.shape, chunk=named))


def cpus(_desk: Desk, spec: JobSpec, value: str) -> JobSpec:
    """Of the whole job."""
    return amount(spec, CPUS, -(-count(value) // spec.shape.count) * MILLI)


def memory(_desk: Desk, spec: JobSpec, value: str) -> JobSpec:
    mib = memory_mib(value)
    return said(amount(spec, MEMORY, mib), node_memory_mib=mib, cpu_memory_mib=0)


def nodes(_desk: Desk, spec: JobSpec, value: str) -> JobSpec:
    """As many chunks, one on each."""
    if spec.shape.stack and spec.shape.count > 1:
        raise ValueError("its tasks go where there is room")
    number = count(value)
    return said(replace(spec, shape=replace(spec.shape, count=number, stack=number == 1)), nodes=number)


CHANGES: dict[str, Change] = {
    "timelimit": time_limit,
    "name": name,
    "jobname": name,
    "comment": comment,
    "wckey": wckey,
    "partition": partition,
    "account": account,
    "qos": qos,
    "arraytaskthrottle": throttle,
    "numcpus": cpus,
    "mincpusnode": cpus,
    "minmemorynode": memory,
    "numnodes": nodes,
}
