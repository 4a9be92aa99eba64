"""Draft capacity: what one cycle may still give away, now and under the promises made so far.

A draft is made from a pool at the start of a full pass and written to by that pass alone. There are two: a
counted pool keeps one step function of free chunks, any other keeps columns. Both answer the same questions,
and a property test holds them equal.
"""

from bisect import bisect_left, bisect_right
from itertools import accumulate, pairwise

import numpy as np

from tidegate.model.base import FOREVER_MS
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


class ColumnDraft:
    """Free amounts by node: now, and at the start of every promise.

    `levels[k]` is the room at `starts[k]` (`starts[0]` is now); `floors[k]` is the least room at any of
    levels 0..k. Between promises room only grows, so a run that ends by `end` fits exactly if it fits in the
    floor of the last level that starts before `end`.
    """

    __slots__ = ("ends", "floors", "levels", "now", "pool", "starts", "taken")

    def __init__(self, pool: Pool, now: int) -> None:
        self.pool = pool
        self.now = now
        self.starts = [now]
        self.levels: list[Columns] = [pool.free.copy()]
        self.floors: list[Columns] = [self.levels[0]]
        self.taken: list[tuple[int, int, Rows, Rows, Need]] = []  # (start, end, rows, counts, need)
        self.ends: list[int] = []  # of what was taken, sorted

    def floor_until(self, end: int) -> Columns:
        return self.floors[bisect_left(self.starts, end) - 1]

    def take(self, start: int, end: int, rows: Rows, counts: Rows, need: Need) -> None:
        if start > self.now and start not in self.starts:
            at = bisect_left(self.starts, start)
            self.starts.insert(at, start)
            self.levels.insert(at, self.room_at(start))
            self.floors.insert(at, self.levels[at])
        self.taken.append((start, end, rows, counts, need))
        self.ends.insert(bisect_left(self.ends, end), end)
        self._shift(start, end, rows, counts, need, -1)

    def give_back(self, start: int, end: int, rows: Rows, counts: Rows, need: Need) -> None:
        self.taken.remove((start, end, rows, counts, need))
        self.ends.remove(end)
        self._shift(start, end, rows, counts, need, 1)

    def _shift(self, start: int, end: int, rows: Rows, counts: Rows, need: Need, sign: int) -> None:
        first = bisect_left(self.starts, start)
        last = bisect_left(self.starts, end)
        for level in range(first, last):
            add(self.levels[level], rows, counts, need, sign)
        self._lower_floors(max(first, 1), rows, counts, need, sign)

    def _lower_floors(self, first: int, rows: Rows, counts: Rows, need: Need, sign: int) -> None:
        """Only the rows that changed; a floor of its own is made when a second level appears."""
        index = list(rows)
        for k in range(first, len(self.floors)):
            if self.floors[k] is self.levels[k]:
                self.floors[k] = np.minimum(self.floors[k - 1], self.levels[k])
            else:
                self.floors[k][:, index] = np.minimum(self.floors[k - 1][:, index], self.levels[k][:, index])

    def room_at(self, time: int) -> Columns:
        """Free amounts at a later time, as far as is planned."""
        pool = self.pool
        room = pool.free.copy()
        self._release(room, self.pool.end_times[: bisect_right(pool.end_times, time)])
        for start, end, rows, counts, need in self.taken:
            if start <= time < end:
                add(room, rows, counts, need, -1)
        return room

    def _release(self, room: Columns, ends: list[int]) -> None:
        runs_at = self.pool.runs_at
        for end in ends:
            for run in runs_at[end]:
                add(room, run.rows, run.counts, run.need, 1)

    def earliest(self, lane: Lane, duration: int) -> tuple[int, Columns] | None:
        """The first time from which the shape fits for `duration`, and the room it may choose from."""
        promised = len(self.starts) > 1
        if self.fits(lane, self.floor_until(self.now + duration)):
            return self.now, self.floor_until(self.now + duration)
        if not promised and not self.taken:
            return self._earliest_after_ends(lane)
        for time in self._breakpoints():
            room = self.room_at(time)
            if not self.fits(lane, room):
                continue
            for start, level in zip(self.starts, self.levels, strict=True):
                if time < start < time + duration:
                    np.minimum(room, level, out=room)
            if self.fits(lane, room):
                return time, room
        return None

    def _breakpoints(self) -> list[int]:
        overdue = [self.now + 1] if self.pool.end_times and self.pool.end_times[0] <= self.now else []
        times = {time for time in (*self.pool.end_times, *self.ends, *overdue) if time > self.now}
        return sorted(times)

    def _earliest_after_ends(self, lane: Lane) -> tuple[int, Columns] | None:
        """While nothing is promised room only grows: gallop over the ends, then halve back."""
        ends = self.pool.end_times
        room = self.pool.free.copy()
        done, step, last_step = 0, 1, 0
        while done < len(ends):
            before = room.copy()
            batch = ends[done : done + step]
            self._release(room, batch)
            if not self.fits(lane, room):
                done += len(batch)
                step = step * 2 if not last_step else max(1, step // 2)
                continue
            if len(batch) == 1:
                return max(batch[0], self.now + 1), room
            room, step, last_step = before, max(1, len(batch) // 2), 1
        return None

    def fits(self, lane: Lane, room: Columns) -> bool:
        return shape_fits(self.pool, lane, room)


def shape_fits(pool: Pool, lane: Lane, room: Columns) -> bool:
    """Does the whole shape fit in this room?"""
    shape = lane.shape
    if shape.stack:
        chunks = chunks_by_row(room, lane.need)
        if shape.where:
            chunks = chunks * pool.rows_matching(shape.where)
        return int(chunks.sum()) >= shape.count
    return int(np.count_nonzero(rows_with_room(pool, lane, room))) >= shape.count


def rows_with_room(pool: Pool, lane: Lane, room: Columns) -> Mask:
    """The rows on which one chunk fits."""
    mask: Mask | None = None
    for column, amount in lane.need:
        here: Mask = room[column] >= amount
        mask = here if mask is None else np.logical_and(mask, here, out=mask)
    assert mask is not None
    if lane.shape.where:
        mask = np.logical_and(mask, pool.rows_matching(lane.shape.where), out=mask)
    return mask


def add(room: Columns, rows: Rows, counts: Rows, need: Need, sign: int) -> None:
    if len(rows) <= SCALAR_ROWS_MAX:
        for column, amount in need:
            cells = room[column]
            for row, count in zip(rows, counts, strict=True):
                cells[row] += sign * amount * count
        return
    index, by = np.array(rows), np.array(counts)
    for column, amount in need:
        room[column, index] += sign * amount * by
