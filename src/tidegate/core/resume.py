"""Who is suspended goes on: in its own turn, first in its line, on the nodes where it is.

A suspended run stands before all that wait in its queue and level, and behind those whose turn comes sooner: they could
interrupt it again. If its cpus are not free it keeps them from the time on at which they will be, as a promise would.
"""

from collections import deque

from tidegate.core.place import ColumnPlacer, Ranked
from tidegate.model.base import ARRAY_BITS, FOREVER_MS
from tidegate.model.jobs import Job
from tidegate.policy.order import AGED, OVERDUE, ageing_bound
from tidegate.world.lanes import Lane
from tidegate.world.pauses import limit_left
from tidegate.world.pool import CLOSED, Pool
from tidegate.world.records import Run
from tidegate.world.rungs import AS_SUBMITTED
from tidegate.world.world import World

FIRST = OVERDUE + 1
"""The rank of one that is suspended, unless it is past the ageing bound."""
TIMES_TRIED_MAX = 64
"""Ends of others on its nodes; with more of them it keeps nothing for later."""


class Stopped:
    """A suspended run that has its turn."""

    __slots__ = ("job", "lane", "lifts", "run")

    def __init__(self, run: Run, job: Job, lane: Lane) -> None:
        self.run = run
        self.job = job
        self.lane = lane
        self.lifts = -1  # as of a Line: it is tried among those ahead of their turn, too


def stopped_entries(world: World, pool: Pool, now: int) -> list[Ranked]:
    """Those that may go on, ranked as what waits is. Their lanes ask for what they lend."""
    entries: list[Ranked] = []
    for task in pool.suspended:
        pause = world.pauses[task]
        if pause.held or task in world.halting:
            continue
        run, job = world.runs[task], world.jobs[task >> ARRAY_BITS]
        queue, klass, shape, _, user, _, reservation, _ = world.lane_key(job)
        limit_ms = limit_left(world, run) if pool.reserved else 0
        key = (queue, klass, shape, pause.left_ms, user, AS_SUBMITTED, reservation, limit_ms)
        lane = Lane(-task - 1, key, pause.lent, None, deque((job,)))
        bound = ageing_bound(world.policy_in(pool.name), lane)
        turn = AGED if bound and now - job.submit_ms >= bound else FIRST
        # Tasks of one array must not tie.
        entries.append((turn, job.submit_ms, task, lane.units, pause.left_ms, lane, Stopped(run, job, lane)))
    return entries


def goes_on(pool: Pool, placer: ColumnPlacer, stopped: Stopped, now: int) -> bool:
    """Takes its cpus, if they are free until it ends."""
    end = placer.draft.end_of(stopped.lane, now)
    if not _is_free(pool, placer, stopped, now, end):
        return False
    placer.draft.start(end, stopped.run.rows, stopped.run.counts, stopped.lane.need)
    return True


def keep_for(pool: Pool, placer: ColumnPlacer, stopped: Stopped, now: int) -> None:
    """Its cpus, from the earliest time on."""
    run, lane, draft = stopped.run, stopped.lane, placer.draft
    mine = set(run.rows)
    times = {
        max(end, now + 1)
        for end in pool.end_times
        if any(not mine.isdisjoint(other.rows) for other in pool.runs_at[end].values())
    }
    times.update(end for _, end, rows, _, _ in (*draft.started, *draft.kept) if not mine.isdisjoint(rows))
    for start in sorted(times)[:TIMES_TRIED_MAX]:
        end = draft.end_of(lane, start)
        if start < FOREVER_MS and _is_free(pool, placer, stopped, start, end):
            draft.keep(start, end, run.rows, run.counts, lane.need)
            return


def _is_free(pool: Pool, placer: ColumnPlacer, stopped: Stopped, start: int, end: int) -> bool:
    """Also on a node that takes nothing new: the run is there."""
    room, run = placer.room_between(start, end), stopped.run
    return all(
        room[column, row] + (CLOSED if row in pool.closed else 0) >= amount * count
        for column, amount in stopped.lane.need
        for row, count in zip(run.rows, run.counts, strict=True)
    )
