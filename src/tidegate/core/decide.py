"""`decide`: one cycle. World and `now` in, plan out.

A full pass over a pool goes through its lanes by rank:

1. what fits is started; what does not is promised the earliest start, up to `backfill.depth` promises, and
   `order.aged_promises_max` more for jobs past the ageing bound, which are first in rank;
2. the others may go ahead where they delay no promise: the candidates. If a job past the bound is left without
   a promise, there are none.

With depth 0 the first refusal ends the pass (strict order); with depth 1 this is EASY backfilling, with no
bound conservative backfilling. A pass that only has new arrivals to look at tries just those.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import islice

from tidegate.core import KERNEL
from tidegate.core.memo import Memo, Order, Ranking, Settled
from tidegate.core.place import Chosen, Placer, Ranked, placer_for
from tidegate.model.base import ARRAY_BITS
from tidegate.model.decisions import Plan
from tidegate.model.events import CUT_BY_STARTS, CUT_BY_TRIALS, CycleRan, JobStarted, Placement, Promise
from tidegate.model.jobs import Job
from tidegate.model.policy import CandidateOrder
from tidegate.policy.order import AGED, rank
from tidegate.world.arrays import turns
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
    if world.suspects:
        _one_run_where_tried(cycle)
    number = world.cycle + 1
    memo.cycle = -1 if cycle.cut == CUT_BY_TRIALS else number
    ran = CycleRan(now, number, world.policy_version, KERNEL, cycle.cut, tuple(cycle.promised), tuple(cycle.withdrawn))
    return Plan(ran, tuple(cycle.starts))


def _one_run_where_tried(cycle: "_Cycle") -> None:
    """A node that is tried takes one run: of several starts there the first counts, and the next cycle goes on.

    What was promised beside starts that are put off says nothing.
    """
    tried = {pool.names[row] for pool in cycle.world.stirred.values() for row in pool.tried}
    taken: set[str] = set()
    put_off: set[int] = set()  # jobs: tasks of an array start in order
    kept = []
    for start in cycle.starts:
        job, here = start.task >> ARRAY_BITS, [name for name, _ in start.nodes if name in tried]
        if job in put_off or not taken.isdisjoint(here):
            put_off.add(job)
        else:
            taken.update(here)
            kept.append(start)
    if put_off:
        cycle.starts, cycle.cut = kept, CUT_BY_TRIALS
        cycle.promised, cycle.withdrawn = [], []


class _Cycle:
    """What one cycle gathers over its pools."""

    __slots__ = ("cut", "now", "policy", "promised", "starts", "withdrawn", "world")

    def __init__(self, world: World, now: int) -> None:
        self.world = world
        self.policy = world.policy
        self.now = now
        self.starts: list[JobStarted] = []
        self.promised: list[Promise] = []
        self.withdrawn: list[int] = []
        self.cut = ""


def _look_at(cycle: _Cycle, memo: Memo, pool: Pool) -> None:
    """A full pass, or just the arrivals where nothing else could have changed."""
    ranking, unchanged = memo.ranking(cycle.world, pool, cycle.now)
    settled = memo.settled.get(pool.name)
    room_came = pool.freed is None or bool(pool.freed)
    if settled is None or not unchanged or room_came or not _only_arrivals(settled, pool, ranking):
        if settled is not None:
            del memo.settled[pool.name]
        ranking.room_came(pool.freed)
        if ranking.entries or pool.promised:
            placer = placer_for(pool, cycle.policy.fit.by, cycle.now, ranking.cursors)
            full_pass = _Pass(cycle, pool, placer)
            settled = full_pass.full(ranking.entries)
            if settled is not None:
                memo.settled[pool.name] = settled
            if full_pass.standing:  # they may have taken room from now on when cursors moved
                ranking.cursors.clear()
    elif (pool.fresh or settled.untried) and not settled.strict:
        serials = dict.fromkeys((*settled.untried, *pool.fresh))
        entries = settled.placer.sift([ranking.known[serial] for serial in serials])
        settled.untried = ()
        if entries:
            settled.placer.resume()
            settled.untried = _Pass(cycle, pool, settled.placer).candidates(entries, [])


def _only_arrivals(settled: Settled, pool: Pool, ranking: Ranking) -> bool:
    """Nothing that arrived could get a promise, or take the place of a job that was refused in its turn."""
    last = settled.last_refused
    if last is None or (settled.room_for_promises and pool.grown) or settled.placer.counted != pool.counted:
        return False
    known = ranking.known
    for serial in pool.changed:
        entry = known.get(serial)
        # Compared as far as `last` goes: rank, submit, job. A job past the ageing bound always gets a promise.
        if entry is not None and (entry < last or entry[0] == AGED):
            return False
    return True


class _Line:
    """How far the tasks of one lane have come in this pass."""

    __slots__ = ("at", "job", "lane", "lifts", "task", "tasks", "world")

    def __init__(self, world: World, lane: Lane) -> None:
        self.world = world
        self.lane = lane
        self.lifts = -1  # refused when room had come back so often: its other jobs ask for the same
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
        return self.next_job()

    def next_job(self) -> bool:
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
    for index in islice(turns(state, array.indices), state.available(len(array.indices), array.at_once_max)):
        yield job.id << ARRAY_BITS | index


SIFT_COST = 8
"""One start refused costs about as much as sifting so many lanes."""
Again = tuple[int, int, int, _Line]
"""The order of a lane's next job, which has its turn later."""


