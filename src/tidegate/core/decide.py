"""`decide`: one cycle. World and `now` in, plan out.

A full pass over a pool goes through its lanes by rank:

1. what fits is started; what does not is promised the earliest start, up to `backfill.depth` promises, and
   `order.aged_promises_max` more for jobs past the ageing bound, which are first in rank;
2. the others may go ahead where they delay no promise: the candidates. If a job past the bound is left without
   a promise, there are none.

With depth 0 the first refusal ends the pass (strict order); with depth 1 this is EASY backfilling, with no
bound conservative backfilling. A pass that only has new arrivals to look at tries just those.
"""

from msgspec.structs import replace

from tidegate.core import KERNEL
from tidegate.core.blame import one_run_where_tried
from tidegate.core.memo import FLAT, LeafKey, Memo, Order, Settled, leaf_key, ranked
from tidegate.core.parts import parts
from tidegate.core.place import Chosen, ColumnPlacer, Placer, Ranked, placer_for
from tidegate.core.preempt import Preemptor
from tidegate.core.resume import Stopped, goes_on, keep_for, stopped_entries
from tidegate.core.turns import NOBODY, Leaf, Line, Turns, array_tasks
from tidegate.model.base import ARRAY_BITS, FOREVER_MS
from tidegate.model.decisions import Plan
from tidegate.model.events import (
    CUT_BY_PREEMPTION,
    CUT_BY_STARTS,
    CUT_BY_TRIALS,
    CycleRan,
    HaltRequested,
    JobResumed,
    JobStarted,
    JobSuspended,
    Placement,
    Promise,
)
from tidegate.model.policy import CandidateOrder, PolicySpec
from tidegate.policy.order import AGED, ageing_bound
from tidegate.policy.share import BEHIND_ALL, held_place, shares_for_cycle
from tidegate.world.draft import certain_end
from tidegate.world.lanes import Lane
from tidegate.world.pool import Pool
from tidegate.world.waiting import may_slip_from
from tidegate.world.world import World


def decide(world: World, memo: Memo, now: int) -> Plan:
    memo.refresh(world)
    cycle = _Cycle(world, now, preempts=memo.preempts and (bool(world.saves) or not memo.only_savers))
    stirred = world.stirred
    for name in sorted(stirred) if len(stirred) > 1 else stirred:
        if cycle.cut:
            break
        _look_at(cycle, memo, stirred[name])
    if world.suspects:
        kept = one_run_where_tried(world, cycle.starts)
        if len(kept) < len(cycle.starts):  # what was promised beside starts that are put off says nothing
            cycle.starts, cycle.cut = kept, CUT_BY_TRIALS
            cycle.promised, cycle.withdrawn, cycle.halts = [], [], []
    looks = tuple(sorted(cycle.looks.items())) if cycle.looks else ()
    number = world.cycle + 1
    memo.cycle = -1 if cycle.cut in {CUT_BY_TRIALS, CUT_BY_PREEMPTION} else number
    ran = CycleRan(
        now, number, world.policy_version, KERNEL, cycle.cut, tuple(cycle.promised), tuple(cycle.withdrawn), looks
    )
    return Plan(ran, tuple(cycle.starts), tuple(cycle.halts), tuple(cycle.resumes))


class _Cycle:
    """What one cycle gathers over its pools."""

    __slots__ = (
        "cut", "halts", "looks", "now", "policy", "preemptor", "promised", "resumes", "shares", "starts", "withdrawn",
        "world",
    )  # fmt: skip

    def __init__(self, world: World, now: int, *, preempts: bool) -> None:
        self.world = world
        self.policy = world.policy
        self.now = now
        self.shares = shares_for_cycle(world, now)
        self.looks: dict[str, int] = {}  # by pool: when time alone may change the answer
        self.preemptor = Preemptor(world, self.shares, now, self.looks) if preempts else None
        self.starts: list[JobStarted] = []
        self.halts: list[HaltRequested | JobSuspended] = []
        self.resumes: list[JobResumed] = []
        self.promised: list[Promise] = []
        self.withdrawn: list[int] = []
        self.cut = ""


