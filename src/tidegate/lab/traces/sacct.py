"""Exports of a real Slurm: `sacct -P`, columns in any order. What is needed is in `EXPORT`.

Steps (12.batch, 12.0) are left out, so are jobs that have not ended, never started, or were requeued (the
row of their last run counts). A job that wants several nodes, memory or GPUs becomes one chunk a node;
one that wants processors only becomes stackable single processors, as in SWF. With a pools file the
partition is the pool, and resources that the file says nothing about are not asked for; without one, jobs
go to the default pool. Account, QOS or Partition is the queue on request; QOS is the class.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path

from tidegate.lab.traces.build import Builder, Dates
from tidegate.lab.traces.fields import (
    AMOUNT_MAX,
    SECONDS_MAX,
    BadLineError,
    LeftOutError,
    calendar_ms,
    count,
    number,
    quoted,
    time_ms,
)
from tidegate.lab.traces.machine import CPU_MILLI, GPU_MILLI, Machine, read_pools
from tidegate.lab.traces.table import Header, Row, Table, read_rows
from tidegate.lab.workload import UNLIMITED_MS, Kind, QueueFrom, TraceError, Who, Workload
from tidegate.model.jobs import CPUS, GPUS, MEMORY, Shape, amounts

EXPORT = (
    "sacct -a -X -P -S 2025-01-01 -E now -o JobIDRaw,JobID,User,Account,Partition,QOS,State,"
    "Submit,Start,End,ElapsedRaw,TimelimitRaw,NNodes,ReqCPUS,AllocCPUS,ReqMem,ReqTRES,AllocTRES"
)
NEEDED = (
    ("JobIDRaw", "JobID"),
    ("User",),
    ("State",),
    ("Submit",),
    ("ElapsedRaw", "Elapsed", "Start+End"),
    ("TimelimitRaw", "Timelimit"),
    ("NNodes",),
    ("AllocCPUS", "NCPUS", "ReqCPUS"),
)
Cells = Mapping[str, str]

ABSENT = frozenset({"", "unknown", "none", "n/a", "none assigned", "invalid"})
UNLIMITED = frozenset({"unlimited", "partition_limit"})
NOT_ENDED = frozenset(
    {
        "PENDING",
        "RUNNING",
        "SUSPENDED",
        "CONFIGURING",
        "COMPLETING",
        "RESIZING",
        "SIGNALING",
        "STAGE_OUT",
        "STOPPED",
    }
)
REQUEUED = frozenset({"REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
DURATION = re.compile(r"(?:(\d{1,9})-)?(\d{1,12})(?::(\d{1,9}))?(?::(\d{1,9}))?(\.\d*)?", re.ASCII)
MEMORY_ASKED = re.compile(r"(\d{1,18}(?:\.\d*)?)([KMGTPE]?)B?([cn]?)", re.ASCII | re.IGNORECASE)
KIB_SHIFT = {"K": 0, "": 10, "M": 10, "G": 20, "T": 30, "P": 40, "E": 50}
EPOCH_DIGITS_MIN = 9


def read_sacct(table: Table, build: Builder) -> Workload:
    options = build.options
    _require(table.path, table.header)
    machine = read_pools(options.pools_file, 0) if options.pools_file else Machine()
    if machine.nodes and CPUS not in machine.resources:
        raise TraceError(f"{options.pools_file} needs a column cpus_per_node for jobs of Slurm")
    take = Jobs(table.header, machine, build).take
    read_rows(table, build.problems, take)
    return build.build("sacct", machine.nodes, options.capacity, dated=True)


def _require(path: Path, header: Header) -> None:
    missing = [
        " or ".join(choices)
        for choices in NEEDED
        if not any(header.has(*choice.lower().split("+")) for choice in choices)
    ]
    if missing:
        raise TraceError(f"{path} lacks the columns {', '.join(missing)}; export with: {EXPORT}")


class Jobs:
    """Turns rows into jobs."""

    def __init__(self, header: Header, machine: Machine, build: Builder) -> None:
        self.names = header.names
        self.queue_from = build.options.queue_from
        self.capacity = build.options.capacity
        self.machine = machine
        self.build = build
        self.dates = Dates(build.options)

    def take(self, line: int, row: Row) -> None:
        cells = dict(zip(self.names, row, strict=False))  # one more field stands for absent columns
        get = cells.get
        label = get("jobid") or get("jobidraw") or ""
        state = get("state", "").split(" ")[0].rstrip("+").upper()
        if not label or not state:
            raise BadLineError(Kind.MISSING_COLUMN, "no JobID or no State")
        if "." in label:
            raise LeftOutError(Kind.STEP)
        if state in NOT_ENDED:
            raise LeftOutError(Kind.NOT_ENDED)
        if state in REQUEUED:
            raise LeftOutError(Kind.REQUEUED)
        at_ms = instant(get("submit", ""), "Submit")
        if at_ms is None:
            raise BadLineError(Kind.MISSING_COLUMN, "no Submit time")
        self.dates.check(at_ms)
        run_ms = run_time(cells)
        if run_ms == 0 and not allocated(cells):
            raise LeftOutError(Kind.CANCELLED_BEFORE_START if state == "CANCELLED" else Kind.NEVER_STARTED)
        limit_ms = duration(get("timelimitraw") or get("timelimit", ""), bool(get("timelimitraw")))
        raw = get("jobidraw") or label
        job = int(raw) if raw.isascii() and raw.isdigit() and len(raw) < 16 else 0
        shape, who = self.shape(cells), self.who(cells)
        self.machine.check(who.pool, shape)
        self.build.add(
            line,
            job if label == str(job) else label,
            at_ms=at_ms,
            run_ms=run_ms,
            limit_ms=max(UNLIMITED_MS, run_ms) if limit_ms is None else limit_ms,
            shape=self.build.shape(shape),
            who=self.build.who(who),
            job=job,
        )

    def shape(self, cells: Cells) -> Shape:
        tres = parse_tres(cells.get("alloctres") or cells.get("reqtres", ""))
        cpus = _first_count(cells, ("alloccpus", "ncpus", "reqcpus")) or _number_of(tres, "cpu")
        if cpus <= 0:
            raise LeftOutError(Kind.NO_PROCESSORS)
        if cpus > self.capacity > 0:
            raise BadLineError(Kind.TOO_LARGE, f"{cpus:,} processors, and the machine has {self.capacity:,}")
        nodes = max(1, _first_count(cells, ("nnodes", "allocnodes")))
        gpus = _gpus(tres)
        memory = memory_mib(tres["mem"], 1, 1) if "mem" in tres else memory_mib(cells.get("reqmem", ""), cpus, nodes)
        chunk = amounts(
            **{
                CPUS: -(-cpus * CPU_MILLI // nodes),
                MEMORY: -(-memory // nodes),
                GPUS: -(-gpus // nodes) * GPU_MILLI,  # a node cannot lend a part of one
            }
        )
        chunk = self.machine.declared(chunk)
        if nodes == 1 and len(chunk) == 1:
            return Shape(chunk=((CPUS, CPU_MILLI),), count=cpus, stack=True)
        return Shape(chunk=chunk, count=nodes)

    def who(self, cells: Cells) -> Who:
        partition = cells.get("partition", "")
        pool = partition if self.machine.nodes else ""
        if pool not in self.machine.pools and self.machine.nodes:
            raise LeftOutError(Kind.UNKNOWN_POOL)
        columns = {QueueFrom.GROUP: "account", QueueFrom.QUEUE: "qos", QueueFrom.PARTITION: "partition"}
        queue = cells.get(columns.get(self.queue_from, ""), "")
        return Who(cells.get("user") or "unknown", queue or "default", pool, cells.get("qos", "").lower() or "normal")


def instant(text: str, what: str) -> int | None:
    """Slurm's local time, or seconds since 1970 where SLURM_TIME_FORMAT asked for those."""
    if text.lower() in ABSENT:
        return None
    if text.isascii() and text.isdigit() and len(text) >= EPOCH_DIGITS_MIN:
        return time_ms(text, what)
    return calendar_ms(text, what)


