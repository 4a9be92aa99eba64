"""A pool with reservations, as a cycle sees it: what each of them keeps is a pool of its own, and the rest is one.

In the rest a reservation is capacity that is taken from its start to its end. Nothing is trusted to leave before a
reservation begins but by its time limit: whoever could still run then is planned with its limit.
"""

from bisect import insort
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tidegate.core.place import ColumnPlacer
from tidegate.model.base import ARRAY_BITS, FOREVER_MS
from tidegate.model.policy import FitBy
from tidegate.world.draft import add_many, certain_end
from tidegate.world.holds import Hold, holds_of, reservation_of
from tidegate.world.pauses import ends_latest
from tidegate.world.pool import CLOSED, Columns, Pool
from tidegate.world.records import Reservation, Run
from tidegate.world.world import World


class Part(NamedTuple):
    pool: Pool  # lanes, room and ends of this part alone
    taken: list[tuple[int, int, Hold]]  # (from, to, what) that nobody here may use
    windows: list[int]  # when such times begin, sorted: whoever might cross one is planned with its limit

    def placer(self, by: FitBy, now: int) -> ColumnPlacer:
        placer = ColumnPlacer(self.pool, by, now)
        placer.draft.windows = self.windows
        for start, end, (rows, counts, need) in self.taken:
            placer.draft.keep(max(start, now), end, rows, counts, need)
        return placer


def parts(world: World, pool: Pool, now: int) -> Iterator[Part]:
    """Those of the reservations that are under way, by name; the rest last."""
    runs = runs_apart(world, pool)
    for name in pool.reserved:
        known = world.reservations[name]
        if known.spec.start_ms <= now < known.spec.end_ms and not known.spec.is_maintenance:
            yield _kept(world, pool, known, runs.get(name, []))
    yield rest(world, pool, now, [world.reservations[name] for name in pool.reserved], runs)


def runs_apart(world: World, pool: Pool) -> dict[str, list[Run]]:
    """By reservation, in the order of their ends; those in none under ""."""
    apart: dict[str, list[Run]] = {"": []}
    inside = any(world.reservations[name].runs for name in pool.reserved)
    for end in pool.end_times:
        for run in pool.runs_at[end].values():
            apart.setdefault(reservation_of(world, run) if inside else "", []).append(run)
    return apart


def rest(world: World, pool: Pool, now: int, reservations: Sequence[Reservation], runs: dict[str, list[Run]]) -> Part:
    """What reservations leave. Their runs are no concern here: what they keep is taken whether it is used or not."""
    windows = sorted({known.spec.start_ms for known in reservations if known.spec.start_ms > now})
    taken = [
        (known.spec.start_ms, known.spec.end_ms, hold)
        for known in reservations
        for hold in holds_of(world, pool, known)
    ]
    free = pool.free.copy()
    for known in reservations:
        if known.runs:
            free += np.minimum(_held(world, pool, known), _used(pool, runs[known.spec.name]))
    found = _part_of(world, pool, "", free)
    if not windows and len(runs) == 1:
        found.end_times, found.runs_at = pool.end_times, pool.runs_at
        return Part(found, taken, windows)
    for run in runs[""]:
        ends = run.expected_end
        if run.task not in world.halting:
            ends = certain_end(windows, ends, ends_latest(world, run))
        _expect(found, run, ends)
    return Part(found, taken, windows)


def _kept(world: World, pool: Pool, known: Reservation, runs: list[Run]) -> Part:
    """What the reservation keeps and its runs leave, as far as nobody else is still there. After its end: nothing."""
    name, end = known.spec.name, known.spec.end_ms
    left = _held(world, pool, known) - _used(pool, runs)
    for row in pool.closed:
        left[:, row] -= CLOSED
    free = np.minimum(left, pool.free)
    found = _part_of(world, pool, name, free)
    for run in runs:
        _expect(found, run, run.expected_end)
    return Part(found, [(end, FOREVER_MS, hold) for hold in holds_of(world, pool, known)], [end])


def _held(world: World, pool: Pool, known: Reservation) -> Columns:
    held = np.zeros_like(pool.total)
    add_many(held, holds_of(world, pool, known), 1)
    return held


def _used(pool: Pool, runs: list[Run]) -> Columns:
    used = np.zeros_like(pool.total)
    add_many(used, [(run.rows, run.counts, run.need) for run in runs], 1)
    return used


def _part_of(world: World, pool: Pool, name: str, free: Columns) -> Pool:
    """A pool for one pass, to be read only."""
    part = Pool(pool.name)
    part.within, part.reserved = name, pool.reserved
    part.names, part.nodes, part.row_of, part.masks = pool.names, pool.nodes, pool.row_of, pool.masks
    part.kept = pool.kept
    part.total, part.capacity, part.closed = pool.total, pool.capacity, pool.closed
    part.buffer = free
    part.cells = [column.data for column in free]
    part.lanes = {key: lane for key, lane in pool.lanes.items() if lane.reservation == name}
    part.changed = {serial: lane for serial, lane in pool.changed.items() if lane.reservation == name}
    jobs = world.jobs
    part.promised = {
        task: None for task in pool.promised if world.lane_key(jobs[task >> ARRAY_BITS])[6] == name
    }  # fmt: skip
    part.suspended = {task: None for task in pool.suspended if _goes_on_in(world, world.runs[task]) == name}
    return part


def _goes_on_in(world: World, run: Run) -> str:
    """The reservation whose cpus one that is suspended needs; none where that has moved away from it."""
    name = reservation_of(world, run)
    kept = dict(world.reservations[name].nodes) if name else {}
    return name if all(node in kept for node, _ in run.nodes) else ""


def _expect(part: Pool, run: Run, end: int) -> None:
    known = part.runs_at.get(end)
    if known is None:
        insort(part.end_times, end)
        part.runs_at[end] = {run.task: run}
    else:
        known[run.task] = run
