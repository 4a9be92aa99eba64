"""Placing: turning room into nodes. One interface over both kinds of draft.

`start` takes room from now on, `promise` from the earliest time on; each gives the rows and chunks it took,
or None. `tests/kit/slow_placer.py` says the same in plain Python, and a property test holds them equal.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidegate.model.policy import FitBy
from tidegate.policy.fit import scores
from tidegate.world.draft import ColumnDraft, CountedDraft, Rows, rows_with_room
from tidegate.world.lanes import Lane
from tidegate.world.pool import Columns, Pool, chunks_by_row

Ranked = tuple[int, int, int, int, int, Lane, Any]
"""(rank, submit, job, units, estimate, lane, None): sorts by the first three, for job ids never tie. Units and
estimate are the lane's, at hand for going over thousands of lanes. A pass uses the last place for its own."""
Chosen = tuple[Rows, Rows]
"""Rows, and chunks on each."""
WINDOW_ROWS = 128
"""How many rows a first-fit cursor looks at in one step, to begin with."""


class Placer(Protocol):
    counted: bool

    def resume(self) -> None:
        """Called before the placer of an earlier cycle is used again: what it started then has started."""
        ...

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


def placer_for(pool: Pool, by: FitBy, now: int) -> Placer:
    return CountedPlacer(pool, by, now) if pool.counted else ColumnPlacer(pool, by, now)


NO_ROWS: Chosen = ((), ())


class CountedPlacer:
    """Time is judged by counting chunks; nodes are chosen only for what starts now."""

    __slots__ = ("at", "by", "draft", "pool", "room", "used")
    counted = True

    def __init__(self, pool: Pool, by: FitBy, now: int) -> None:
        self.pool = pool
        self.by = by
        self.draft = CountedDraft(pool, now)
        self.resume()

    def resume(self) -> None:
        self.at, self.used = 0, 0  # first fit: how many open rows are used up, and chunks used of the next
        self.room: Columns | None = None  # any other fit: by node, from the first start on

    def sift(self, entries: Sequence[Ranked]) -> list[Ranked]:
        draft = self.draft
        free = draft.free_now
        if draft.times or draft.first is None:
            return [entry for entry in entries if entry[3] <= free]
        extra, window = draft.extra, draft.shadow - draft.now
        return [entry for entry in entries if entry[3] <= free and (entry[3] <= extra or entry[4] <= window)]

    def start(self, lane: Lane, end: int) -> Chosen | None:
        draft, units = self.draft, lane.units
        if not draft.fits(units, end):
            return None
        draft.start(units, end)
        if self.by is FitBy.FIRST:
            return self._first_rows(units)
        if self.room is None:
            self.room = self.pool.free.copy()
        chosen = choose(self.pool, lane, self.room, self.by)
        assert chosen is not None, "counted room is real room"
        take_rows(self.room, lane, chosen)
        return chosen

    def _first_rows(self, units: int) -> Chosen:
        """From the lowest open rows on. Its cost follows the rows taken, not the nodes there are."""
        free, open_rows = self.pool.units_free, self.pool.open_rows
        rows: list[int] = []
        counts: list[int] = []
        while units:
            row = open_rows[self.at]
            here = free[row] - self.used
            rows.append(row)
            if here > units:
                counts.append(units)
                self.used += units
                break
            counts.append(here)
            units -= here
            self.at += 1
            self.used = 0
        return tuple(rows), tuple(counts)

    def promise(self, lane: Lane) -> tuple[int, Chosen] | None:
        start = self.draft.promise(lane.units, lane.estimate_ms)
        return None if start is None else (start, NO_ROWS)

    def stand(self, lane: Lane, start: int, chosen: Chosen) -> Chosen | None:
        start = max(start, self.draft.now)
        return NO_ROWS if self.draft.keep(start, start + lane.estimate_ms, lane.units) else None

    def lift(self, lane: Lane, start: int, chosen: Chosen) -> None:
        start = max(start, self.draft.now)
        self.draft.take(start, start + lane.estimate_ms, -lane.units)


class ColumnPlacer:
    """Time and nodes are judged together, on columns."""

    __slots__ = ("by", "cursors", "draft", "pool")
    counted = False

    def __init__(self, pool: Pool, by: FitBy, now: int) -> None:
        self.pool = pool
        self.by = by
        self.draft = ColumnDraft(pool, now)
        self.cursors: dict[int, int] = {}  # serial of a lane -> the first row that may still hold a chunk

    def resume(self) -> None:
        pass

    def sift(self, entries: Sequence[Ranked]) -> list[Ranked]:
        refused, rows = self.cursors, len(self.pool.names)
        return [entry for entry in entries if refused.get(entry[5].serial, 0) < rows]

    def start(self, lane: Lane, end: int) -> Chosen | None:
        draft = self.draft
        floor = draft.floor_until(end)
        if lane.shape.count == 1 and self.by is FitBy.FIRST:
            row = self._first_row(lane, floor)
            chosen: Chosen | None = None if row < 0 else ((row,), (1,))
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
