"""The Standard Workload Format: 18 numbers a line, `;` before comments, -1 for unknown.

Without a filter: processors are the allocated ones, else the requested ones. Left out are jobs without
processors, jobs without a run time (-1), and jobs cancelled before they started (status 5, no run time).
A job that ran 0 s and was not cancelled is real and stays. The limit is the requested time, else the run
time, at least 1 s; run times are kept as they are, also where they pass the limit.

`sc15` is the filter of the published simulations (SC'15, predictsim): an unknown one of allocated and
requested processors takes the value of the other; out go jobs with neither, with more of either than the
machine has, without a run time or without a requested time; the run time is cut at the requested time, and
the processors are the requested ones.
"""

import re
from pathlib import Path
from typing import NamedTuple

from tidegate.lab.traces.build import Builder, refuse_dates
from tidegate.lab.traces.fields import (
    COUNT_MAX,
    SECONDS_MAX,
    BadLineError,
    LeftOutError,
    calendar_text,
    count,
    seconds_ms,
)
from tidegate.lab.traces.table import Lines
from tidegate.lab.workload import Filter, Kind, QueueFrom, TraceError, Who, Workload
from tidegate.model.base import FOREVER_MS
from tidegate.model.jobs import CPUS, Shape

COLUMNS = 18
COLUMNS_MIN = 5
COLUMNS_USUAL_MIN = 11
CPU_MILLI = 1000
CANCELLED = 5
MS_MAX = SECONDS_MAX * 1000
HEADER = re.compile(r";\s*(MaxProcs|MaxNodes|UnixStartTime)\s*:\s*(\d{1,12})\b", re.ASCII)


class Line(NamedTuple):
    job: int
    submit_ms: int
    run_ms: int
    allocated: int
    requested: int
    requested_ms: int
    status: int
    user: int
    group: int
    queue: int
    partition: int


def is_line(text: str) -> bool:
    """Looks like a job."""
    fields = text.split()
    if len(fields) < COLUMNS_MIN:
        return False
    try:
        return all(float(field) is not None for field in fields[:COLUMNS_MIN])
    except ValueError:
        return False


def read_swf(path: Path, lines: Lines, build: Builder) -> Workload:
    refuse_dates(path, build.options)
    header: dict[str, int] = {}
    rules = Rules(path, build, header)
    problems = build.problems
    take = rules.take
    for number, text in lines:
        try:
            (
                job,
                submit,
                _,
                run,
                allocated,
                _,
                _,
                requested,
                limit,
                _,
                status,
                user,
                group,
                _,
                queue,
                part,
                _,
                _,
            ) = text.split()
            if "_" in text:  # Python would read 12_3 as 123; `parse` refuses it
                raise ValueError(text)  # noqa: TRY301 - the slow path is the same for both
            line = (
                int(job), int(submit) * 1000, int(run) * 1000, int(allocated), int(requested),
                int(limit) * 1000, int(status), int(user), int(group), int(queue), int(part),
            )  # fmt: skip
        except ValueError:
            if not text or text[0] == ";" or text.isspace():
                problems.comments += 1
                if found := HEADER.match(text):
                    header.setdefault(found[1], int(found[2]))
                continue
            line = None
        try:
            take(number, parse(number, text, build) if line is None else line)
        except BadLineError as bad:
            problems.error(number, bad.kind, str(bad))
        except LeftOutError as left:
            problems.leave_out(left.kind)
    start = header.get("UnixStartTime", 0)
    origin = calendar_text(start * 1000) if 0 < start <= SECONDS_MAX else ""
    return build.build("swf", max_procs=rules.capacity(), origin=origin)


def parse(number: int, text: str, build: Builder) -> Line:
    """Any line that is not 18 whole numbers: shorter, longer, with fractions, or wrong."""
    fields = text.split()
    if len(fields) < COLUMNS_MIN:
        raise BadLineError(Kind.MISSING_COLUMN, f"{len(fields)} numbers where a job has {COLUMNS}")
    if len(fields) < COLUMNS_USUAL_MIN:
        build.problems.note(number, Kind.SHORT_LINE, f"{len(fields)} numbers; the others count as unknown")
    if len(fields) > COLUMNS:
        build.problems.note(number, Kind.EXTRA_COLUMNS, f"{len(fields)} numbers; those after {COLUMNS} are not read")
    fields += ["-1"] * (COLUMNS - len(fields))
    names = ("status", "user", "group", "queue", "partition")
    return Line(
        count(fields[0], "the job number", FOREVER_MS),
        seconds_ms(fields[1], "the submit time"),
        seconds_ms(fields[3], "the run time"),
        count(fields[4], "allocated processors"),
        count(fields[7], "requested processors"),
        seconds_ms(fields[8], "the requested time"),
        *(count(fields[place], name) for place, name in zip((10, 11, 12, 14, 15), names, strict=True)),
    )


