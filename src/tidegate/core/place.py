"""Placing: turning room into nodes. One interface over both kinds of draft.

`start` takes room from now on, `promise` from the earliest time on; each gives the rows and chunks it took,
or None. `tests/kit/slow_placer.py` says the same in plain Python, and a property test holds them equal.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tidegate.model.policy import FitBy
from tidegate.policy.fit import scores
from tidegate.world.draft import ColumnDraft, CountedDraft, Rows, rows_with_room
from tidegate.world.lanes import Lane
from tidegate.world.pool import Columns, Pool, chunks_by_row

Ranked = tuple[int, int, int, int, int, Lane]
"""(rank, submit, job, units, estimate, lane): sorts by the first three, for job ids never tie. Units and estimate
are the lane's, at hand for going over thousands of lanes."""
Chosen = tuple[Rows, Rows]
"""Rows, and chunks on each."""
WINDOW_ROWS = 128
"""How many rows a first-fit cursor looks at in one step, to begin with."""


class Placer(Protocol):
    def sift(self, entries: Sequence[Ranked]) -> list[Ranked]:
        """Leaves out lanes that cannot start now. Necessary, not sufficient, and cheap: it sees all lanes."""
        ...

    def start(self, lane: Lane, end: int) -> Chosen | None: ...

    def promise(self, lane: Lane) -> tuple[int, Chosen] | None: ...

    def stand(self, lane: Lane, start: int, chosen: Chosen) -> Chosen | None:
        """Keeps a promise made earlier, if there is room for it still; None: there is not."""
        ...

    def lift(self, lane: Lane, start: int, chosen: Chosen) -> None:
        """Takes back what `promise` or `stand` took."""
        ...


def placer_for(pool: Pool, by: FitBy, now: int, *, counted: bool | None = None) -> Placer:
    if pool.counted if counted is None else counted:
        return CountedPlacer(pool, by, now)
    return ColumnPlacer(pool, by, now)


class CountedPlacer:
    """Time is judged by counting chunks; nodes are chosen only for what starts now."""

    def __init__(self, pool: Pool, by: FitBy, now: int) -> None:
        self.pool = pool
        self.by = by
        self.draft = CountedDraft(pool, now)
        self.room: Columns | None = None if len(pool.names) == 1 else pool.free.copy()

    def sift(self, entries: Sequence[Ranked]) -> list[Ranked]:
        free, spare, short = self.draft.limits()
        return [entry for entry in entries if entry[3] <= free and (entry[3] <= spare or entry[4] <= short)]

    def start(self, lane: Lane, end: int) -> Chosen | None:
        draft = self.draft
        units = lane.units
        if units > draft.free_now or (draft.times and units > draft.room_until(end)):
            return None
        draft.take(draft.now, end, units)
        if self.room is None:
            return (0,), (units,)
        chosen = choose(self.pool, lane, self.room, self.by)
        assert chosen is not None, "counted room is real room"
        take_rows(self.room, lane, chosen)
        return chosen

    def promise(self, lane: Lane) -> tuple[int, Chosen] | None:
        start = self.draft.earliest(lane.shape.count, lane.estimate_ms)
        if start is None:
            return None
        self.draft.take(start, start + lane.estimate_ms, lane.shape.count)
        return start, ((), ())

    def stand(self, lane: Lane, start: int, chosen: Chosen) -> Chosen | None:
        draft = self.draft
        if not draft.times:
            draft.lay_out()
        start = max(start, draft.now)
        first = max(0, bisect_left(draft.times, start + 1) - 1)
        if min(draft.free[first : bisect_left(draft.times, start + lane.estimate_ms)]) < lane.shape.count:
            return None
        draft.take(start, start + lane.estimate_ms, lane.shape.count)
        return (), ()

    def lift(self, lane: Lane, start: int, chosen: Chosen) -> None:
        start = max(start, self.draft.now)
        self.draft.take(start, start + lane.estimate_ms, -lane.shape.count)