def _look_at(cycle: _Cycle, memo: Memo, pool: Pool) -> None:
    """A full pass, or just the arrivals where nothing else could have changed."""
    policy = cycle.policy if not cycle.world.swayed else cycle.world.policy_in(pool.name)
    if pool.reserved:
        _look_at_parts(cycle, memo, pool, policy)
        return
    ranking, unchanged = memo.ranking(cycle.world, policy, pool, cycle.now)
    settled = memo.settled.get(pool.name) if cycle.preemptor is None else None
    room_came = pool.freed is None or bool(pool.freed)
    if settled is None or not unchanged or room_came or not settled.holds(cycle.now, pool, ranking):
        memo.settled.pop(pool.name, None)
        ranking.room_came(pool.freed)
        if ranking.known or pool.promised or pool.suspended:
            placer = placer_for(pool, policy.fit.by, cycle.now, ranking.cursors)
            stopped = stopped_entries(cycle.world, pool, cycle.now) if pool.suspended else NOBODY
            turns = Turns(cycle.world, cycle.now, pool, ranking, ranking.leaves, cycle.shares, stopped)
            full_pass = _Pass(cycle, pool, placer, turns)
            settled = full_pass.full()
            if settled is not None and cycle.shares is None and cycle.preemptor is None and not pool.suspended:
                memo.settled[pool.name] = settled
            if cycle.preemptor is not None:
                cycle.preemptor.look_when_aged(pool, ranking.by_age)
            if full_pass.standing:  # they may have taken room from now on when cursors moved
                ranking.cursors.clear()
    elif (pool.fresh or settled.untried) and not settled.strict:
        serials = dict.fromkeys((*settled.untried, *pool.fresh))
        settled.untried = ()
        settled.placer.resume()
        arrived = settled.placer.sift([ranking.known[serial] for serial in serials])
        if not arrived:
            return
        some: dict[LeafKey, list[Ranked]] = {}
        for entry in arrived:
            some.setdefault(leaf_key(policy, ranking, entry[5], entry[0]), []).append(entry)
        turns = Turns(cycle.world, cycle.now, pool, ranking, some, None)
        some_pass = _Pass(cycle, pool, settled.placer, turns, settled.slips_from)
        settled.untried = some_pass.candidates(soft=settled.firm_from < FOREVER_MS)
        if some_pass.moved:
            del memo.settled[pool.name]


def _look_at_parts(cycle: _Cycle, memo: Memo, pool: Pool, policy: PolicySpec) -> None:
    """Where there are reservations: a full pass over each part, every time."""
    world, now = cycle.world, cycle.now
    memo.settled.pop(pool.name, None)
    for part in parts(world, pool, now):
        here = part.pool
        if here.within:
            ranking = ranked(world, policy, here, now)
        else:
            ranking, _ = memo.ranking(world, policy, here, now)
            ranking.cursors.clear()
        if not cycle.cut and (ranking.known or here.promised or here.suspended):
            stopped = stopped_entries(world, here, now) if here.suspended else NOBODY
            turns = Turns(world, now, here, ranking, ranking.leaves, cycle.shares, stopped)
            one = _Pass(cycle, here, part.placer(policy.fit.by, now), turns)
            one.windows = part.windows
            one.full()
            if cycle.preemptor is not None:
                cycle.preemptor.look_when_aged(here, ranking.by_age)


SIFT_COST = 8
"""One start refused costs about as much as sifting so many lanes."""


