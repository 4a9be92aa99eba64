"""A pool: a set of nodes as columns, its lanes, and its runs by expected end.

One contiguous integer column per resource. A closed node (draining, drained, down) has CLOSED taken off every
column, so that no shape fits there and arithmetic on it goes on unchanged. A node that is tried is closed while
anything runs there.
"""

from bisect import bisect_left, insort

import numpy as np
import numpy.typing as npt

from tidegate.model.jobs import NODE_LABEL, Labels, Shape
from tidegate.model.nodes import Node, NodeState
from tidegate.world.lanes import Lane, LaneKey
from tidegate.world.records import Need, Run

CLOSED = 1 << 50
KEPT = "@kept"
"""The label of a node that says which entry of the policy keeps it; "": none. No node is given one of that name."""
Columns = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
FITTING_KEPT = 10_000
SCALAR_ROWS_MAX = 12
"""Up to this many rows, plain integers are quicker than one numpy call."""


class Pool:
    __slots__ = (
        "buffer", "capacity", "cells", "changed", "closed", "end_times", "fitting", "free_units", "freed", "fresh",
        "grown", "kept", "kinds", "lane_serial", "lanes", "lanes_of", "masks", "name", "names", "nodes", "odd",
        "open_rows", "owned_ends", "promised", "reserved", "row_of", "runs_at", "strained", "suspended", "total",
        "tried", "unbooked", "unit", "units_at", "units_free", "within",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.names: list[str] = []
        self.nodes: list[Node] = []  # by row
        self.masks: dict[Labels, Mask] = {}  # rows whose labels match, as far as asked
        self.fitting: set[Shape] = set()  # shapes known to fit in the empty pool
        self.promised: dict[int, None] = {}  # tasks of this pool that hold a promise
        self.suspended: dict[int, None] = {}  # tasks that are stopped on its nodes
        self.row_of: dict[str, int] = {}
        self.buffer: Columns = np.zeros((0, 0), np.int64)
        self.total: Columns = np.zeros((0, 0), np.int64)
        self.capacity: list[int] = []  # by column, open or not
        self.cells: list[memoryview] = []
        self.unbooked: dict[int, Run] = {}  # by task: not yet taken off the columns, which a counted pool hardly reads
        self.closed: set[int] = set()
        self.tried: dict[int, int] = {}  # rows that take one run at a time -> how many are there
        self.lanes: dict[LaneKey, Lane] = {}
        self.lanes_of: dict[str, dict[LaneKey, None]] = {}  # of compared jobs, by user
        self.lane_serial = 0
        self.end_times: list[int] = []
        self.runs_at: dict[int, dict[int, Run]] = {}  # by expected end and task
        self.owned_ends: set[int] = set()  # ends whose runs no fork shares
        self.units_at: dict[int, int] = {}
        self.kinds: dict[Need, int] = {}  # stackable chunks without constraints: how many lanes and runs of each
        self.odd = 0  # how many lanes and runs of any other kind
        self.unit: Need | None = None  # the only kind, if there is just one and nothing odd
        self.strained = False  # a node is closed, or runs more than it has: what ends may not come back as room
        self.free_units = 0  # chunks of the one kind that are free,
        self.units_free: list[int] = []  # by row,
        self.open_rows = 0  # and the rows that have any, a bit each
        self.kept: dict[int, str] = {}  # rows that the policy keeps for some classes -> which entry of it
        self.reserved: tuple[str, ...] = ()  # names of the reservations here, sorted
        self.within = ""  # of a part of a pool: the reservation that keeps it
        # What changed since the last cycle; cleared by CycleRan.
        self.changed: dict[int, Lane] = {}  # by serial: lanes that are not what they were
        self.fresh: dict[int, Lane] = {}  # those of them that had nothing waiting
        self.grown = False  # a job joined the back of a lane
        self.freed: set[int] | None = set()  # rows with more room; None: anything may have changed

    def fork(self) -> "Pool":
        twin = Pool(self.name)
        twin.names = self.names.copy()
        twin.nodes = self.nodes.copy()
        twin.masks = self.masks.copy()
        twin.fitting = self.fitting
        twin.promised = self.promised.copy()
        twin.suspended = self.suspended.copy()
        twin.row_of = self.row_of.copy()
        twin.total = self.total  # replaced, never written in place
        twin.capacity = self.capacity
        twin.buffer = self.buffer.copy()
        twin.cells = [column.data for column in twin.buffer]
        twin.unbooked = self.unbooked.copy()
        twin.closed, twin.tried = self.closed.copy(), self.tried.copy()
        twin.lanes = self.lanes.copy()
        twin.lanes_of = {user: keys.copy() for user, keys in self.lanes_of.items()}
        twin.lane_serial = self.lane_serial
        twin.end_times = self.end_times.copy()
        twin.runs_at = self.runs_at.copy()
        self.owned_ends, twin.owned_ends = set(), set()
        twin.units_at = self.units_at.copy()
        twin.kinds, twin.odd = self.kinds.copy(), self.odd
        twin.unit, twin.strained, twin.free_units = self.unit, self.strained, self.free_units
        twin.units_free, twin.open_rows = self.units_free.copy(), self.open_rows
        twin.kept = self.kept  # replaced, never written in place
        twin.reserved, twin.within = self.reserved, self.within
        twin.changed, twin.fresh, twin.grown = self.changed.copy(), self.fresh.copy(), self.grown
        twin.freed = None if self.freed is None else self.freed.copy()
        return twin

    @property
    def free(self) -> Columns:
        if self.unbooked:
            for run in self.unbooked.values():
                self._book(run, -1)
            self.unbooked.clear()
        return self.buffer[:, : len(self.names)]

    # -- nodes -------------------------------------------------------------------------------------------

    def set_node(self, node: Node, capacity: list[int]) -> None:
        """Adds the node, or changes its capacity and whether it takes new work; what runs there stays."""
        row = self.row_of.get(node.name)
        if row is None:
            row = self._add_row(node)
        self.nodes[row] = node
        self.masks, self.fitting = {}, set()
        self._widen(len(capacity))
        total = self.total.copy()
        for column, amount in enumerate(capacity):
            self.buffer[column, row] += amount - total[column, row]
            total[column, row] = amount
        self.total = total
        self.capacity = total.sum(axis=1).tolist()
        self._open_or_close(row)
        self.freed = None
        self.recount()

    def set_tried(self, name: str, runs: int | None) -> None:
        """From now on one run at a time, with so many there; None: no more. `set_node` follows."""
        row = self.row_of[name]
        if runs is None:
            self.tried.pop(row, None)
        else:
            self.tried[row] = runs

    def _open_or_close(self, row: int) -> None:
        is_open = self.nodes[row].state is NodeState.UP and not self.tried.get(row, 0)
        if is_open == (row in self.closed):
            self.buffer[:, row] += CLOSED if is_open else -CLOSED
            (self.closed.discard if is_open else self.closed.add)(row)

    def _add_row(self, node: Node) -> int:
        row = self.row_of[node.name] = len(self.names)
        self.names.append(node.name)
        self.nodes.append(node)
        self.total = np.pad(self.total, ((0, 0), (0, 1)))
        if row >= self.buffer.shape[1]:
            self._resize(self.buffer.shape[0], max(1, 2 * self.buffer.shape[1]))
        return row

    def _widen(self, columns: int) -> None:
        if columns > self.buffer.shape[0]:
            added = columns - self.total.shape[0]
            self.total = np.pad(self.total, ((0, added), (0, 0)))
            self._resize(columns, self.buffer.shape[1])
            for row in self.closed:
                self.buffer[columns - added : columns, row] -= CLOSED

    def _resize(self, columns: int, rows: int) -> None:
        grown = np.zeros((columns, rows), np.int64)
        grown[: self.buffer.shape[0], : self.buffer.shape[1]] = self.buffer
        self.buffer = grown
        self.cells = [column.data for column in grown]

    def rows_matching(self, where: Labels) -> Mask:
        mask = self.masks.get(where)
        if mask is None:
            rows = []
            for row, node in enumerate(self.nodes):
                labels = {NODE_LABEL: node.name, KEPT: self.kept.get(row, "")} | dict(node.labels)
                rows.append(all(labels.get(label) in values for label, values in where))
            mask = self.masks[where] = np.array(rows, np.bool_)
        return mask

    def keep(self, kept: dict[int, str]) -> None:
        """From now on these rows are kept for some classes."""
        if kept != self.kept:
            self.kept, self.masks, self.fitting = kept, {}, set()

    def count_most(self, shape: Shape, need: Need) -> int:
        """How many chunks fit when nothing runs and every node is up."""
        chunks = chunks_by_row(self.total, need)
        if shape.where:
            chunks = chunks * self.rows_matching(shape.where)
        return int((chunks if shape.stack else np.minimum(chunks, 1)).sum())

    # -- counting: while all that is alive is made of one stackable chunk, room is one number -------------

    @property
    def counted(self) -> bool:
        return self.unit is not None and not self.strained

    def join(self, need: Need, *, plain: bool) -> None:
        """A lane or a run of this kind came. `plain`: stackable and without constraints."""
        if not plain:
            self.odd += 1
            self.unit = None
            return
        known = self.kinds.get(need, 0)
        self.kinds[need] = known + 1
        if not known:
            self._find_unit()

    def part(self, need: Need, *, plain: bool) -> None:
        if not plain:
            self.odd -= 1
            if not self.odd:
                self._find_unit()
            return
        left = self.kinds[need] - 1
        if left:
            self.kinds[need] = left
        else:
            del self.kinds[need]
            self._find_unit()

    def _find_unit(self) -> None:
        self.unit = next(iter(self.kinds)) if len(self.kinds) == 1 and not self.odd else None
        self.recount()

    def recount(self) -> None:
        free = self.free
        self.strained = bool(self.closed) or bool(free.size and free.min() < 0)
        if self.unit is not None:
            chunks = chunks_by_row(free, self.unit)
            self.free_units = int(chunks.sum())
            self.units_free = chunks.tolist()
            self.open_rows = int.from_bytes(np.packbits(chunks > 0, bitorder="little").tobytes(), "little")

    # -- runs --------------------------------------------------------------------------------------------

    def occupy(self, run: Run) -> None:
        if self.unit is None:
            self._book(run, -1)
        else:
            self.unbooked[run.task] = run
            self._count(run, -1)
        self.free_units -= self.expect(run)
        self.join(run.need, plain=run.plain)
        if self.tried and self._try(run, 1):
            self.freed = None  # a draft made before may give away more than there is now
            self.recount()

    def vacate(self, run: Run) -> None:
        if self.unbooked.pop(run.task, None) is None:
            self._book(run, 1)
        if self.unit is not None:
            self._count(run, 1)
        self.free_units += self.unexpect(run)
        if self.tried:
            self._try(run, -1)
        if self.strained:
            self.recount()
        self.part(run.need, plain=run.plain)
        if self.freed is not None:
            self.freed.update(run.rows)

    def _try(self, run: Run, change: int) -> bool:
        """Counts the runs on nodes that are tried; True if there are any."""
        rows = [row for row in run.rows if row in self.tried]
        for row in rows:
            self.tried[row] += change
            self._open_or_close(row)
        return bool(rows)

    def _book(self, run: Run, sign: int) -> None:
        """On the columns."""
        rows, counts = run.rows, run.counts
        if len(rows) <= SCALAR_ROWS_MAX:
            for column, amount in run.need:
                cells = self.cells[column]
                step = sign * amount
                for row, count in zip(rows, counts, strict=True):
                    cells[row] += step * count
            return
        index, by = np.array(rows), np.array(counts)
        for column, amount in run.need:
            self.buffer[column, index] += sign * amount * by

    def _count(self, run: Run, sign: int) -> None:
        """In chunks of the one kind."""
        free, rows, counts = self.units_free, run.rows, run.counts
        for at in range(len(rows)):  # compiled, that is several times as quick as a zip
            row = rows[at]
            before = free[row]
            after = free[row] = before + sign * counts[at]
            if not before or not after:
                self.open_rows ^= 1 << row

    def expect(self, run: Run) -> int:
        """Notes when the run should end; returns its chunks."""
        units = run.counts[0] if len(run.counts) == 1 else sum(run.counts)
        end = run.expected_end
        known = self.runs_at.get(end)
        if known is None:
            insort(self.end_times, end)
            self.runs_at[end] = {run.task: run}
            self.owned_ends.add(end)
            self.units_at[end] = units
        else:
            self._own_end(end, known)[run.task] = run
            self.units_at[end] += units
        return units

    def unexpect(self, run: Run) -> int:
        units = run.counts[0] if len(run.counts) == 1 else sum(run.counts)
        end = run.expected_end
        known = self.runs_at[end]
        if len(known) == 1:
            del self.runs_at[end], self.units_at[end]
            del self.end_times[bisect_left(self.end_times, end)]
            self.owned_ends.discard(end)
        else:
            del self._own_end(end, known)[run.task]
            self.units_at[end] -= units
        return units

    def _own_end(self, end: int, known: dict[int, Run]) -> dict[int, Run]:
        """What a fork shares is copied by whoever writes to it first."""
        if end not in self.owned_ends:
            known = self.runs_at[end] = known.copy()
            self.owned_ends.add(end)
        return known

    def settle(self) -> None:
        """A cycle has seen everything up to here."""
        self.changed.clear()
        self.fresh.clear()
        self.grown = False
        if self.freed is None:
            self.freed = set()
        elif self.freed:
            self.freed.clear()


def chunks_by_row(free: Columns, need: Need) -> npt.NDArray[np.int64]:
    """How many chunks fit on each row; 0 on closed ones."""
    fit: npt.NDArray[np.int64] | None = None
    for column, amount in need:
        here = free[column] // amount
        fit = here if fit is None else np.minimum(fit, here, out=fit)
    assert fit is not None
    return np.maximum(fit, 0, out=fit)
