"""Draft capacity: what one cycle may still give away, now and under the promises made so far.

A draft is made from a pool at the start of a full pass and written to by that pass alone. There are two: a
counted pool keeps one step function of free chunks, any other keeps columns. Both answer the same questions,
and a property test holds them equal.
"""

from bisect import bisect_left, bisect_right
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from tidegate.model.base import FOREVER_MS
from tidegate.model.jobs import Shape
from tidegate.world.lanes import Lane
from tidegate.world.pool import SCALAR_ROWS_MAX, Columns, Mask, Pool, chunks_by_row
from tidegate.world.records import Need

Rows = tuple[int, ...]


class CountedDraft:
    """Free chunks over time, in as few numbers as the promises made so far need.

    No promise: what is free now. One, from `shadow` on: then also `extra`, what is free at `shadow` beside it.
    More: steps, `free[i]` chunks from `times[i]` up to `times[i + 1]`.
    """

    __slots__ = ("extra", "first", "free", "free_now", "now", "pool", "shadow", "taken", "times")

    def __init__(self, pool: Pool, now: int) -> None:
        self.pool = pool
        self.now = now
        self.free_now = pool.free_units
        self.shadow = FOREVER_MS
        self.extra = 0
        self.first: tuple[int, int, int] | None = None  # the one promise: (start, end, chunks)
        self.taken: list[tuple[int, int]] = []  # (end, chunks) of what was started, until there are steps
        self.times: list[int] = []
        self.free: list[int] = []

    def fits(self, units: int, end: int) -> bool:
        """Are so many chunks free in every instant from now to `end`?"""
        if units > self.free_now:
            return False
        if self.times:
            return units <= min(self.free[: bisect_left(self.times, end)])
        return end <= self.shadow or units <= self.extra

    def start(self, units: int, end: int) -> None:
        if self.times:
            self.take(self.now, end, units)
            return
        self.free_now -= units
        self.taken.append((end, units))
        if end > self.shadow:
            self.extra -= units

    def promise(self, units: int, duration: int) -> int | None:
        """Keeps so many chunks free from the earliest time on at which they are for `duration`."""
        if self.first is None and not self.times:
            return self._first_promise(units, duration)
        self.lay_out()
        start = self._earliest(units, duration)
        if start is not None:
            self.take(start, start + duration, units)
        return start

    def _first_promise(self, units: int, duration: int) -> int | None:
        """While nothing is promised room only grows: add up what ends until it is enough."""
        units_at, free = self.pool.units_at, self.free_now
        taken = sorted(self.taken)
        taken.append((FOREVER_MS, 0))
        at = 0
        for end in self.pool.end_times:
            while taken[at][0] < end:
                free += taken[at][1]
                if free >= units and taken[at + 1][0] > taken[at][0]:
                    return self._keep_first(taken[at][0], duration, units, free)
                at += 1
            free += units_at[end]
            if free >= units:
                while taken[at][0] == end:
                    free += taken[at][1]
                    at += 1
                return self._keep_first(max(end, self.now + 1), duration, units, free)
        for (end, more), (following, _) in pairwise(taken[at:]):
            free += more
            if free >= units and following > end:
                return self._keep_first(end, duration, units, free)
        return None

    def _keep_first(self, start: int, duration: int, units: int, free: int) -> int:
        self.shadow, self.extra = start, free - units
        self.first = (start, start + duration, units)
        return start

    def put_off(self, start: int, until: int, duration: int, units: int) -> bool:
        """A promise takes its chunks from `until` on instead, if there are as many then."""
        if self.first is None or self.times:
            self.lay_out()
            self.take(start, start + duration, -units)
            if self.keep(until, until + duration, units):
                return True
            self.take(start, start + duration, units)
            return False
        ends = self.pool.end_times
        between = ends[bisect_right(ends, start) : bisect_right(ends, until)]
        self.extra += sum(map(self.pool.units_at.__getitem__, between))
        self.extra += sum(taken for end, taken in self.taken if start < end <= until)
        self.shadow, self.first = until, (until, until + duration, units)
        return True

    def lay_out(self) -> None:
        """Makes the steps, if there are none yet."""
        if self.times:
            return
        pool, now = self.pool, self.now
        ends = pool.end_times
        overdue = bisect_right(ends, now)
        self.times = [now, *ends[overdue:]]
        free = self.free_now + sum(units for _, units in self.taken)
        self.free = list(accumulate(map(pool.units_at.__getitem__, self.times[1:]), initial=free))
        if overdue:  # runs that should have ended: they may at any moment, but not yet
            at = self._cut(now + 1)
            late = sum(pool.units_at[end] for end in ends[:overdue])
            self.free[at:] = [free + late for free in self.free[at:]]
        for end, units in self.taken:
            self.take(now, end, units)
        if self.first is not None:
            self.take(*self.first)

    def _cut(self, time: int) -> int:
        """The index of the step that begins at `time`, made if there is none."""
        at = bisect_left(self.times, time)
        if at == len(self.times) or self.times[at] != time:
            self.times.insert(at, time)
            self.free.insert(at, self.free[at - 1])
        return at

    def take(self, start: int, end: int, units: int) -> None:
        """On the steps. A negative amount gives back."""
        first = self._cut(start)
        free = self.free
        for at in range(first, self._cut(end)):
            free[at] -= units
        self.free_now = free[0]

    def keep(self, start: int, end: int, units: int) -> bool:
        """Keeps a promise made earlier, if there is room for it still."""
        self.lay_out()
        first = bisect_right(self.times, start) - 1
        if min(self.free[first : bisect_left(self.times, end)]) < units:
            return False
        self.take(start, end, units)
        return True

    def _earliest(self, units: int, duration: int) -> int | None:
        times, free = self.times, self.free
        at, steps = 0, len(times)
        while at < steps:
            if free[at] < units:
                at += 1
                continue
            end = times[at] + duration
            blocked = next((j for j in range(at + 1, bisect_left(times, end)) if free[j] < units), 0)
            if not blocked:
                return times[at]
            at = blocked + 1
        return None