class _Pass:
    """One pool in one cycle."""

    __slots__ = (
        "cycle",
        "last",
        "lifts",
        "moved",
        "now",
        "placer",
        "policy",
        "pool",
        "promises",
        "standing",
        "strict",
        "world",
    )

    def __init__(self, cycle: _Cycle, pool: Pool, placer: Placer) -> None:
        self.cycle = cycle
        self.pool = pool
        self.placer = placer
        self.world = cycle.world
        self.policy = cycle.policy
        self.now = cycle.now
        self.promises: dict[int, Promise] = {}
        self.standing: dict[int, tuple[int, Chosen]] = {}  # promises of earlier cycles that still hold
        self.lifts = 0  # how often room came back: what was refused before may fit since
        self.moved = False  # a standing promise did not just stay, so a second pass might choose better
        self.last: Order | None = None  # of the last job refused in its turn
        self.strict = self.policy.backfill.depth == 0  # nobody goes ahead

    def full(self, entries: list[Ranked]) -> Settled | None:
        """None: another pass at once might find more, so nothing is settled."""
        depth, pool = self.policy.backfill.depth, self.pool
        if depth > 1 and pool.promised:
            self._stand()
        at, again = self._heads(entries)
        if self.standing and not self.cycle.cut:
            self._lift_the_rest()
        if self.promises or pool.promised:
            self._record_promises()
        if self.cycle.cut:
            return None
        untried: tuple[int, ...] = ()
        if not self.strict and (at < len(entries) or again):
            again = [turn for turn in again if turn[3].lifts != self.lifts]
            untried = self.candidates(self.placer.sift(entries[at:]), again)
        if self.moved:
            return None
        return Settled(self.placer, self.last, len(self.promises) < depth, self.strict, untried)

    # -- jobs in their turn ------------------------------------------------------------------------------

    def _heads(self, entries: list[Ranked]) -> tuple[int, list[Again]]:
        """Starts or promises in order of rank until promises run out; returns which lanes are left."""
        depth, cycle = self.policy.backfill.depth, self.cycle
        again: list[Again] = []
        at, end = 0, len(entries)
        while (at < end or again) and not cycle.cut:
            from_again = bool(again) and (at == end or again[0][:3] < entries[at][:3])
            order = again[0][:3] if from_again else entries[at][:3]
            given, aged = len(self.promises), order[0] == AGED
            may_promise = given < depth or (aged and given < depth + self.policy.order.aged_promises_max)
            if given and not may_promise:
                if aged:  # it has no promise that would protect it, so nobody goes ahead
                    self.last, self.strict = order, True
                break
            if from_again:
                line = heappop(again)[3]
            else:
                line = _Line(self.world, entries[at][5])
                at += 1
            more = line.advance
            if not self._head(line, may_promise=may_promise):
                self.last = order
                if depth == 0:
                    break
                if line.lifts != self.lifts:
                    continue  # it would not fit even when all that runs has ended
                more = line.next_job  # tasks of an array are alike: the first that waits stands for them
            if more():
                job = line.job
                turn = rank(self.world, self.pool, line.lane, job, self.now)
                heappush(again, (turn, job.submit_ms, job.id, line))
        return at, again

    def _head(self, line: _Line, *, may_promise: bool) -> bool:
        """Starts the task, or promises it a start. False: refused; with a promise if `lifts` of the line is set."""
        lane, task = line.lane, line.task
        standing = self.standing.pop(task, None) if self.standing else None
        if standing is not None:
            self.placer.lift(lane, *standing)
            self.lifts += 1
        if line.lifts != self.lifts:
            chosen = self.placer.start(lane, self.now + lane.estimate_ms)
            if chosen is not None:
                self._started(line, chosen, backfilled=bool(self.promises))
                self.moved |= standing is not None
                return True
        if may_promise:
            promised = self.placer.promise(lane)
            if promised is not None:
                line.lifts = self.lifts
                self.promises[task] = promise = self._promise(lane, task, *promised)
                self.moved |= standing is not None and self.world.promises.get(task) != promise
        return False

    def _promise(self, lane: Lane, task: int, start: int, chosen: Chosen) -> Promise:
        """A promise whose start is what it was keeps its nodes too, if they are free then."""
        known = self.world.promises.get(task)
        if known is not None and known.start_by == start and known.nodes and chosen[0]:
            before = self._rows(known)
            if before != chosen:
                self.placer.lift(lane, start, chosen)
                if self.placer.stand(lane, start, before) is not None:
                    return known
                self.placer.stand(lane, start, chosen)
        return Promise(task, start, self._names(chosen))

    # -- jobs ahead of their turn ------------------------------------------------------------------------

    def candidates(self, entries: list[Ranked], again: list[Again]) -> tuple[int, ...]:
        """Starts what fits beside the promises. If it is cut: the lanes that have not been refused."""
        shortest = self.policy.backfill.order is CandidateOrder.SHORTEST
        turns = [(e[4], *e[1:]) for e in entries] if shortest else entries
        for turn, submit, job_id, line in again:
            lane = line.lane
            first = lane.estimate_ms if shortest else turn
            turns.append((first, submit, job_id, lane.units, lane.estimate_ms, lane, line))
        if len(turns) > 1:
            heapify(turns)
        now, placer, cycle = self.now, self.placer, self.cycle
        refused = 0
        while turns and not cycle.cut:
            order, _, _, units, estimate, lane, done = heappop(turns)
            chosen = placer.start(lane, now + estimate)
            if chosen is None:
                refused += 1
                if refused * SIFT_COST > len(turns):
                    turns, refused = placer.sift(turns), 0
                    heapify(turns)
                continue
            line = done or _Line(self.world, lane)
            self._started(line, chosen, backfilled=True)
            if line.advance():
                job = line.job
                if not shortest:
                    order = rank(self.world, self.pool, lane, job, now)
                heappush(turns, (order, job.submit_ms, job.id, units, estimate, lane, line))
        return tuple([turn[5].serial for turn in turns])

    # -- what both do ------------------------------------------------------------------------------------

    def _started(self, line: _Line, chosen: Chosen, *, backfilled: bool) -> None:
        cycle, task = self.cycle, line.task
        tries = self.world.tries
        attempt = tries[task].attempt + 1 if task in tries else 1
        end = self.now + line.lane.estimate_ms
        cycle.starts.append(JobStarted(self.now, task, attempt, end, self._names(chosen), backfilled))
        if len(cycle.starts) >= self.policy.cycle.starts_max:
            cycle.cut = CUT_BY_STARTS + self.pool.name

    def _names(self, chosen: Chosen) -> Placement:
        names = self.pool.names
        rows, counts = chosen
        if len(rows) == 1:
            return ((names[rows[0]], counts[0]),)
        return tuple([(names[row], count) for row, count in zip(rows, counts, strict=True)])

    # -- promises ----------------------------------------------------------------------------------------

    def _stand(self) -> None:
        """Room for the promises made before, earliest first; newcomers plan around them."""
        jobs = self.world.jobs
        kept = [self.world.promises[task] for task in self.pool.promised]
        for promise in sorted(kept, key=lambda promise: (promise.start_by, promise.task)):
            job, task = jobs[promise.task >> ARRAY_BITS], promise.task
            if job.spec.array is not None:
                task = next(array_tasks(self.world, job), task)  # a lost task may have come before it
            chosen = self.placer.stand(self.pool.lanes[lane_key(job)], promise.start_by, self._rows(promise))
            if chosen is not None:
                self.standing[task] = (promise.start_by, chosen)
            else:
                self.moved = True

    def _rows(self, promise: Promise) -> Chosen:
        row_of = self.pool.row_of
        return tuple([row_of[name] for name, _ in promise.nodes]), tuple([count for _, count in promise.nodes])

    def _lift_the_rest(self) -> None:
        """Their jobs are no longer among the first `depth`."""
        for task, standing in self.standing.items():
            lane = self.pool.lanes[lane_key(self.world.jobs[task >> ARRAY_BITS])]
            self.placer.lift(lane, *standing)
        self.lifts += 1
        self.moved = True

    def _record_promises(self) -> None:
        """What changed against the promises the world knows of. A pass that was cut withdraws nothing."""
        cycle, known = self.cycle, self.world.promises
        for task, promise in self.promises.items():
            if known.get(task) != promise:
                cycle.promised.append(promise)
        if self.pool.promised.keys() <= self.promises.keys() or cycle.cut:
            return
        started = {start.task for start in cycle.starts}
        for task in self.pool.promised:
            if task not in self.promises and task not in started:
                cycle.withdrawn.append(task)
