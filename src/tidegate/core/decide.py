"""`decide`: one cycle. World and `now` in, plan out.

A full pass over a pool goes through its lanes by rank:

1. what fits is started; what does not is promised the earliest start, up to `backfill.depth` promises (and
   one for every job past its ageing bound);
2. the others may go ahead where they delay no promise: the candidates.

With depth 0 the first refusal ends the pass (strict order); with depth 1 this is EASY backfilling, with no
bound conservative backfilling. A pass that only has new arrivals to look at tries just those.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import chain, islice

from tidegate.core import KERNEL
from tidegate.core.memo import Memo, Ranking, Settled
from tidegate.core.place import Chosen, Placer, Ranked, placer_for
from tidegate.model.base import ARRAY_BITS
from tidegate.model.decisions import Plan
from tidegate.model.events import CycleRan, JobStarted, Placement, Promise
from tidegate.model.jobs import Job
from tidegate.model.policy import CandidateOrder, PolicySpec
from tidegate.policy.order import AGED, rank
from tidegate.world.lanes import Lane, lane_key
from tidegate.world.pool import Pool
from tidegate.world.world import World


def decide(world: World, memo: Memo, now: int) -> Plan:
    memo.refresh(world)
    cycle = _Cycle(world, now)
    stirred = world.stirred
    for name in sorted(stirred) if len(stirred) > 1 else stirred:
        if cycle.cut:
            break
        _look_at(cycle, memo, stirred[name])
    number = world.cycle + 1
    # After a cut the next cycle starts over; what is started by then has left the lanes.
    memo.cycle = -1 if cycle.cut else number
    ran = CycleRan(
        now, number, world.policy_version, KERNEL, cycle.cut, tuple(cycle.promised), tuple(cycle.withdrawn)
    )
    return Plan(ran, tuple(cycle.starts))


class _Cycle:
    """What one cycle gathers over its pools, and its counts."""

    __slots__ = ("cut", "now", "policy", "promised", "starts", "tries", "withdrawn", "world")

    def __init__(self, world: World, now: int) -> None:
        self.world = world
        self.policy = world.policy
        self.now = now
        self.starts: list[JobStarted] = []
        self.promised: list[Promise] = []
        self.withdrawn: list[int] = []
        self.tries = 0
        self.cut = ""


def _look_at(cycle: _Cycle, memo: Memo, pool: Pool) -> None:
    """A full pass, or just the arrivals where nothing else could have changed."""
    ranking, unchanged = memo.ranking(cycle.world, pool, cycle.now)
    settled = memo.settled.get(pool.name)
    if settled is None or not unchanged or pool.freed or not _only_arrivals(settled, pool, ranking):
        memo.settled.pop(pool.name, None)
        if ranking.entries or pool.promised:
            placer = placer_for(pool, cycle.policy.fit.by, cycle.now)
            settled = _Pass(cycle, pool, placer).full(ranking.entries)
            if not cycle.cut:
                memo.settled[pool.name] = settled
    elif pool.fresh and cycle.policy.backfill.depth:
        fresh = settled.placer.sift([ranking.known[serial] for serial in pool.fresh])
        if fresh:
            _Pass(cycle, pool, settled.placer).candidates(fresh, [])


def _only_arrivals(settled: Settled, pool: Pool, ranking: Ranking) -> bool:
    """Nothing that arrived could get a promise, or take the place of a job that was refused in its turn."""
    last = settled.last_refused
    if last is None or (settled.room_for_promises and pool.grown):
        return False
    known = ranking.known
    for serial in pool.changed:
        entry = known.get(serial)
        if entry is not None and entry < last:  # compared as far as `last` goes: rank, submit, job
            return False
    return True


class _Line:
    """How far the tasks of one lane have come in this pass."""

    __slots__ = ("at", "blocked", "job", "lane", "task", "tasks", "world")

    def __init__(self, world: World, lane: Lane) -> None:
        self.world = world
        self.lane = lane
        self.blocked = False  # refused once: its other jobs ask for the same
        self.at = 0
        self._enter(lane.jobs[0])

    def _enter(self, job: Job) -> None:
        self.job = job
        self.tasks: Iterator[int] | None = None
        if job.spec.array is None:
            self.task = job.id << ARRAY_BITS
        else:
            self.tasks = array_tasks(self.world, job)
            self.task = next(self.tasks)

    def advance(self) -> bool:
        if self.tasks is not None:
            task = next(self.tasks, None)
            if task is not None:
                self.task = task
                return True
        self.at += 1
        jobs = self.lane.jobs
        if self.at == len(jobs):
            return False
        self._enter(jobs[self.at])
        return True


def array_tasks(world: World, job: Job) -> Iterator[int]:
    """The tasks of an array that may start now, in their order."""
    array, state = job.spec.array, world.arrays[job.id]
    assert array is not None
    indices = chain(state.returned, islice(array.indices, state.started, None))
    for index in islice(indices, state.available(len(array.indices), array.at_once_max)):
        yield job.id << ARRAY_BITS | index


Order = tuple[int, int, int]
"""(rank, submit, job)"""
Again = tuple[int, int, int, _Line]
"""The order of a lane's next job, which has its turn later."""
Candidate = tuple[int, int, int, Lane, _Line | None]