def run_time(cells: Cells) -> int:
    elapsed = cells.get("elapsedraw", "")
    if elapsed:
        return time_ms(elapsed, "ElapsedRaw")
    if cells.get("elapsed", "").lower() not in ABSENT:
        return duration(cells["elapsed"], False) or 0
    start, end = instant(cells.get("start", ""), "Start"), instant(cells.get("end", ""), "End")
    if end is None:
        raise LeftOutError(Kind.NO_RUN_TIME)
    if start is None:
        return 0
    if end < start:
        raise BadLineError(Kind.NEGATIVE_TIME, f"it ended at {quoted(cells['end'])}, before it started")
    return end - start


def allocated(cells: Cells) -> bool:
    """It had nodes: tells a job that ran 0 s from one that never ran, where the export says so."""
    if "alloctres" in cells:
        return bool(cells["alloctres"])
    if "nodelist" in cells:
        return cells["nodelist"].lower() not in ABSENT
    if cells.get("alloccpus"):
        return cells["alloccpus"] != "0"
    if "start" in cells:
        return cells["start"].lower() not in ABSENT
    return not cells["state"].upper().startswith("CANCELLED")


def duration(text: str, in_minutes: bool) -> int | None:
    """`D-HH:MM:SS`, `HH:MM:SS`, `MM:SS`, or a bare number of minutes; None: no limit."""
    if text.lower() in UNLIMITED or text.lower() in ABSENT:
        return None
    found = DURATION.fullmatch(text)
    if found is None or (in_minutes and not text.isdigit()):
        raise BadLineError(Kind.UNREADABLE, f"no length of time: {quoted(text)}")
    days, *clock = found.groups()[:4]
    parts = [int(part) for part in clock if part is not None]
    if days is not None:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, minutes, seconds = (0, *parts, 0)[:3]
    total = int(days or 0) * 86_400 + hours * 3600 + minutes * 60 + seconds
    if total > SECONDS_MAX:
        raise BadLineError(Kind.OUT_OF_RANGE, f"{quoted(text)} is more than a century")
    return total * 1000