class Rules:
    """Which lines become jobs, and what of them."""

    def __init__(self, path: Path, build: Builder, header: dict[str, int]) -> None:
        self.path = path
        self.option = build.options.capacity
        self.queue_from = build.options.queue_from
        self.build = build
        self.header = header
        self.judge = self.judge_sc15 if build.options.filter is Filter.SC15 else self.judge_plainly
        self.shapes: dict[int, int] = {}  # processors -> interned shape
        self.whos: dict[tuple[int, int], int] = {}  # (user, queue number) -> interned who

    def capacity(self) -> int:
        """Processors of the machine; a log that names only its nodes has one processor each."""
        return self.option or self.header.get("MaxProcs", 0) or self.header.get("MaxNodes", 0)

    def take(self, number: int, line: "Line | tuple[int, ...]") -> None:
        job, submit, run, allocated, requested, limit, status, user, group, queue, part = line
        if not 0 <= submit <= MS_MAX:
            kind = Kind.NEGATIVE_TIME if submit < 0 else Kind.OUT_OF_RANGE
            raise BadLineError(kind, f"the submit time is {submit // 1000} s")
        if run > MS_MAX or limit > MS_MAX or allocated > COUNT_MAX or requested > COUNT_MAX:
            raise BadLineError(Kind.OUT_OF_RANGE, "a time of more than a century, or more processors than exist")
        procs, run, limit = self.judge(run, allocated, requested, limit, status)
        shape = self.shapes.get(procs)
        if shape is None:
            unit = Shape(chunk=((CPUS, CPU_MILLI),), count=procs, stack=True)
            shape = self.shapes[procs] = self.build.shape(unit)
        named = self.queue_number(group, queue, part)
        who = self.whos.get((user, named))
        if who is None:
            who = self.whos[user, named] = self.build.who(self.describe(user, named))
        self.build.add(number, job, at_ms=submit, run_ms=run, limit_ms=limit, shape=shape, who=who, job=job)

    def judge_plainly(self, run: int, allocated: int, requested: int, limit: int, status: int) -> tuple[int, int, int]:
        if run <= 0:
            if run < -1000:
                raise BadLineError(Kind.NEGATIVE_TIME, f"the run time is {run // 1000} s; unknown is -1")
            if status == CANCELLED:
                raise LeftOutError(Kind.CANCELLED_BEFORE_START)
            if run < 0:
                raise LeftOutError(Kind.NO_RUN_TIME)
        procs = allocated if allocated > 0 else requested
        if procs <= 0:
            raise LeftOutError(Kind.NO_PROCESSORS)
        capacity = self.capacity()
        if procs > capacity > 0:
            raise BadLineError(Kind.TOO_LARGE, f"{procs:,} processors, and the machine has {capacity:,}")
        return procs, run, limit if limit > 0 else run

    def judge_sc15(self, run: int, allocated: int, requested: int, limit: int, status: int) -> tuple[int, int, int]:
        del status  # cancelled jobs that ran count, as published
        capacity = self.capacity()
        if not capacity:
            raise TraceError(
                f"{self.path} does not say how many processors its machine has (MaxProcs), "
                "and filter sc15 depends on it: give the capacity"
            )
        procs = requested if requested > 0 else allocated
        if procs <= 0:
            raise LeftOutError(Kind.FILTERED_NO_PROCESSORS)
        if max(procs, allocated) > capacity:
            raise LeftOutError(Kind.FILTERED_TOO_LARGE)
        if run <= 0:
            raise LeftOutError(Kind.FILTERED_NO_RUN_TIME)
        if limit <= 0:
            raise LeftOutError(Kind.FILTERED_NO_REQUESTED_TIME)
        return procs, min(run, limit), limit

    def queue_number(self, group: int, queue: int, partition: int) -> int:
        match self.queue_from:
            case QueueFrom.DEFAULT:
                return -1
            case QueueFrom.GROUP:
                return group
            case QueueFrom.QUEUE:
                return queue
            case QueueFrom.PARTITION:
                return partition

    def describe(self, user: int, queue: int) -> Who:
        letter = self.queue_from.value[0]  # g12, q3, p1
        return Who(f"u{user}" if user >= 0 else "unknown", f"{letter}{queue}" if queue >= 0 else "default")
