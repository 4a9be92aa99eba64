"""Pods of the openb cluster (Alibaba, 2023): shares of GPUs, with the models a pod may run on.

A pod ran from `scheduled_time`, or from `creation_time` where that is empty, to `deletion_time`. Some of
the published lists have requests only; with `run_s` their pods all arrive at once, in order, and run that
long. Limits are not recorded: `UNLIMITED_MS`. The QoS, in lower case, is the class.
"""

from tidegate.lab.traces.build import Builder, refuse_dates
from tidegate.lab.traces.fields import AMOUNT_MAX, BadLineError, LeftOutError, count, quoted, time_ms
from tidegate.lab.traces.machine import ONLY_POOL, Machine, read_nodes
from tidegate.lab.traces.table import Header, Row, Table, read_rows
from tidegate.lab.workload import UNLIMITED_MS, Kind, TraceError, Who, Workload
from tidegate.model.jobs import CPUS, GPUS, MEMORY, Labels, Shape, amounts

REQUESTS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIMES = ("creation_time", "deletion_time", "scheduled_time")
USER = "openb"  # the trace has no users


def read_pods(table: Table, build: Builder) -> Workload:
    path, header, options = table.path, table.header, build.options
    header.require(path, REQUESTS, "a list of openb pods")
    refuse_dates(path, options)
    timed = header.has("creation_time", "deletion_time")
    if not timed and options.run_s <= 0:
        raise TraceError(
            f"{path} lists requests without creation_time and deletion_time: "
            "give run_s, and all its pods arrive at once and run that many seconds"
        )
    machine = read_nodes(options.nodes_file) if options.nodes_file else Machine()
    name_at, qos_at = header.at("name"), header.at("qos")
    times_at = [header.at(name) for name in TIMES]

    def take(line: int, row: Row) -> None:
        shape = _shape(row, header)
        at_ms, run_ms = _times(*(row[at] for at in times_at)) if timed else (0, options.run_s * 1000)
        machine.check(ONLY_POOL, shape)
        who = Who(USER, klass=row[qos_at].lower() or "normal")
        if timed and not row[times_at[2]]:
            message = "never scheduled; it counts as running since its creation"
            build.problems.note(line, Kind.RUN_FROM_CREATION, message)
        build.add(
            line,
            row[name_at],
            at_ms=at_ms,
            run_ms=run_ms,
            limit_ms=max(UNLIMITED_MS, run_ms),
            shape=build.shape(shape),
            who=build.who(who),
        )

    read_rows(table, build.problems, take)
    return build.build("openb", machine.nodes)


def _shape(row: Row, header: Header) -> Shape:
    cpu, memory, gpus, gpu_milli = (count(row[header.at(name)], name, AMOUNT_MAX >> 20) for name in REQUESTS[1:])
    if min(cpu, memory, gpus, gpu_milli) < 0:
        raise BadLineError(Kind.OUT_OF_RANGE, "a request is negative")
    chunk = amounts(**{CPUS: cpu, MEMORY: memory, GPUS: gpus * gpu_milli})
    if not chunk:
        raise LeftOutError(Kind.NO_PROCESSORS)
    if sum(amount for _, amount in chunk) > AMOUNT_MAX:
        raise BadLineError(Kind.OUT_OF_RANGE, "a request is larger than anything real")
    models = row[header.at("gpu_spec")]
    where: Labels = (("gpu", tuple(sorted(set(models.split("|"))))),) if models else ()
    return Shape(chunk=chunk, where=where)


def _times(creation: str, deletion: str, scheduled: str) -> tuple[int, int]:
    """(arrival, run time)"""
    at_ms = time_ms(creation, "creation_time")
    if not deletion:
        raise LeftOutError(Kind.NOT_ENDED)
    run_ms = time_ms(deletion, "deletion_time") - (time_ms(scheduled, "scheduled_time") if scheduled else at_ms)
    if run_ms < 0:
        raise BadLineError(Kind.NEGATIVE_TIME, f"deleted at {quoted(deletion)}, before it ran")
    return at_ms, run_ms