class Level:
    """Room by node at one instant, and the least of it since now."""

    __slots__ = ("cells", "cursors", "floor", "floor_cells", "room", "start")

    def __init__(self, start: int, room: Columns) -> None:
        self.start = start
        self.cursors: dict[Shape, int] = {}  # first fit: no row below holds a chunk, as far as asked
        self.room = self.floor = room
        self.cells = self.floor_cells = [column.data for column in room]

    def lower(self, before: "Level") -> None:
        """Finds the floor anew, from the one before."""
        self.floor = np.minimum(before.floor, self.room)
        self.floor_cells = [column.data for column in self.floor]


def certain_end(windows: list[int], end: int, latest: int) -> int:
    """`end`, but `latest` where a window opens from then on and before that: there no estimate is trusted."""
    at = bisect_left(windows, end)
    return latest if at < len(windows) and windows[at] < latest else end


Taken = tuple[int, int, Rows, Rows, Need]
"""(start, end, rows, counts, need)"""


class ColumnDraft:
    """Free amounts by node: now, and at the start of every promise.

    Between promises room only grows, so a run that ends by `end` fits exactly if it fits in the floor of the
    last level that starts before `end`.
    """

    __slots__ = ("kept", "levels", "now", "pool", "started", "windows")

    def __init__(self, pool: Pool, now: int) -> None:
        self.pool = pool
        self.now = now
        self.windows: list[int] = []  # starts of reservations to come
        self.levels = [Level(now, pool.free.copy())]
        self.started: list[Taken] = []  # what starts now
        self.kept: list[Taken] = []  # what is promised

    def end_of(self, lane: Lane, start: int) -> int:
        """Until when planning takes a job of the lane to run that starts then."""
        end = start + lane.estimate_ms
        return certain_end(self.windows, end, start + lane.limit_ms) if self.windows else end

    def level_until(self, end: int) -> Level:
        levels = self.levels
        at = len(levels) - 1
        while at and levels[at].start >= end:
            at -= 1
        return levels[at]

    def start(self, end: int, rows: Rows, counts: Rows, need: Need) -> None:
        self.started.append((self.now, end, rows, counts, need))
        self._shift(self.now, end, rows, counts, need, -1)

    def keep(self, start: int, end: int, rows: Rows, counts: Rows, need: Need) -> None:
        """What is promised from `start` on."""
        levels = self.levels
        if all(level.start != start for level in levels):
            at = sum(level.start < start for level in levels)
            levels.insert(at, Level(start, self.room_at(start)))
            for k in range(at, len(levels)):
                levels[k].lower(levels[k - 1])
        self.kept.append((start, end, rows, counts, need))
        self._shift(start, end, rows, counts, need, -1)

    def give_back(self, start: int, end: int, rows: Rows, counts: Rows, need: Need) -> None:
        """A promise is not kept any more. Its level stays: it does no harm."""
        self.kept.remove((start, end, rows, counts, need))
        self._shift(start, end, rows, counts, need, 1)

    def _shift(self, start: int, end: int, rows: Rows, counts: Rows, need: Need, sign: int) -> None:
        levels = self.levels
        for level in levels:
            if start <= level.start < end:
                add(level.cells, level.room, rows, counts, need, sign)
        for k in range(1, len(levels)):
            level, below = levels[k], levels[k - 1].floor_cells
            if level.start < start:
                continue
            for column, _ in need:  # only what changed: these rows, in these columns
                least, here, before = level.floor_cells[column], level.cells[column], below[column]
                for row in rows:
                    a, b = here[row], before[row]
                    least[row] = min(b, a)

    def room_at(self, time: int) -> Columns:
        """Free amounts at a later time, as far as is planned."""
        pool, now = self.pool, self.now
        room = self.levels[0].room.copy()
        ended = [
            (run.rows, run.counts, run.need)
            for end in pool.end_times[: bisect_right(pool.end_times, time)]
            for run in pool.runs_at[end].values()
        ]
        taken = (*self.started, *self.kept) if self.kept else self.started
        ended += [(rows, counts, need) for start, end, rows, counts, need in taken if start == now and end <= time]
        add_many(room, ended, 1)
        for start, end, rows, counts, need in self.kept:
            if now < start <= time < end:
                add_many(room, [(rows, counts, need)], -1)
        return room

    def earliest(self, lane: Lane) -> tuple[int, Columns] | None:
        """The first time from which the shape fits as long as it is planned, and the room it may choose from."""
        now_floor = self.level_until(self.end_of(lane, self.now)).floor
        if shape_fits(self.pool, lane, now_floor):
            return self.now, now_floor
        if len(self.levels) == 1:
            return self._earliest_after_ends(lane)
        room = self.levels[0].room.copy()
        last = self.now
        for time in self._breakpoints(self.pool.end_times):
            self._move(room, last, time)
            last = time
            if not shape_fits(self.pool, lane, room):
                continue
            least, until = room.copy(), self.end_of(lane, time)
            for level in self.levels:
                if time < level.start < until:
                    np.minimum(least, level.room, out=least)
            if shape_fits(self.pool, lane, least):
                return time, least
        return None

    def _move(self, room: Columns, last: int, time: int) -> None:
        """From the room at `last` to the room at `time`: what ends and begins in between."""
        pool = self.pool
        ends = pool.end_times
        first = 0 if last == self.now else bisect_right(ends, last)
        for end in ends[first : bisect_right(ends, time)]:
            add_many(room, [(run.rows, run.counts, run.need) for run in pool.runs_at[end].values()], 1)
        for start, end, rows, counts, need in (*self.started, *self.kept):
            change = (start <= last < end) - (start <= time < end)
            if change:
                add_many(room, [(rows, counts, need)], change)

    def _breakpoints(self, ends: list[int]) -> list[int]:
        """When room may come back, in order."""
        if not self.started and not self.kept and (not ends or ends[0] > self.now):
            return ends
        times = {max(end, self.now + 1) for end in ends}
        times.update(end for _, end, _, _, _ in (*self.started, *self.kept) if end < FOREVER_MS)
        return sorted(times)

    def _earliest_after_ends(self, lane: Lane) -> tuple[int, Columns] | None:
        """While nothing is promised room only grows: gallop over the times, then halve back."""
        times = self._breakpoints(self.pool.end_times)
        low, step = -1, 1  # it does not fit at times[low]
        while True:
            high = min(low + step, len(times) - 1)
            if high == low:
                return None
            room = self.room_at(times[high])
            if shape_fits(self.pool, lane, room):
                break
            low, step = high, step * 2
        while high - low > 1:
            middle = (low + high) // 2
            earlier = self.room_at(times[middle])
            if shape_fits(self.pool, lane, earlier):
                high, room = middle, earlier
            else:
                low = middle
        return times[high], room


