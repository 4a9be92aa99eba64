"""A pool: a set of nodes as columns, its lanes, and its runs by expected end.

One contiguous integer column per resource. A closed node (draining, drained, down) has CLOSED taken off every
column, so that no shape fits there and arithmetic on it goes on unchanged.
"""

from bisect import bisect_left, insort

import numpy as np
import numpy.typing as npt

from tidegate.model.jobs import Labels, Shape
from tidegate.model.nodes import Node, NodeState
from tidegate.world.lanes import Lane, LaneKey
from tidegate.world.records import Need, Run

CLOSED = 1 << 50
Columns = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
SCALAR_ROWS_MAX = 12
"""Up to this many rows, plain integers are quicker than one numpy call."""


class Pool:
    __slots__ = (
        "buffer", "capacity", "cells", "changed", "closed", "end_times", "free_units", "freed", "fresh", "grown", "lanes",
        "masks", "mixed", "most", "name", "names", "nodes", "promised", "row_of", "runs_at", "total", "unit", "units_at",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.names: list[str] = []
        self.nodes: list[Node] = []  # by row
        self.masks: dict[Labels, Mask] = {}  # rows whose labels match, as far as asked
        self.most: dict[tuple[Need, bool, Labels], int] = {}  # chunks the empty pool holds, as far as asked
        self.promised: dict[int, None] = {}  # tasks of this pool that hold a promise
        self.row_of: dict[str, int] = {}
        self.buffer: Columns = np.zeros((0, 0), np.int64)
        self.total: Columns = np.zeros((0, 0), np.int64)
        self.capacity: list[int] = []  # by column, open or not
        self.cells: list[memoryview] = []
        self.closed: set[int] = set()
        self.lanes: dict[LaneKey, Lane] = {}
        self.end_times: list[int] = []
        self.runs_at: dict[int, tuple[Run, ...]] = {}
        self.units_at: dict[int, int] = {}
        self.unit: Need | None = None  # the chunk of every shape seen, while there is just one
        self.mixed = False
        self.free_units = 0
        # What changed since the last cycle; cleared by CycleRan.
        self.changed: dict[LaneKey, Lane] = {}  # lanes whose head may be another one
        self.fresh: dict[LaneKey, Lane] = {}  # lanes that had nothing waiting
        self.grown = False  # a job joined the back of a lane
        self.freed: set[int] | None = set()  # rows with more room; None: anything may have changed

    def fork(self) -> "Pool":
        twin = Pool.__new__(Pool)
        twin.name = self.name
        twin.names = self.names.copy()
        twin.nodes = self.nodes.copy()
        twin.masks = self.masks.copy()
        twin.most = self.most.copy()
        twin.promised = self.promised.copy()
        twin.row_of = self.row_of.copy()
        twin.total = self.total  # replaced, never written in place
        twin.capacity = self.capacity
        twin.buffer = self.buffer.copy()
        twin.cells = [column.data for column in twin.buffer]
        twin.closed = self.closed.copy()
        twin.lanes = self.lanes.copy()
        twin.end_times = self.end_times.copy()
        twin.runs_at = self.runs_at.copy()
        twin.units_at = self.units_at.copy()
        twin.unit, twin.mixed, twin.free_units = self.unit, self.mixed, self.free_units
        twin.changed, twin.fresh, twin.grown = {}, {}, False
        twin.freed = None
        return twin

    @property
    def free(self) -> Columns:
        return self.buffer[:, : len(self.names)]

    # -- nodes -------------------------------------------------------------------------------------------

    def set_node(self, node: Node, capacity: list[int]) -> None:
        """Adds the node, or changes its capacity and whether it takes new work; what runs there stays."""
        row = self.row_of.get(node.name)
        if row is None:
            row = self._add_row(node)
        self.nodes[row] = node
        self.masks, self.most = {}, {}
        self._widen(len(capacity))
        total = self.total.copy()
        for column, amount in enumerate(capacity):
            self.buffer[column, row] += amount - total[column, row]
            total[column, row] = amount
        self.total = total
        self.capacity = total.sum(axis=1).tolist()
        is_open = node.state is NodeState.UP
        if is_open == (row in self.closed):
            self.buffer[:, row] += CLOSED if is_open else -CLOSED
            (self.closed.discard if is_open else self.closed.add)(row)
        self.freed = None
        self.recount()

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
            rows = [all(dict(node.labels).get(label) in values for label, values in where) for node in self.nodes]
            mask = self.masks[where] = np.array(rows, np.bool_)
        return mask

    def most_chunks(self, need: Need, *, stack: bool, where: Labels) -> int:
        """How many chunks fit when nothing runs and every node is up."""
        key = (need, stack, where)
        most = self.most.get(key)
        if most is None:
            chunks = chunks_by_row(self.total, need)
            if where:
                chunks = chunks * self.rows_matching(where)
            most = self.most[key] = int((chunks if stack else np.minimum(chunks, 1)).sum())
        return most

    # -- counting: while all shapes are made of one stackable chunk, room is one number ------------------

    def learn(self, shape: Shape, need: Need) -> None:
        """Called for every new lane: is this pool still one that can be counted?"""
        if self.mixed:
            return
        if not shape.stack or shape.where or (self.unit is not None and self.unit != need):
            self.mixed, self.unit = True, None
        elif self.unit is None:
            self.unit = need
            self.recount()

    @property
    def counted(self) -> bool:
        """Room is one number: one kind of chunk, and what ends comes back."""
        return self.unit is not None and not self.closed

    def recount(self) -> None:
        if self.unit is not None:
            self.free_units = int(self.units_by_row(self.free).sum())

    def units_by_row(self, free: Columns) -> npt.NDArray[np.int64]:
        """How many of the pool's one chunk fit on each node."""
        assert self.unit is not None
        return chunks_by_row(free, self.unit)

    # -- runs --------------------------------------------------------------------------------------------

    def occupy(self, run: Run) -> None:
        self._shift(run, -1)
        self.free_units -= self.expect(run)

    def vacate(self, run: Run) -> None:
        self._shift(run, 1)
        self.free_units += self.unexpect(run)
        if self.closed:
            self.recount()
        if self.freed is not None:
            self.freed.update(run.rows)

    def _shift(self, run: Run, sign: int) -> None:
        if len(run.rows) <= SCALAR_ROWS_MAX:
            for column, amount in run.need:
                cells = self.cells[column]
                step = sign * amount
                for row, count in zip(run.rows, run.counts, strict=True):
                    cells[row] += step * count
            return
        rows, counts = np.array(run.rows), np.array(run.counts)
        for column, amount in run.need:
            self.buffer[column, rows] += sign * amount * counts

    def expect(self, run: Run) -> int:
        """Notes when the run should end; returns its chunks."""
        units = sum(run.counts)
        end = run.expected_end
        runs = self.runs_at.get(end)
        if runs is None:
            insort(self.end_times, end)
            self.runs_at[end] = (run,)
            self.units_at[end] = units
        else:
            self.runs_at[end] = (*runs, run)
            self.units_at[end] += units
        return units

    def unexpect(self, run: Run) -> int:
        units = sum(run.counts)
        end = run.expected_end
        runs = self.runs_at[end]
        if len(runs) == 1:
            del self.runs_at[end], self.units_at[end]
            del self.end_times[bisect_left(self.end_times, end)]
        else:
            self.runs_at[end] = tuple([other for other in runs if other.task != run.task])
            self.units_at[end] -= units
        return units

    def settle(self) -> None:
        """A cycle has seen everything up to here."""
        if self.changed:
            self.changed = {}
        if self.fresh:
            self.fresh = {}
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