class _Pass:
    """One pool in one cycle."""

    __slots__ = ("cycle", "last", "now", "placer", "policy", "pool", "promises", "standing", "world")

    def __init__(self, cycle: _Cycle, pool: Pool, placer: Placer) -> None:
        self.cycle = cycle
        self.pool = pool
        self.placer = placer
        self.world = cycle.world
        self.policy = cycle.policy
        self.now = cycle.now
        self.promises: dict[int, Promise] = {}
        self.standing: dict[int, tuple[int, Chosen]] = {}  # promises of earlier cycles that still hold
        self.last: Order | None = None  # of the last job refused in its turn

    def full(self, entries: list[Ranked]) -> Settled:
        depth = self.policy.backfill.depth
        if depth > 1 and self.pool.promised:
            self._stand()
        at, again = self._heads(entries)
        if self.promises or self.pool.promised:
            self._record_promises()
        if depth and (at < len(entries) or again):
            self.candidates(self.placer.sift(entries[at:]), again)
        return Settled(self.placer, self.last, room_for_promises=len(self.promises) < depth)

    # -- jobs in their turn ------------------------------------------------------------------------------

    def _heads(self, entries: list[Ranked]) -> tuple[int, list[Again]]:
        """Starts or promises in order of rank until promises run out; returns which lanes are left."""
        depth = self.policy.backfill.depth
        again: list[Again] = []
        at, end = 0, len(entries)
        while (at < end or again) and not self.cycle.cut:
            order: Order
            from_again = bool(again) and (at == end or again[0][:3] < entries[at][:3])
            order = again[0][:3] if from_again else entries[at][:3]
            may_promise = len(self.promises) < depth or order[0] == AGED
            if self.promises and not may_promise:
                break
            if from_again:
                line = heappop(again)[3]
            else:
                line = _Line(self.world, entries[at][5])
                at += 1
            if not self._head(line, may_promise=may_promise):
                self.last = order
                if depth == 0:
                    break
                if not line.blocked:
                    continue  # it would not fit even when all that runs has ended
            if line.advance():
                job = line.job
                turn = rank(self.policy, self.pool, line.lane, job, self.now)
                heappush(again, (turn, job.submit_ms, job.id, line))
        return at, [turn for turn in again if not turn[3].blocked]

    def _head(self, line: _Line, *, may_promise: bool) -> bool:
        """Starts the task, or promises it a start. False: refused; a refused line that got a promise is blocked."""
        lane, task = line.lane, line.task
        if self.standing:
            standing = self.standing.pop(task, None)
            if standing is not None:
                self.placer.lift(lane, *standing)
                line.blocked = False  # what stood for it may be what refused the others
        if not line.blocked:
            chosen = self._try(lane)
            if chosen is not None:
                self._started(line, chosen, backfilled=bool(self.promises))
                return True
        if may_promise:
            promised = self.placer.promise(lane)
            if promised is not None:
                line.blocked = True
                start, chosen = promised
                self.promises[task] = Promise(task, start, self._names(chosen))
        return False

    # -- jobs ahead of their turn ------------------------------------------------------------------------

    def candidates(self, entries: list[Ranked], again: list[Again]) -> None:
        shortest = self.policy.backfill.order is CandidateOrder.SHORTEST
        by = 4 if shortest else 0
        turns: list[Candidate] = [(e[by], e[1], e[2], e[5], None) for e in entries]
        for turn, submit, job_id, line in again:
            turns.append((line.lane.estimate_ms if shortest else turn, submit, job_id, line.lane, line))
        if len(turns) > 1:
            heapify(turns)
        while turns and not self.cycle.cut:
            order, _, _, lane, done = heappop(turns)
            chosen = self._try(lane)
            if chosen is None:
                continue
            line = done or _Line(self.world, lane)
            self._started(line, chosen, backfilled=True)
            if line.advance():
                job = line.job
                if not shortest:
                    order = rank(self.policy, self.pool, lane, job, self.now)
                heappush(turns, (order, job.submit_ms, job.id, lane, line))

    # -- what both do ------------------------------------------------------------------------------------

    def _try(self, lane: Lane) -> Chosen | None:
        cycle = self.cycle
        cycle.tries += 1
        if cycle.tries > cycle.policy.cycle.tries_max:
            cycle.cut = "tries"
            return None
        return self.placer.start(lane, self.now + lane.estimate_ms)

    def _started(self, line: _Line, chosen: Chosen, *, backfilled: bool) -> None:
        cycle, task = self.cycle, line.task
        attempt = self.world.attempts.get(task, 0) + 1
        end = self.now + line.lane.estimate_ms
        cycle.starts.append(JobStarted(self.now, task, attempt, end, self._names(chosen), backfilled))
        if len(cycle.starts) >= cycle.policy.cycle.starts_max:
            cycle.cut = "starts"

    def _names(self, chosen: Chosen) -> Placement:
        names = self.pool.names
        rows, counts = chosen
        if not rows:
            return ()
        if len(rows) == 1:
            return ((names[rows[0]], counts[0]),)
        return tuple([(names[row], count) for row, count in zip(rows, counts, strict=True)])

    # -- promises ----------------------------------------------------------------------------------------

    def _stand(self) -> None:
        """Room for the promises made before, earliest first; newcomers plan around them."""
        kept = [self.world.promises[task] for task in self.pool.promised]
        for promise in sorted(kept, key=lambda promise: (promise.start_by, promise.task)):
            chosen = self.placer.stand(self._lane(promise.task), promise.start_by, self._rows(promise))
            if chosen is not None:
                self.standing[promise.task] = (promise.start_by, chosen)

    def _lane(self, task: int) -> Lane:
        return self.pool.lanes[lane_key(self.world.jobs[task >> ARRAY_BITS])]

    def _rows(self, promise: Promise) -> Chosen:
        row_of = self.pool.row_of
        return tuple([row_of[name] for name, _ in promise.nodes]), tuple([count for _, count in promise.nodes])

    def _record_promises(self) -> None:
        """What changed against the promises the world knows of. A pass that was cut withdraws nothing."""
        cycle, known = self.cycle, self.world.promises
        cycle.promised.extend(promise for task, promise in self.promises.items() if known.get(task) != promise)
        if cycle.cut:
            return
        for task, standing in self.standing.items():  # its job is no longer among the first `depth`
            self.placer.lift(self._lane(task), *standing)
        if not self.pool.promised:
            return
        started = {start.task for start in cycle.starts}
        cycle.withdrawn.extend(
            task for task in self.pool.promised if task not in self.promises and task not in started
        )