def parse_tres(text: str) -> dict[str, str]:
    """`billing=2,cpu=2,mem=200M,gres/gpu=2` as a dict."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _gpus(tres: Mapping[str, str]) -> int:
    """All of them; where only typed ones are listed (`gres/gpu:a100=2`), their sum."""
    if "gres/gpu" in tres:
        return _number_of(tres, "gres/gpu")
    return sum(_number_of(tres, name) for name in tres if name.startswith("gres/gpu:"))


def _number_of(tres: Mapping[str, str], name: str) -> int:
    return max(0, count(tres.get(name, "0"), name))


def _first_count(cells: Cells, names: tuple[str, ...]) -> int:
    """The first of these columns that says something above zero."""
    for name in names:
        text = cells.get(name, "")
        if text.lower() in ABSENT:
            continue
        value = count(text.partition("-")[0] or text, name)  # a waiting job may ask for "1-2" nodes
        if value > 0:
            return value
    return 0


def memory_mib(text: str, cpus: int, nodes: int) -> int:
    """`4G` of the job, `2000Mc` a processor, `4Gn` a node; as the job's total, rounded up."""
    if text.lower() in ABSENT or text == "?":
        return 0
    found = MEMORY_ASKED.fullmatch(text)
    if found is None:
        raise BadLineError(Kind.UNREADABLE, f"no amount of memory: {quoted(text)}")
    value, unit, per = found.groups()
    times = {"c": cpus, "n": nodes}.get(per.lower(), 1)
    kib = number(value, "memory") * (1 << KIB_SHIFT[unit.upper()]) * times
    if kib > AMOUNT_MAX:
        raise BadLineError(Kind.OUT_OF_RANGE, f"{quoted(text)} of memory, more than anything real")
    return -(-math.ceil(kib) // 1024)
