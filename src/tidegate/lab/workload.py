"""A workload: what arrived when, from whichever trace, small enough to hold a million jobs.

Jobs stay in integer columns (44 bytes each) and become `Arrival`s only while somebody iterates. What could
not be taken from the trace is in `Problems`: every line of a trace is an arrival, an error, left out by a
rule, or a comment, and the four add up to the lines of the file.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from tidegate.model.commands import Submit
from tidegate.model.jobs import JobSpec, Shape
from tidegate.model.nodes import Node

UNLIMITED_MS = 365 * 24 * 3_600_000
"""The limit of a job whose trace records none: a year, longer than any job of the traces we read."""
JOB_IDS = 1 << 40
"""Ids of a trace are kept below this; with the array index beside them they still fit 60 bits."""
SHOWN_MAX = 20
BLOCK_ROWS = 4096

IntColumn = npt.NDArray[np.int64]
SmallColumn = npt.NDArray[np.int32]


class TraceError(Exception):
    """The file as a whole cannot be read; the message says why and what to do."""


class Filter(StrEnum):
    NONE = ""
    SC15 = "sc15"  # the rules of the published simulations; see traces/swf.py


class Runtimes(StrEnum):
    LIMIT = "limit"  # planning knows what the user knew
    EXACT = "exact"  # planning knows the true run time


class QueueFrom(StrEnum):
    """Which column of a trace names the queue, where the trace has one."""

    DEFAULT = "default"
    GROUP = "group"  # SWF group, sacct Account
    QUEUE = "queue"  # SWF queue, sacct QOS
    PARTITION = "partition"


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceOptions:
    filter: Filter = Filter.NONE
    runtimes: Runtimes = Runtimes.LIMIT
    queue_from: QueueFrom = QueueFrom.DEFAULT
    capacity: int = 0  # processors of the machine; 0: as the trace says
    pools_file: Path | None = None  # CSV: pool,nodes,gpus_per_node[,cpus_per_node,memory_mib_per_node]
    nodes_file: Path | None = None  # CSV: sn,cpu_milli,memory_mib,gpu,model
    gpus_per_node: int = 8  # where no pools file says it
    date_from: str = ""  # ISO date, included
    date_to: str = ""  # ISO date, excluded
    run_s: int = 0  # the run time of every job of a trace that records none
    shown_max: int = SHOWN_MAX


class Kind(StrEnum):
    """Why a line is no arrival, or what was mended on one that is."""

    # errors: the line is wrong
    UNREADABLE = "unreadable"
    MISSING_COLUMN = "missing_column"
    NEGATIVE_TIME = "negative_time"
    OUT_OF_RANGE = "out_of_range"
    TOO_LARGE = "too_large"  # no machine of this size could ever run it
    TRUNCATED_GZIP = "truncated_gzip"  # also a note, when the cut falls between two lines
    CORRUPT_GZIP = "corrupt_gzip"  # as TRUNCATED_GZIP
    # left out: the line is right, and a rule says that it is not replayed
    NO_RUN_TIME = "no_run_time"
    NO_PROCESSORS = "no_processors"
    CANCELLED_BEFORE_START = "cancelled_before_start"
    NEVER_STARTED = "never_started"
    NOT_ENDED = "not_ended"
    REQUEUED = "requeued"
    STEP = "step"
    OUTSIDE_DATES = "outside_dates"
    UNKNOWN_POOL = "unknown_pool"
    FILTERED_NO_PROCESSORS = "filtered_no_processors"
    FILTERED_TOO_LARGE = "filtered_too_large"
    FILTERED_NO_RUN_TIME = "filtered_no_run_time"
    FILTERED_NO_REQUESTED_TIME = "filtered_no_requested_time"
    # notes: something was odd, and the line is read all the same
    UNSORTED = "unsorted"
    DUPLICATE_ID = "duplicate_id"
    SHORT_LINE = "short_line"
    EXTRA_COLUMNS = "extra_columns"
    RUN_FROM_CREATION = "run_from_creation"


class Problems:
    """What was wrong, by kind, and the first lines of it."""

    __slots__ = ("comments", "errors", "left_out", "lines", "notes", "shown", "shown_max")

    def __init__(self, shown_max: int = SHOWN_MAX) -> None:
        self.shown_max = shown_max
        self.lines = 0
        self.comments = 0  # blank lines and headers too
        self.errors: Counter[Kind] = Counter()
        self.left_out: Counter[Kind] = Counter()
        self.notes: Counter[Kind] = Counter()
        self.shown: list[tuple[int, str]] = []  # (line, message); line 0: the file as a whole

    def error(self, line: int, kind: Kind, message: str) -> None:
        self.errors[kind] += 1
        self._show(line, f"{kind}: {message}")

    def leave_out(self, kind: Kind) -> None:
        self.left_out[kind] += 1

    def note(self, line: int, kind: Kind, message: str, count: int = 1) -> None:
        """Only the first of a kind is shown: notes come in thousands and must not crowd out errors."""
        if kind not in self.notes:
            self._show(line, f"{kind}: {message}")
        self.notes[kind] += count

    def _show(self, line: int, message: str) -> None:
        if len(self.shown) < self.shown_max:
            self.shown.append((line, message))

    def __bool__(self) -> bool:
        """Something was wrong. Lines left out by a rule are not wrong."""
        return bool(self.errors or self.notes)

    def report(self) -> list[str]:
        """For people: one line a group, then the first lines of the trace that had something."""
        groups = (
            ("not replayed, wrong", self.errors),
            ("not replayed, left out", self.left_out),
            ("read, but", self.notes),
        )
        said = [
            f"{what}: {', '.join(f'{kind} {count:,}' for kind, count in sorted(counts.items()))}"
            for what, counts in groups
            if counts
        ]
        return said + [f"line {line}: {text}" if line else text for line, text in self.shown]


class Arrival(NamedTuple):
    at_ms: int
    submit: Submit
    run_ms: int
    label: str | int  # the job id as the trace writes it


class Who(NamedTuple):
    """What few distinct values of a trace have in common; interned."""

    user: str
    queue: str = "default"
    pool: str = ""
    klass: str = "normal"
    name: str = ""


class Columns(NamedTuple):
    """One row a job, in order of arrival. `shape` and `who` are numbers into the interned values."""

    at_ms: IntColumn
    run_ms: IntColumn
    limit_ms: IntColumn
    job: IntColumn
    shape: SmallColumn
    who: SmallColumn


class Arrivals(Sequence[Arrival]):
    """The jobs in order of (at_ms, place in the trace)."""

    __slots__ = ("columns", "exact", "labels", "shapes", "whos")

    def __init__(
        self,
        columns: Columns,
        shapes: Sequence[Shape],
        whos: Sequence[Who],
        labels: Mapping[int, str | int],
        exact: bool,
    ) -> None:
        self.columns = columns
        self.shapes = shapes
        self.whos = whos
        self.labels = labels  # by row, only where the label is not the job id
        self.exact = exact

    def __len__(self) -> int:
        return len(self.columns.at_ms)

    def __iter__(self) -> Iterator[Arrival]:
        for low in range(0, len(self), BLOCK_ROWS):
            yield from self._arrivals(low, low + BLOCK_ROWS)

    @overload
    def __getitem__(self, index: int) -> Arrival: ...
    @overload
    def __getitem__(self, index: slice) -> "Arrivals": ...
    def __getitem__(self, index: int | slice) -> "Arrival | Arrivals":
        rows = range(len(self))[index]
        if isinstance(rows, int):
            return next(iter(self._arrivals(rows, rows + 1)))
        at, run, limit, job, shape, who = self.columns
        columns = Columns(at[index], run[index], limit[index], job[index], shape[index], who[index])
        labels = {new: self.labels[old] for new, old in enumerate(rows) if old in self.labels}
        return Arrivals(columns, self.shapes, self.whos, labels, self.exact)

    def _arrivals(self, low: int, high: int) -> Iterator[Arrival]:
        """Plain integers, a block at a time: numpy scalars would be slow and would not encode."""
        shapes, whos, labels = self.shapes, self.whos, self.labels
        block = zip(*(column[low:high].tolist() for column in self.columns), strict=True)
        for row, (at, run, limit, job, shape, who) in enumerate(block, low):
            user, queue, pool, klass, name = whos[who]
            spec = JobSpec(
                user=user,
                shape=shapes[shape],
                limit_ms=limit,
                pool=pool,
                queue=queue,
                klass=klass,
                name=name,
                # 0 would mean "not said", so a job that ran no time at all is expected to run 1 ms
                expected_ms=max(1, run) if self.exact else 0,
            )
            yield Arrival(at, Submit(spec=spec, job=job), run, labels.get(row, job))


@dataclass(frozen=True, slots=True)
class Workload:
    """A trace, ready to be replayed."""

    format: str
    arrivals: Sequence[Arrival]
    problems: Problems
    nodes: tuple[Node, ...] = ()  # the machine, where a trace or a pools file describes it
    max_procs: int = 0  # processors of the machine: the option, else the header; 0: unknown
    origin: str = ""  # the date and time of at_ms 0, where the trace has a calendar

    def __len__(self) -> int:
        return len(self.arrivals)

    def __iter__(self) -> Iterator[Arrival]:
        return iter(self.arrivals)

    def labels_by_job(self) -> dict[int, str | int]:
        """What the trace calls a job, where that is not its id."""
        if not isinstance(self.arrivals, Arrivals):
            return {}
        job = self.arrivals.columns.job
        return {int(job[row]): label for row, label in self.arrivals.labels.items()}