def shape_fits(pool: Pool, lane: Lane, room: Columns) -> bool:
    """Does the whole shape fit in this room?"""
    return int(chunks_of(pool, lane, room).sum()) >= lane.units


def chunks_of(pool: Pool, lane: Lane, room: Columns) -> npt.NDArray[np.int64]:
    """How many chunks of the lane's shape each row may be given."""
    shape = lane.shape
    chunks = chunks_by_row(room, lane.need) if shape.stack else holds_chunk(room, lane.need).astype(np.int64)
    if shape.where:
        chunks *= pool.rows_matching(shape.where)
    return chunks


def holds_chunk(room: Columns, need: Need) -> Mask:
    """The rows on which one chunk fits."""
    mask: Mask | None = None
    for column, amount in need:
        here: Mask = room[column] >= amount
        mask = here if mask is None else np.logical_and(mask, here, out=mask)
    assert mask is not None
    return mask


def add(cells: list[memoryview], room: Columns, rows: Rows, counts: Rows, need: Need, sign: int) -> None:
    """Chunks given to, or taken from, some rows of `room`, which `cells` shows one by one."""
    if len(rows) == 1:
        row, change = rows[0], sign * counts[0]
        for column, amount in need:
            cells[column][row] += amount * change
        return
    if len(rows) <= SCALAR_ROWS_MAX:
        for column, amount in need:
            by_row = cells[column]
            for row, count in zip(rows, counts, strict=True):
                by_row[row] += sign * amount * count
        return
    index, by = np.array(rows), np.array(counts)
    for column, amount in need:
        room[column, index] += sign * amount * by


def add_many(room: Columns, many: list[tuple[Rows, Rows, Need]], sign: int) -> None:
    """The same for many at once: one pass a kind of chunk, however many there are."""
    if len(many) <= SCALAR_ROWS_MAX:
        cells = [column.data for column in room]
        for rows, counts, need in many:
            add(cells, room, rows, counts, need, sign)
        return
    kinds: dict[Need, tuple[list[int], list[int]]] = {}
    for rows, counts, need in many:
        all_rows, all_counts = kinds.setdefault(need, ([], []))
        all_rows.extend(rows)
        all_counts.extend(counts)
    for need, (all_rows, all_counts) in kinds.items():
        index, by = np.array(all_rows), np.array(all_counts)
        for column, amount in need:
            np.add.at(room[column], index, sign * amount * by)
