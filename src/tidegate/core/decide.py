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
from tidegate.core.memo import Memo, Ranked, Settled
from tidegate.core.place import Chosen, Placer, placer_for
from tidegate.model.base import ARRAY_BITS
from tidegate.model.decisions import Plan
from tidegate.model.events import CycleRan, JobStarted, Placement, Promise
from tidegate.model.jobs import Job
from tidegate.model.policy import CandidateOrder, PolicySpec
from tidegate.policy.order import AGED, rank
from tidegate.world.lanes import Lane, LaneKey, lane_key
from tidegate.world.pool import Pool
from tidegate.world.world import World


def decide(world: World, memo: Memo, now: int) -> Plan:
    memo.refresh(world)
    cycle = _Cycle(world, now)
    for name in sorted(world.stirred):
        if cycle.cut:
            break
        _Pass(cycle, memo, world.stirred[name]).run()
    memo.cycle = world.cycle + 1
    if cycle.cut:
        memo.cycle = -1  # the next cycle starts over, and what is started by then has left the lanes
    ran = CycleRan(
        now, world.cycle + 1, world.policy_version, KERNEL, cycle.cut, tuple(cycle.promised), tuple(cycle.withdrawn)
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


class _Line:
    """The tasks of one lane in this pass, one at a time."""

    __slots__ = ("blocked", "job", "lane", "task", "tasks")

    def __init__(self, world: World, lane: Lane) -> None:
        self.lane = lane
        self.blocked = False  # refused once: its other jobs ask for the same
        self.tasks = tasks_in(world, lane)
        self.job, self.task = next(self.tasks)

    def advance(self) -> bool:
        following = next(self.tasks, None)
        if following is None:
            return False
        self.job, self.task = following
        return True


Turn = tuple[int, int, int, Lane, _Line | None]
"""(rank, submit, job, lane, how far the lane is): sorts by the first three."""


def tasks_in(world: World, lane: Lane) -> Iterator[tuple[Job, int]]:
    for job in lane.jobs:
        array = job.spec.array
        if array is None:
            yield job, job.id << ARRAY_BITS
            continue
        state = world.arrays[job.id]
        indices = chain(state.returned, array.indices[state.started :])
        for index in islice(indices, state.available(len(array.indices), array.at_once_max)):
            yield job, job.id << ARRAY_BITS | index


class _Pass:
    """One pool in one cycle."""

    __slots__ = ("cycle", "last", "memo", "now", "placer", "policy", "pool", "promises", "standing", "world")

    def __init__(self, cycle: _Cycle, memo: Memo, pool: Pool) -> None:
        self.cycle = cycle
        self.memo = memo
        self.pool = pool
        self.world = cycle.world
        self.policy = cycle.policy
        self.now = cycle.now
        self.promises: dict[int, Promise] = {}
        self.standing: dict[int, Promise] = {}  # made in earlier cycles and still possible
        self.last: tuple[int, int, int] | None = None  # the order of the last job refused in its turn
        self.placer: Placer

    def run(self) -> None:
        pool, memo, strict = self.pool, self.memo, self.policy.backfill.depth == 0
        ranking, unchanged = memo.ranking(self.world, pool, self.now)
        settled = memo.settled.get(pool.name)
        if settled is not None and unchanged and not pool.freed and self._only_arrivals(settled, ranking.known):
            self.placer = settled.placer
            if not strict:
                self._candidates([ranking.known[key] for key in pool.fresh])
            return
        memo.settled.pop(pool.name, None)
        if not ranking.entries and not pool.promised:
            return
        self.placer = placer_for(pool, self.policy.fit.by, self.now)
        if self.policy.backfill.depth > 1 and pool.promised:
            self._stand()
        rest = self._heads(ranking.entries)
        self._record_promises()
        if not strict:
            self._candidates(rest)
        if not self.cycle.cut:
            room = len(self.promises) < self.policy.backfill.depth
            memo.settled[pool.name] = Settled(self.placer, self.last, room_for_promises=room)

    def _only_arrivals(self, settled: Settled, known: dict[LaneKey, Ranked]) -> bool:
        """Nothing that arrived could get a promise, or take the place of a job that was refused in its turn."""
        if settled.room_for_promises and self.pool.grown:
            return False
        last = settled.last_refused
        return last is None or all(known[key][:3] > last for key in self.pool.fresh)

    # -- jobs in their turn ------------------------------------------------------------------------------

    def _heads(self, entries: list[Ranked]) -> list[Ranked | Turn]:
        """Starts or promises in order of rank; returns the lanes that are left when promises run out."""
        depth = self.policy.backfill.depth
        again: list[Turn] = []  # lanes whose next job has its turn later
        at, end = 0, len(entries)
        while (at < end or again) and not self.cycle.cut:
            turn: Ranked | Turn
            if again and (at == end or again[0][:3] < entries[at][:3]):
                turn = heappop(again)
                line = turn[4]
                assert line is not None
            else:
                turn = entries[at]
                at += 1
                line = None
            may_promise = len(self.promises) < depth or turn[0] == AGED
            if self.promises and not may_promise:
                return [t for t in (turn, *again, *entries[at:]) if len(t) == 4 or not t[4].blocked]
            line = line or _Line(self.world, turn[3])
            if not self._head(line, may_promise=may_promise):
                self.last = turn[:3]
                if depth == 0:
                    break
                if not line.blocked:
                    continue  # it cannot start even when all that runs has ended
            if line.advance():
                heappush(again, self._turn(line))
        return []

    def _head(self, line: _Line, *, may_promise: bool) -> bool:
        """Starts the task, or promises it a start. False: refused; a refused line that got a promise is blocked."""
        lane, task = line.lane, line.task
        standing = self.standing.pop(task, None)
        if standing is not None:
            self._lift(lane, standing)
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

    def _turn(self, line: _Line) -> Turn:
        job = line.job
        return (rank(self.policy, self.pool, line.lane, job, self.now), job.submit_ms, job.id, line.lane, line)

    # -- jobs ahead of their turn ------------------------------------------------------------------------

    def _candidates(self, rest: list[Ranked | Turn]) -> None:
        now, placer = self.now, self.placer
        turns: list[Turn]
        if self.policy.backfill.order is CandidateOrder.SHORTEST:
            turns = [(t[3].estimate_ms, t[1], t[2], t[3], t[4] if len(t) == 5 else None) for t in placer.sift(rest)]
        else:
            turns = [t if len(t) == 5 else (*t, None) for t in placer.sift(rest)]
        heapify(turns)
        while turns and not self.cycle.cut:
            key, _, _, lane, line = heappop(turns)
            chosen = self._try(lane)
            if chosen is None:
                continue
            line = line or _Line(self.world, lane)
            self._started(line, chosen, backfilled=bool(self.promises or self.pool.promised))
            if line.advance():
                turn = self._turn(line)
                if self.policy.backfill.order is CandidateOrder.SHORTEST:
                    turn = (key, *turn[1:])
                heappush(turns, turn)

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
        if len(rows) == 1:
            return ((names[rows[0]], counts[0]),)
        return tuple([(names[row], count) for row, count in zip(rows, counts, strict=True)])

    # -- promises ----------------------------------------------------------------------------------------

    def _stand(self) -> None:
        """Room for the promises made before, earliest first; newcomers plan around them."""
        kept = [self.world.promises[task] for task in self.pool.promised]
        for promise in sorted(kept, key=lambda promise: (promise.start_by, promise.task)):
            if self.placer.stand(self._lane(promise.task), promise.start_by, self._rows(promise)):
                self.standing[promise.task] = promise

    def _lift(self, lane: Lane, promise: Promise) -> None:
        self.placer.lift(lane, promise.start_by, self._rows(promise))

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
        for task, promise in self.standing.items():  # its job is no longer among the first `depth`
            self._lift(self._lane(task), promise)
        started = {start.task for start in cycle.starts}
        cycle.withdrawn.extend(
            task for task in self.pool.promised if task not in self.promises and task not in started
        )
