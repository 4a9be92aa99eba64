"""Rows in, a workload out: interns what repeats, sorts by arrival, gives every job its number."""

from array import array
from pathlib import Path

import numpy as np

from tidegate.lab.traces.fields import BadLineError, LeftOutError, calendar_ms, calendar_text
from tidegate.lab.workload import (
    JOB_IDS,
    Arrivals,
    Columns,
    IntColumn,
    Kind,
    Problems,
    Runtimes,
    TraceError,
    TraceOptions,
    Who,
    Workload,
)
from tidegate.model.jobs import Shape
from tidegate.model.nodes import Node

DAY_MS = 86_400_000
SECOND_MS = 1000
FIELDS = 7


class Builder:
    """Takes the rows of one trace, in its order."""

    def __init__(self, options: TraceOptions, problems: Problems) -> None:
        self.options = options
        self.problems = problems
        self._cells = array("q")  # FIELDS a row: one extend is the cheapest way in
        self._labels: dict[int, str | int] = {}
        self._shapes: dict[Shape, int] = {}
        self._whos: dict[Who, int] = {}
        self._rows = 0

    def shape(self, shape: Shape) -> int:
        return self._shapes.setdefault(shape, len(self._shapes))

    def who(self, who: Who) -> int:
        return self._whos.setdefault(who, len(self._whos))

    def add(
        self,
        line: int,
        label: int | str,
        *,
        at_ms: int,
        run_ms: int,
        limit_ms: int,
        shape: int,
        who: int,
        job: int = 0,
    ) -> None:
        """`job`: the trace's own number for it, 0 where it has none that could be kept.

        A label that is an empty text stands for none: the number the job gets is its label.
        """
        if not 0 < job < JOB_IDS:
            job = 0
        if label not in (job, ""):
            self._labels[self._rows] = label
        self._rows += 1
        self._cells.extend((line, job, at_ms, run_ms, max(limit_ms, SECOND_MS), shape, who))

    def build(
        self,
        name: str,
        nodes: tuple[Node, ...] = (),
        max_procs: int = 0,
        *,
        origin: str = "",
        dated: bool = False,
    ) -> Workload:
        """`dated`: times are milliseconds since 1970; they are counted from midnight of the first day."""
        table = np.frombuffer(self._cells, np.int64).reshape(-1, FIELDS)
        order = np.argsort(table[:, 2], kind="stable")
        line, traced, at, run, limit, shape, who = (column[order] for column in table.T)
        self._note_unsorted(table[:, 0], table[:, 2])
        ids = give_ids(traced)
        labels = self._sorted_labels(order, traced, ids)
        self._note_duplicates(line, traced, ids)
        if dated and len(at):
            start = self._start_of_dates(int(at[0]))
            at -= start
            origin = calendar_text(start)
        columns = Columns(at, run, limit, ids, shape.astype(np.int32), who.astype(np.int32))
        exact = self.options.runtimes is Runtimes.EXACT
        arrivals = Arrivals(columns, tuple(self._shapes), tuple(self._whos), labels, exact)
        return Workload(name, arrivals, self.problems, nodes, max_procs, origin)

    def _start_of_dates(self, first_ms: int) -> int:
        if self.options.date_from:
            return date_ms(self.options.date_from)
        return first_ms - first_ms % DAY_MS

    def _note_unsorted(self, line: IntColumn, at: IntColumn) -> None:
        if not len(at):
            return
        early = np.flatnonzero(at < np.maximum.accumulate(at))
        if len(early):
            message = "arrives before a line above it; arrivals are sorted"
            self.problems.note(int(line[early[0]]), Kind.UNSORTED, message, len(early))

    def _note_duplicates(self, line: IntColumn, traced: IntColumn, ids: IntColumn) -> None:
        again = np.flatnonzero((traced != 0) & (traced != ids))
        if len(again):
            first = again[0]
            message = f"job {traced[first]} stood above; this one is replayed as job {ids[first]}"
            self.problems.note(int(line[first]), Kind.DUPLICATE_ID, message, len(again))

    def _sorted_labels(self, order: IntColumn, traced: IntColumn, ids: IntColumn) -> dict[int, str | int]:
        again = np.flatnonzero((traced != 0) & (traced != ids)).tolist()
        labels: dict[int, str | int] = {row: int(traced[row]) for row in again}
        if self._labels:
            by_row = self._labels
            labels.update((new, by_row[old]) for new, old in enumerate(order.tolist()) if old in by_row)
        return labels


def give_ids(traced: IntColumn) -> IntColumn:
    """The trace's own numbers where they name one job; fresh ones, in order of arrival, for the others."""
    known = np.flatnonzero(traced)
    _, first = np.unique(traced[known], return_index=True)
    kept = known[first]
    ids = np.zeros_like(traced)
    ids[kept] = traced[kept]
    fresh = np.flatnonzero(ids == 0)
    top = int(ids.max(initial=0))
    if top + len(fresh) < JOB_IDS:
        ids[fresh] = np.arange(top + 1, top + 1 + len(fresh))
    else:  # among 1..n at least as many are free as are needed
        ids[fresh] = np.setdiff1d(np.arange(1, len(traced) + 1), ids[kept])[: len(fresh)]
    return ids


class Dates:
    """Keeps what was submitted in [date_from, date_to)."""

    def __init__(self, options: TraceOptions) -> None:
        self.low = date_ms(options.date_from) if options.date_from else None
        self.high = date_ms(options.date_to) if options.date_to else None
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise TraceError(
                f"no day lies between date_from {options.date_from} and date_to {options.date_to}: "
                "date_to is the first day left out"
            )

    def check(self, at_ms: int) -> None:
        if (self.low is not None and at_ms < self.low) or (self.high is not None and at_ms >= self.high):
            raise LeftOutError(Kind.OUTSIDE_DATES)


def date_ms(text: str) -> int:
    try:
        return calendar_ms(text, "the date")
    except BadLineError as bad:
        raise TraceError(f"{bad}; write dates as 2017-10-01") from None


def refuse_dates(path: Path, options: TraceOptions) -> None:
    if options.date_from or options.date_to:
        raise TraceError(f"{path} counts seconds and has no calendar: leave date_from and date_to out")