class ColumnPlacer:
    """Time and nodes are judged together, on columns."""

    def __init__(self, pool: Pool, by: FitBy, now: int) -> None:
        self.pool = pool
        self.by = by
        self.draft = ColumnDraft(pool, now)
        self.cursors: dict[int, int] = {}  # serial of a lane -> the first row that may still hold a chunk

    def sift(self, entries: Sequence[Ranked]) -> list[Ranked]:
        refused, rows = self.cursors, len(self.pool.names)
        return [entry for entry in entries if refused.get(entry[5].serial, 0) < rows]

    def start(self, lane: Lane, end: int) -> Chosen | None:
        draft = self.draft
        floor = draft.floor_until(end)
        if lane.shape.count == 1 and self.by is FitBy.FIRST:
            row = self._first_row(lane, floor)
            chosen = None if row < 0 else ((row,), (1,))
        else:
            chosen = choose(self.pool, lane, floor, self.by)
        if chosen is None:
            self.cursors[lane.serial] = len(self.pool.names)  # room only shrinks within a pass
            return None
        draft.take(draft.now, end, chosen[0], chosen[1], lane.need)
        return chosen

    def _first_row(self, lane: Lane, floor: Columns) -> int:
        """The lowest row that holds one chunk. Rows refused once in a pass are never looked at again."""
        row = self.cursors.get(lane.serial, 0)
        rows = len(self.pool.names)
        where = self.pool.rows_matching(lane.shape.where) if lane.shape.where else None
        size = 1
        while row < rows:
            window = slice(row, row + size)
            mask = None if where is None else where[window].copy()
            for column, amount in lane.need:
                here = floor[column, window] >= amount
                mask = here if mask is None else np.logical_and(mask, here, out=mask)
            assert mask is not None
            found = int(mask.argmax())
            if mask[found]:
                self.cursors[lane.serial] = row + found
                return row + found
            row += size
            size = max(WINDOW_ROWS, size * 2)
        return -1

    def promise(self, lane: Lane) -> tuple[int, Chosen] | None:
        found = self.draft.earliest(lane, lane.estimate_ms)
        if found is None:
            return None
        start, room = found
        chosen = choose(self.pool, lane, room, self.by)
        assert chosen is not None, "`earliest` found room"
        self.draft.take(start, start + lane.estimate_ms, *chosen, lane.need)
        return start, chosen

    def stand(self, lane: Lane, start: int, chosen: Chosen) -> Chosen | None:
        draft = self.draft
        start = max(start, draft.now)
        end = start + lane.estimate_ms
        room = draft.room_at(start)
        for level_start, level in zip(draft.starts, draft.levels, strict=True):
            if start < level_start < end:
                np.minimum(room, level, out=room)
        if not chosen[0]:  # promised while the pool was counted
            again = choose(self.pool, lane, room, self.by)
            if again is None:
                return None
            chosen = again
        elif any(
            room[column, row] < amount * count
            for column, amount in lane.need
            for row, count in zip(*chosen, strict=True)
        ):
            return None
        draft.take(start, end, *chosen, lane.need)
        return chosen

    def lift(self, lane: Lane, start: int, chosen: Chosen) -> None:
        start = max(start, self.draft.now)
        self.draft.give_back(start, start + lane.estimate_ms, *chosen, lane.need)
        self.cursors.clear()  # there is more room than when they were set


def choose(pool: Pool, lane: Lane, room: Columns, by: FitBy) -> Chosen | None:
    """The rows for the whole shape, best score first and then lowest row, or None."""
    shape = lane.shape
    if shape.stack or by is FitBy.BEST:
        chunks = chunks_by_row(room, lane.need)
        if shape.where:
            chunks = chunks * pool.rows_matching(shape.where)
    else:
        chunks = rows_with_room(pool, lane, room).astype(np.int64)
    by_row = scores(by, pool, room, chunks)
    capped = chunks if shape.stack else np.minimum(chunks, 1)
    if by_row is not None:
        return _choose_by_score(shape.count, capped, by_row)
    upto = np.cumsum(capped)
    if not upto.size or upto[-1] < shape.count:
        return None
    last = int(np.searchsorted(upto, shape.count))
    rows = np.flatnonzero(capped[: last + 1])
    return _filled(shape.count, rows, capped[rows])


def _choose_by_score(count: int, capped: npt.NDArray[np.int64], by_row: npt.NDArray[np.int64]) -> Chosen | None:
    rows = np.flatnonzero(capped)
    if count == 1:
        if not rows.size:
            return None
        return (int(rows[by_row[rows].argmin()]),), (1,)
    rows = rows[np.argsort(by_row[rows], kind="stable")]
    upto = np.cumsum(capped[rows])
    if not rows.size or upto[-1] < count:
        return None
    rows = rows[: int(np.searchsorted(upto, count)) + 1]
    return _filled(count, rows, capped[rows])


def _filled(count: int, rows: npt.NDArray[np.int64], room: npt.NDArray[np.int64]) -> Chosen:
    """All of each row but the last, which gives the rest; in row order."""
    counts = room.copy()
    counts[-1] -= int(room.sum()) - count
    order = np.argsort(rows, kind="stable")
    return tuple(rows[order].tolist()), tuple(counts[order].tolist())


def take_rows(room: Columns, lane: Lane, chosen: Chosen) -> None:
    rows, counts = np.array(chosen[0]), np.array(chosen[1])
    for column, amount in lane.need:
        room[column, rows] -= amount * counts