class _Pass:
    """One pool in one cycle."""

    __slots__ = (
        "begun", "cycle", "held", "last", "last_level", "lifts", "moved", "now", "placer", "policy", "pool", "promises",
        "slips_from", "standing", "strict", "turns", "windows", "world",
    )  # fmt: skip

    def __init__(self, cycle: _Cycle, pool: Pool, placer: Placer, turns: Turns, slips_from: int = FOREVER_MS) -> None:
        self.slips_from = slips_from  # who runs on beyond may have delayed a promise
        self.cycle = cycle
        self.pool = pool
        self.placer = placer
        self.turns = turns
        self.world = cycle.world
        self.policy = turns.policy
        self.now = cycle.now
        self.promises: dict[int, Promise] = {}
        self.standing: dict[int, tuple[int, Chosen]] = {}  # promises of earlier cycles that still hold
        self.held: dict[int, Promise] = {}  # those of them that others were interrupted for
        self.begun: set[int] = set()  # those of them that start now
        self.lifts = 0  # how often room came back: what was refused before may fit since
        self.moved = False  # a standing promise did not just stay, so a second pass might choose better
        self.last: Order | None = None  # of the last job refused in its turn,
        self.last_level = FLAT[0]  # and its level
        self.strict = self.policy.backfill.depth == 0  # nobody goes ahead
        self.windows: list[int] = []  # starts of reservations to come

    def full(self) -> Settled | None:
        """None: another pass at once might find more, so nothing is settled."""
        depth, pool = self.policy.backfill.depth, self.pool
        if pool.promised:
            self._stand(all_of_them=depth > 1)
            self._start_held()
        self._heads()
        if self.standing and not self.cycle.cut:
            self._lift_the_rest()
        if self.promises or pool.promised:
            self._record_promises()
        if self.cycle.cut:
            return None
        if len(self.promises) == 1 and self.policy.backfill.slip_percent:
            self._let_slip(*self.promises.values())
        firm_from = self._firm_from() if self.policy.backfill.firm_after_ms and not self.windows else FOREVER_MS
        untried = self.candidates(soft=firm_from < FOREVER_MS) if self.turns.waiting and not self.strict else ()
        if self.moved:
            return None
        room = len(self.promises) < depth
        return Settled(self.placer, self.last, self.last_level, room, self.strict, self.slips_from, firm_from, untried)

    # -- jobs in their turn ------------------------------------------------------------------------------

    def _heads(self) -> None:
        """Starts or promises in the order of turns, until promises run out."""
        depth, cycle, turns = self.policy.backfill.depth, self.cycle, self.turns
        leaf = turns.leaf()
        while leaf is not None and not cycle.cut:
            first = leaf.first()
            assert first is not None, "a leaf has its turn while somebody waits there"
            order = first[:3]
            given, aged = len(self.promises), order[0] == AGED
            may_promise = given < depth or (aged and given < depth + self.policy.order.aged_promises_max)
            if given and not may_promise:
                if aged:  # it has no promise that would protect it, so nobody goes ahead
                    self.last, self.last_level, self.strict = order, turns.level or FLAT[0], True
                break
            lane, done = turns.take(leaf)[5:]
            if type(done) is Stopped:
                self._resume(leaf, done, order, keeps=True)
            elif not (self.begun and self._goes_on(lane, done)) and turns.has_room(lane, order):
                line = done or Line(self.world, lane)
                if self._turn(leaf, line, order, may_promise=may_promise):
                    turns.comes_again(line)
                if depth == 0 and self.last is not None:
                    break
            leaf = turns.leaf()

    def _turn(self, leaf: Leaf, line: Line, order: Order, *, may_promise: bool) -> bool:
        """True: the line has somebody for another turn."""
        if self._head(line, may_promise=may_promise):
            self.turns.started(leaf, line)
            return line.advance()
        self.last, self.last_level = order, self.turns.level or FLAT[0]
        self.turns.waits(line.lane, order, promised=line.lifts == self.lifts)
        if line.lifts != self.lifts and not (self.pool.within and self.standing):
            return False  # it would not fit even when all that runs has ended, or not before the reservation ends
        # Tasks of an array are alike: the first that waits stands for them.
        return self.policy.backfill.depth > 0 and line.next_job()

    def _head(self, line: Line, *, may_promise: bool) -> bool:
        """Starts the task, or promises it a start. False: refused; with a promise if `lifts` of the line is set."""
        lane, task = line.lane, line.task
        standing = self.standing.pop(task, None) if self.standing else None
        if standing is not None:
            self.placer.lift(lane, *standing)
            self.lifts += 1
        if line.lifts != self.lifts:
            chosen = self.placer.start(lane, self._end(lane, self.now))
            if chosen is not None:
                self._starts(lane, task, chosen, backfilled=bool(self.promises))
                self.moved |= standing is not None
                return True
        if may_promise:
            promised = self.placer.promise(lane)
            if promised is not None:
                line.lifts = self.lifts
                self.promises[task] = promise = self._promise(lane, task, *promised)
                self.moved |= standing is not None and self.world.promises.get(task) != promise
                if self.cycle.preemptor is not None:
                    self._interrupt(self.cycle.preemptor, line, promise)
        return False

    def _interrupt(self, preemptor: Preemptor, line: Line, promise: Promise) -> None:
        """Others make room for the job, if its turn is worth that: it starts when they have gone, not when it must."""
        lane, task, grace_ms = line.lane, line.task, max(1, self.policy.preemption.grace_ms)
        soon = self.now + grace_ms
        if promise.start_by <= soon:
            return
        victims = preemptor.victims(self.pool, lane, line.job, task)
        if not victims:
            return
        self.placer.lift(lane, promise.start_by, self._rows(promise))
        rooms = self.placer.rooms_between(soon, self._end(lane, soon))
        victims = preemptor.make_room(self.pool, lane, line.job, task, rooms, victims)
        if not victims:
            self.placer.stand(lane, promise.start_by, self._rows(promise))
            return
        self.cycle.halts += [preemptor.interrupt(victim, lane, line.job, task) for victim in victims]
        self.cycle.cut = CUT_BY_PREEMPTION
        nodes = self._names(self.placer.chosen_when(lane, rooms, [victim.run for victim in victims]))
        self.promises[task] = Promise(task, soon, nodes, self.now + self.policy.preemption.hold_ms)

    def _promise(self, lane: Lane, task: int, start: int, chosen: Chosen) -> Promise:
        """A promise whose start is what it was keeps its nodes too, if they are free then."""
        known, held_until = self.world.promises.get(task), self._held_until(task)
        if known is not None and known.start_by == start and known.nodes and chosen[0]:
            before = self._rows(known)
            if before != chosen:
                self.placer.lift(lane, start, chosen)
                if self.placer.stand(lane, start, before) is not None:
                    return replace(known, held_until=held_until)
                self.placer.stand(lane, start, chosen)
        return Promise(task, start, self._names(chosen), held_until)

    # -- jobs ahead of their turn ------------------------------------------------------------------------

    def _firm_from(self) -> int:
        """From when on one of the promises is firm. FOREVER_MS: one is already, or there is none."""
        firm = min([self._firm_at(task) for task in self.promises], default=0)
        return firm if self.now < firm and not self.held else FOREVER_MS

    def _firm_at(self, task: int) -> int:
        """When its job has waited long enough, or is past the ageing bound."""
        job, after = self.world.jobs[task >> ARRAY_BITS], self.policy.backfill.firm_after_ms
        bound = ageing_bound(self.policy, self.pool.lanes[self.world.lane_key(job)])
        return job.submit_ms + (min(after, bound) if bound else after)

    def candidates(self, *, soft: bool) -> tuple[int, ...]:
        """Starts what fits beside the promises. If it is cut: the lanes that have not been refused.

        `soft`: promises may be put off by what is likely to end in time, if it should take longer.
        """
        now, placer, cycle, turns = self.now, self.placer, self.cycle, self.turns
        shortest = self.policy.backfill.order is CandidateOrder.SHORTEST
        turns.leave_candidates(placer, self.lifts, shortest=shortest, soft=soft)
        refused = 0
        leaf = turns.leaf()
        while leaf is not None and not cycle.cut:
            length, lane, done = turns.take(leaf)[4:]
            if type(done) is Stopped:
                self._resume(leaf, done, BEHIND_ALL, keeps=False)
                leaf = turns.leaf()
                continue
            if self.begun and self._goes_on(lane, done, shortest=shortest):
                leaf = turns.leaf()
                continue
            end = self._end(lane, now) if self.windows else now + length
            chosen = placer.start(lane, end) if turns.has_room(lane, BEHIND_ALL) else None
            if chosen is None:
                refused += 1
                if refused * SIFT_COST > turns.waiting:
                    turns.sift(placer)
                    refused = 0
            else:
                line = done or Line(self.world, lane)
                self.moved |= end > self.slips_from
                self._starts(lane, line.task, chosen, backfilled=True)
                self.moved |= length < lane.estimate_ms
                turns.started(leaf, line)
                if line.advance():
                    turns.comes_again(line, shortest=shortest)
            leaf = turns.leaf()
        return turns.serials()

    # -- who was suspended -------------------------------------------------------------------------------

    def _resume(self, leaf: Leaf, stopped: Stopped, place: Order, *, keeps: bool) -> None:
        """It goes on, or (in its turn) keeps its cpus for when they are free."""
        placer, now = self.placer, self.now
        assert isinstance(placer, ColumnPlacer), "a pool with somebody suspended is not counted"
        if not self.turns.has_room(stopped.lane, place):
            return
        if goes_on(self.pool, placer, stopped, now):
            run = stopped.run
            end = self._end(stopped.lane, now)
            self.cycle.resumes.append(JobResumed(now, run.task, run.attempt, end))
            self.turns.started(leaf, stopped)
        elif keeps:
            keep_for(self.pool, placer, stopped, now)

    # -- what both do ------------------------------------------------------------------------------------

    def _end(self, lane: Lane, start: int) -> int:
        """Until when planning takes a job of the lane to run."""
        end = start + lane.estimate_ms
        return certain_end(self.windows, end, start + lane.limit_ms) if self.windows else end

    def _goes_on(self, lane: Lane, done: Line | None, *, shortest: bool = False) -> bool:
        """True: the task whose turn it was has begun before, and the next of its lane gets a turn of its own."""
        line = done or Line(self.world, lane)
        if line.task not in self.begun:
            return False
        if line.advance():
            self.turns.comes_again(line, shortest=shortest)
        return True

    def _starts(self, lane: Lane, task: int, chosen: Chosen, *, backfilled: bool) -> None:
        cycle, tries = self.cycle, self.world.tries
        attempt = tries[task].attempt + 1 if task in tries else 1
        end = self._end(lane, self.now)
        cycle.starts.append(JobStarted(self.now, task, attempt, end, self._names(chosen), backfilled))
        if len(cycle.starts) >= self.policy.cycle.starts_max:
            cycle.cut = CUT_BY_STARTS + self.pool.name

    def _names(self, chosen: Chosen) -> Placement:
        names = self.pool.names
        rows, counts = chosen
        if len(rows) == 1:
            return ((names[rows[0]], counts[0]),)
        return tuple([(names[rows[at]], counts[at]) for at in range(len(rows))])

    # -- promises ----------------------------------------------------------------------------------------

    def _stand(self, *, all_of_them: bool) -> None:
        """Room for the promises made before, earliest first; newcomers plan around them. If not all: for those held."""
        jobs = self.world.jobs
        kept = [self.world.promises[task] for task in self.pool.promised]
        if not all_of_them:
            kept = [promise for promise in kept if promise.held_until > self.now]
        for promise in sorted(kept, key=lambda promise: (promise.start_by, promise.task)):
            job, task = jobs[promise.task >> ARRAY_BITS], promise.task
            if job.spec.array is not None:
                task = next(array_tasks(self.world, job), task)  # a lost task may have come before it
            chosen = self.placer.stand(self.pool.lanes[self.world.lane_key(job)], promise.start_by, self._rows(promise))
            if promise.held_until > self.now:
                self.held[task] = promise
            if chosen is not None:
                self.standing[task] = (promise.start_by, chosen)
            else:
                self.moved = True

    def _start_held(self) -> None:
        """Those that others made room for, before anybody's turn: else it was made in vain, and made again."""
        for task, promise in self.held.items():
            looks = self.cycle.looks
            looks[self.pool.name] = min(promise.held_until, looks.get(self.pool.name, promise.held_until))
            if task not in self.standing:
                continue
            lane = self.pool.lanes[self.world.lane_key(self.world.jobs[task >> ARRAY_BITS])]
            standing = self.standing[task]
            if not self.turns.has_room(lane, held_place(promise)):
                continue
            self.placer.lift(lane, *standing)
            chosen = self.placer.start(lane, self._end(lane, self.now))
            if chosen is None:
                self.placer.stand(lane, *standing)
                continue
            del self.standing[task]
            self.begun.add(task)
            self._starts(lane, task, chosen, backfilled=False)
            self.turns.held_started(lane, promise)

    def _held_until(self, task: int) -> int:
        return self.held[task].held_until if task in self.held else 0

    def _rows(self, promise: Promise) -> Chosen:
        row_of = self.pool.row_of
        return tuple([row_of[name] for name, _ in promise.nodes]), tuple([count for _, count in promise.nodes])

    def _lift_the_rest(self) -> None:
        """Their jobs are no longer among the first `depth`. What is held stays."""
        for task, (start, chosen) in self.standing.items():
            if task in self.held:
                self.promises[task] = Promise(task, start, self._names(chosen), self._held_until(task))
            else:
                lane = self.pool.lanes[self.world.lane_key(self.world.jobs[task >> ARRAY_BITS])]
                self.placer.lift(lane, start, chosen)
                self.lifts += 1
                self.moved = True

    def _let_slip(self, promise: Promise) -> None:
        """Those who go ahead may delay it a little; not one past the ageing bound, or that others made room for.

        Of several promises each would have to know where the others may go to; so then none slips.
        """
        job = self.world.jobs[promise.task >> ARRAY_BITS]
        lane = self.pool.lanes[self.world.lane_key(job)]
        bound = ageing_bound(self.policy, lane)
        if promise.held_until > self.now or (bound and self.now - job.submit_ms >= bound):
            return
        told, allowed = may_slip_from(self.world, promise.task, promise.start_by)
        start, latest = promise.start_by, told + allowed
        if latest > start and self.placer.put_off(lane, start, latest, self._rows(promise)):
            self.slips_from = start

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
