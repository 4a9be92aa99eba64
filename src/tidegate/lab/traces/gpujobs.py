"""Traces of training jobs: so many GPUs, at one time, for so long. Three headers, one meaning.

None records a limit, so the limit is `UNLIMITED_MS`, or the run time where that is longer. A job that fits
a node is one chunk of GPUs; a larger one is a gang: the smallest number of equal chunks, each on its own
node. Nodes have `gpus_per_node` GPUs (8 unless said otherwise) where no pools file describes them.
"""

from pathlib import Path

from tidegate.lab.traces.build import Builder, Dates, refuse_dates
from tidegate.lab.traces.fields import BadLineError, LeftOutError, calendar_ms, count, quoted, time_ms
from tidegate.lab.traces.machine import GPU_MILLI, Machine, gang, read_pools
from tidegate.lab.traces.table import Row, Table, read_rows
from tidegate.lab.workload import UNLIMITED_MS, Kind, TraceError, TraceOptions, Who, Workload
from tidegate.model.jobs import GPUS

GPUS_MAX = 1 << 16

SIA_GPU_SECONDS = {
    "bert": 7_200,
    "cifar10": 1_800,
    "deepspeech2": 10_800,
    "imagenet": 288_000,
    "ncf": 60,
    "yolov3": 72_000,
}
"""Work of one job in GPU seconds, rounded: samples until the target accuracy over the throughput of one GPU
of the middle type (rtx) in Sia's published profiles. A workload file has no run times, because Sia decides
them while it runs; this is what a job needs on the GPUs it names, with perfect scaling."""


class Gangs:
    """GPU counts to shapes, on the nodes there are."""

    def __init__(self, path: Path, options: TraceOptions) -> None:
        if options.gpus_per_node < 1:
            raise TraceError("gpus_per_node must be at least 1")
        pools = options.pools_file
        self.machine = read_pools(pools, options.gpus_per_node) if pools else Machine()
        self.default = options.gpus_per_node
        self.per_node = {node.pool: dict(node.capacity).get(GPUS, 0) // GPU_MILLI for node in self.machine.nodes}
        self.path = path

    def only_pool(self) -> str:
        """For traces that name no pools."""
        pools = self.machine.pools
        if len(pools) > 1:
            raise TraceError(f"{self.path} names no pools, so its pools file must have one and has {len(pools)}")
        return pools[0] if pools else ""

    def add(self, build: Builder, line: int, label: str, *, gpus: int, at_ms: int, run_ms: int, who: Who) -> None:
        if gpus <= 0:
            raise LeftOutError(Kind.NO_PROCESSORS)
        if gpus > GPUS_MAX:
            raise BadLineError(Kind.OUT_OF_RANGE, f"{gpus:,} GPUs, more than anything real")
        shape = gang(gpus, self.per_node.get(who.pool) or self.default)
        self.machine.check(who.pool, shape)
        job = int(label) if label.isascii() and label.isdigit() and len(label) < 16 else 0
        limit = max(UNLIMITED_MS, run_ms)
        build.add(
            line,
            job or label,
            at_ms=at_ms,
            run_ms=run_ms,
            limit_ms=limit,
            shape=build.shape(shape),
            who=build.who(who),
            job=job,
        )


def read_philly(table: Table, build: Builder) -> Workload:
    """Philly, one line a job. The virtual cluster is pool and queue, and stands for the unknown user."""
    table.header.require(table.path, ("timestamp", "duration", "num_gpus", "cluster"), "a Philly trace")
    places = [table.header.at(name) for name in ("timestamp", "duration", "num_gpus", "cluster")]
    gangs, dates = Gangs(table.path, build.options), Dates(build.options)
    pools = frozenset(gangs.machine.pools)

    def take(line: int, row: Row) -> None:
        timestamp, duration, gpus, cluster = (row[place] for place in places)
        at_ms = calendar_ms(timestamp, "timestamp")
        run_ms = time_ms(duration, "duration")
        asked = count(gpus, "num_gpus")
        if not cluster:
            raise BadLineError(Kind.MISSING_COLUMN, "no cluster")
        dates.check(at_ms)
        if pools and cluster not in pools:
            raise LeftOutError(Kind.UNKNOWN_POOL)
        who = Who(cluster, cluster, cluster)
        gangs.add(build, line, "", gpus=asked, at_ms=at_ms, run_ms=run_ms, who=who)

    read_rows(table, build.problems, take)
    return build.build("philly", gangs.machine.nodes, dated=True)


def read_sia(table: Table, build: Builder) -> Workload:
    """A Sia workload. Run times are `run_s`, else `SIA_GPU_SECONDS` over the GPUs. Users are applications."""
    table.header.require(table.path, ("name", "time", "application", "num_replicas"), "a Sia workload")
    places = [table.header.at(name) for name in ("name", "time", "application", "num_replicas")]
    refuse_dates(table.path, build.options)
    gangs = Gangs(table.path, build.options)
    pool, run_s = gangs.only_pool(), build.options.run_s

    def take(line: int, row: Row) -> None:
        name, time, application, replicas = (row[place] for place in places)
        at_ms = time_ms(time, "time")
        gpus = count(replicas, "num_replicas")
        work_s = run_s * gpus or SIA_GPU_SECONDS.get(application, 0)
        if work_s <= 0 < gpus:
            known = ", ".join(SIA_GPU_SECONDS)
            raise BadLineError(
                Kind.UNREADABLE,
                f"no run time is known for {quoted(application)}, only for {known}: give run_s",
            )
        run_ms = work_s * 1000 // max(gpus, 1)
        who = Who(application, pool=pool, name=application)
        gangs.add(build, line, name, gpus=gpus, at_ms=at_ms, run_ms=run_ms, who=who)

    read_rows(table, build.problems, take)
    return build.build("sia", gangs.machine.nodes)


def read_gpu_jobs(table: Table, build: Builder) -> Workload:
    """`job_id,submit_time,num_gpu,duration` in any order, as Tiresias and ElasticFlow write them, in seconds.

    Users are the models trained, where there is a `model_name`. Deadlines (`ddl`) are not read.
    """
    names = ("job_id", "submit_time", "num_gpu", "duration")
    table.header.require(table.path, names, "a trace of training jobs")
    places = [table.header.at(name) for name in (*names, "model_name")]
    refuse_dates(table.path, build.options)
    gangs = Gangs(table.path, build.options)
    pool = gangs.only_pool()

    def take(line: int, row: Row) -> None:
        label, submit, gpus, duration, model = (row[place] for place in places)
        at_ms, run_ms = time_ms(submit, "submit_time"), time_ms(duration, "duration")
        who = Who(model or "unknown", pool=pool, name=model)
        asked = count(gpus, "num_gpu")
        gangs.add(build, line, label, gpus=asked, at_ms=at_ms, run_ms=run_ms, who=who)

    read_rows(table, build.problems, take)
    return build.build("gpu-jobs", gangs.machine.nodes)
