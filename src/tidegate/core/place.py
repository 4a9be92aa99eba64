"""Placing: turning room into nodes. One interface over both kinds of draft.

`start` takes room from now on, `promise` from the earliest time on; each gives the rows and chunks it took,
or None. `tests/kit/slow_placer.py` says the same in plain Python, and a property test holds them equal.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidegate.model.jobs import Shape
from tidegate.model.policy import FitBy
from tidegate.policy.fit import scores
from tidegate.world.draft import ColumnDraft, CountedDraft, Level, Rows, add_many, chunks_of, holds_chunk
from tidegate.world.lanes import Lane
from tidegate.world.pool import Columns, Pool, chunks_by_row
from tidegate.world.records import Need, Run

Ranked = tuple[int, int, int, int, int, Lane, Any]
"""(rank, submit, job, units, estimate, lane, None): sorts by the first three, for job ids never tie. Units and
estimate are the lane's, at hand for going over thousands of lanes; where promises can be put off it is how long it is
likely to run. A pass uses the last place for its own."""
Rooms = list[tuple[int, Columns]]
"""(from when on, free amounts by node): up to the next of them there is never less."""
Chosen = tuple[Rows, Rows]
"""Rows, and chunks on each."""
PROBED_ROWS = 32
WINDOW_ROWS = 1024
"""How many rows first fit looks at: one by one, then at once; then at all the others."""
REFUSED_KEPT = 256
"""Refusals remembered to save other lanes the same search."""


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

    def put_off(self, lane: Lane, start: int, until: int, chosen: Chosen) -> bool:
        """A promise takes its room from `until` on instead, if there is room then; False: it stays where it is."""
        ...

    def rooms_between(self, start: int, end: int) -> Rooms:
        """Free amounts by node at `start`, and at every later time before `end` from which on there may be less."""
        ...

    def chosen_when(self, lane: Lane, rooms: Rooms, leaving: Sequence[Run]) -> Chosen:
        """What a promise says that is made on such room and what these runs leave; it is enough."""
        ...


def placer_for(pool: Pool, by: FitBy, now: int, cursors: dict[Shape, int] | None = None) -> Placer:
    return CountedPlacer(pool, by, now) if pool.counted else ColumnPlacer(pool, by, now, cursors)


NO_ROWS: Chosen = ((), ())


class CountedPlacer:
    """Time is judged by counting chunks; nodes are chosen only for what starts now."""

    __slots__ = ("by", "draft", "open_rows", "pool", "room", "used")
    counted = True

    def __init__(self, pool: Pool, by: FitBy, now: int) -> None:
        self.pool = pool
        self.by = by
        self.draft = CountedDraft(pool, now)
        self.resume()

    def resume(self) -> None:
        self.open_rows, self.used = self.pool.open_rows, 0  # first fit: not used up, and chunks used of the first
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
        free, open_rows = self.pool.units_free, self.open_rows
        rows: list[int] = []
        counts: list[int] = []
        while units:
            lowest = open_rows & -open_rows
            row = lowest.bit_length() - 1
            here = free[row] - self.used
            rows.append(row)
            if here > units:
                counts.append(units)
                self.used += units
                break
            counts.append(here)
            units -= here
            open_rows ^= lowest
            self.used = 0
        self.open_rows = open_rows
        return tuple(rows), tuple(counts)

    def promise(self, lane: Lane) -> tuple[int, Chosen] | None:
        start = self.draft.promise(lane.units, lane.estimate_ms)
        return None if start is None else (start, NO_ROWS)

    def stand(self, lane: Lane, start: int, chosen: Chosen) -> Chosen | None:
        start = max(start, self.draft.now)
        return NO_ROWS if self.draft.keep(start, start + lane.estimate_ms, lane.units) else None

    def lift(self, lane: Lane, start: int, chosen: Chosen) -> None:
        start = max(start, self.draft.now)
        self.draft.lay_out()
        self.draft.take(start, start + lane.estimate_ms, -lane.units)

    def put_off(self, lane: Lane, start: int, until: int, chosen: Chosen) -> bool:
        return self.draft.put_off(start, until, lane.estimate_ms, lane.units)

    def rooms_between(self, start: int, end: int) -> Rooms:
        draft = self.draft
        draft.lay_out()
        times, free = draft.times, draft.free
        first = bisect_right(times, start) - 1
        less = [at for at in range(first + 1, bisect_left(times, end)) if free[at] < free[at - 1]]
        return [
            (start, self._room_at(start, free[first])),
            *((times[at], self._room_at(times[at], free[at])) for at in less),
        ]

    def _room_at(self, time: int, units: int) -> Columns:
        """Promises have no nodes here: as many chunks as they take are taken off the first rows."""
        pool = self.pool
        assert pool.unit is not None
        room = pool.free.copy()
        for end in pool.end_times[: bisect_right(pool.end_times, time)]:
            add_many(room, [(run.rows, run.counts, run.need) for run in pool.runs_at[end].values()], 1)
        chunks = chunks_by_row(room, pool.unit)
        off = np.diff(np.minimum(np.cumsum(chunks), int(chunks.sum()) - max(0, units)), prepend=0)
        for column, amount in pool.unit:
            room[column] -= off * amount
        return room

    def chosen_when(self, lane: Lane, rooms: Rooms, leaving: Sequence[Run]) -> Chosen:
        return NO_ROWS


class ColumnPlacer:
    """Time and nodes are judged together, on columns."""

    __slots__ = ("by", "draft", "fitting", "pool", "refused", "rows", "shut")
    counted = False

    def __init__(self, pool: Pool, by: FitBy, now: int, cursors: dict[Shape, int] | None = None) -> None:
        self.pool = pool
        self.by = by
        self.rows = len(pool.names)
        self.draft = ColumnDraft(pool, now)
        if cursors is not None:
            self.draft.levels[0].cursors = cursors  # of earlier passes: room has only shrunk since
        # What was refused is not looked for again, for room only shrinks within a pass:
        self.shut: set[int] = set()  # serials of lanes,
        self.refused: list[tuple[int, Need]] = []  # and (until, chunk): no row holds the chunk so long
        self.fitting: dict[Need, bool] = {}  # chunk: some row held it when `sift` first saw it

    def resume(self) -> None:
        pass

    def sift(self, entries: Sequence[Ranked]) -> list[Ranked]:
        shut, fitting = self.shut, self.fitting
        left = []
        for entry in entries:
            lane = entry[5]
            if lane.serial not in shut:
                fits = fitting.get(lane.need)
                if fits is None:
                    fits = fitting[lane.need] = bool(holds_chunk(self.draft.levels[0].room, lane.need).any())
                if fits:
                    left.append(entry)
        return left

    def start(self, lane: Lane, end: int) -> Chosen | None:
        level = self.draft.level_until(end)
        chosen: Chosen | None = None
        if lane.units > 1 or self.by is not FitBy.FIRST:
            if lane.units > 1 or not self._asks_for_more(lane, end):
                chosen = choose(self.pool, lane, level.floor, self.by)
        else:
            row = self._first_row(lane, level, end)
            if row >= 0:
                chosen = ((row,), (1,))
        if chosen is None:
            self._refuse(lane, end)
            return None
        self.draft.start(end, chosen[0], chosen[1], lane.need)
        return chosen

    def _asks_for_more(self, lane: Lane, end: int) -> bool:
        """As much of everything, for as long, as a chunk that no row could hold?"""
        have = dict(lane.need)
        for until, need in self.refused:
            if until <= end and contains(have, need):
                return True
        return False

    def _refuse(self, lane: Lane, end: int) -> None:
        """Of two refusals that say the same, the one that says more is kept."""
        self.shut.add(lane.serial)
        if lane.units > 1 or lane.shape.where or len(self.refused) >= REFUSED_KEPT:
            return
        need = lane.need
        if not self._asks_for_more(lane, end):
            self.refused = [
                (until, other) for until, other in self.refused if until < end or not contains(dict(other), need)
            ]
            self.refused.append((end, need))

    def _first_row(self, lane: Lane, level: Level, end: int) -> int:
        """The lowest row that holds one chunk; -1: none does. Lanes of one shape share what they found."""
        shape, rows = lane.shape, self.rows
        row = -1
        for earlier in self.draft.levels:  # floors only get lower from level to level
            row = max(row, earlier.cursors.get(shape, -1))
            if earlier is level:
                break
        if row < 0:
            row = rows if self._asks_for_more(lane, end) else 0
        row = self._probe(lane, level, row)
        if row == rows:
            level.cursors[shape] = rows
            return -1
        level.cursors[shape] = row
        return row

    def _probe(self, lane: Lane, level: Level, row: int) -> int:
        """A few rows one by one, for most often it is one of the next; then many at once."""
        need, rows, where = lane.need, self.rows, lane.shape.where
        allowed = self.pool.rows_matching(where) if where else None
        if allowed is None:
            cells = level.floor_cells
            soon = min(rows, row + PROBED_ROWS)
            while row < soon:
                for column, amount in need:
                    if cells[column][row] < amount:
                        break
                else:
                    return row
                row += 1
        size = WINDOW_ROWS
        while row < rows:
            found = holds_chunk(level.floor[:, row : row + size], need)
            if allowed is not None:
                found &= allowed[row : row + size]
            at = int(found.argmax())
            if found[at]:
                return row + at
            row += size
            size = rows
        return rows

    def promise(self, lane: Lane) -> tuple[int, Chosen] | None:
        found = self.draft.earliest(lane)
        if found is None:
            return None
        start, room = found
        chosen = choose(self.pool, lane, room, self.by)
        assert chosen is not None, "`earliest` found room"
        self.draft.keep(start, self.draft.end_of(lane, start), *chosen, lane.need)
        return start, chosen

    def stand(self, lane: Lane, start: int, chosen: Chosen) -> Chosen | None:
        draft = self.draft
        start = max(start, draft.now)
        end = draft.end_of(lane, start)
        room = self.room_between(start, end)
        if not chosen[0]:  # promised while the pool was counted
            again = choose(self.pool, lane, room, self.by)
            if again is None:
                return None
            chosen = again
        elif not self._holds(lane, room, chosen):
            return None
        draft.keep(start, end, *chosen, lane.need)
        return chosen

    def _holds(self, lane: Lane, room: Columns, chosen: Chosen) -> bool:
        """Labels too: what the policy keeps for other classes may be another row than before."""
        rows, counts = chosen
        where = lane.shape.where
        if where and not self.pool.rows_matching(where)[list(rows)].all():
            return False
        return not any(
            room[column, row] < amount * count
            for column, amount in lane.need
            for row, count in zip(rows, counts, strict=True)
        )

    def put_off(self, lane: Lane, start: int, until: int, chosen: Chosen) -> bool:
        self.lift(lane, start, chosen)
        if self.stand(lane, until, chosen) is not None:
            return True
        self.stand(lane, start, chosen)
        return False

    def room_between(self, start: int, end: int) -> Columns:
        draft = self.draft
        room = draft.room_at(start)
        for level in draft.levels:
            if start < level.start < end:
                np.minimum(room, level.room, out=room)
        return room

    def rooms_between(self, start: int, end: int) -> Rooms:
        draft = self.draft
        later = [(level.start, level.room) for level in draft.levels if start < level.start < end]
        return [(start, draft.room_at(start)), *later]

    def chosen_when(self, lane: Lane, rooms: Rooms, leaving: Sequence[Run]) -> Chosen:
        least: Columns | None = None
        for time, there in rooms:
            room = there.copy()
            add_many(room, [(run.rows, run.counts, run.need) for run in leaving if run.expected_end > time], 1)
            least = room if least is None else np.minimum(least, room, out=least)
        assert least is not None
        chosen = choose(self.pool, lane, least, self.by)
        assert chosen is not None, "they were chosen because it is enough"
        return chosen

    def lift(self, lane: Lane, start: int, chosen: Chosen) -> None:
        start = max(start, self.draft.now)
        self.draft.give_back(start, self.draft.end_of(lane, start), *chosen, lane.need)
        self.shut.clear()  # there is more room than when they were refused
        self.refused.clear()
        self.fitting.clear()
        for level in self.draft.levels:
            level.cursors.clear()


def contains(have: dict[int, int], need: Need) -> bool:
    for column, amount in need:
        if have.get(column, 0) < amount:
            return False
    return True


def choose(pool: Pool, lane: Lane, room: Columns, by: FitBy) -> Chosen | None:
    """The rows for the whole shape, best score first and then lowest row, or None."""
    units, capped = lane.units, chunks_of(pool, lane, room)
    by_row = scores(by, pool, lane, room)
    if by_row is not None:
        return _choose_by_score(units, capped, by_row)
    upto = np.cumsum(capped)
    if not upto.size or upto[-1] < units:
        return None
    last = int(np.searchsorted(upto, units))
    rows = np.flatnonzero(capped[: last + 1])
    return _filled(units, rows, capped[rows])


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
