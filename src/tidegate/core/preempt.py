"""Preemption: who is interrupted so that a job in its turn can start. Never more than needed, never in a loop.

A victim must be lower in an order that the preemption cannot turn round (docs/decisions/0017): of a lower level; or of
a queue that, with the victims gone and the job there, still holds more than the job's own.
"""

from collections import Counter
from typing import NamedTuple

from msgspec.structs import replace

from tidegate.core.feedback import HAS_AGED, HAS_SUNK, Claim, ages_at, claim_of, may_take_at
from tidegate.core.place import Rooms
from tidegate.model.base import ARRAY_BITS
from tidegate.model.events import HaltRequested, JobSuspended
from tidegate.model.jobs import Job, Outcome
from tidegate.model.policy import SAVE_FIRST, JobClass, PolicySpec, Preempt
from tidegate.policy.share import HELD_BITS, Branch, Shares
from tidegate.world.accounts import leaf_of, path_of
from tidegate.world.lanes import Lane
from tidegate.world.pauses import is_suspended, lent_by, ran_since, without_pauses
from tidegate.world.pool import Pool
from tidegate.world.records import Run
from tidegate.world.rungs import rung_now, sinks
from tidegate.world.world import World

MINUTE_MS = 60_000
NO_CLASS = JobClass()


class Victim(NamedTuple):
    level: int
    rung: int
    lost: int  # chunk-milliseconds that would have to be done again
    task: int
    run: Run  # with what it would leave
    why: str
    rule: "Rule"


class Rule(NamedTuple):
    """What must hold when it is done, lest it be done the other way round next."""

    mine: Branch | None = None  # where the queues of the two part
    theirs: Branch | None = None
    reclaims: bool = False

    def holds(self, margin: int) -> bool:
        if self.mine is None or self.theirs is None:
            return True
        if self.reclaims:
            return self.mine.is_guaranteed() and not self.theirs.is_below_guarantee()
        return self.mine.share_held() + margin <= self.theirs.share_held()


BY_LEVEL = Rule()


def may_preempt(policy: PolicySpec) -> bool:
    """Does the policy let anybody be interrupted?"""
    return any(known.preempt is not Preempt.NEVER for known in policy.classes.values())


def only_savers(policy: PolicySpec) -> bool:
    """And nobody but those who can save themselves?"""
    return all(known.preempt is Preempt.NEVER or known.preempt in SAVE_FIRST for known in policy.classes.values())


class Preemptor:
    """Of one cycle."""

    __slots__ = ("looks", "now", "policy", "rules", "shares", "world")

    def __init__(self, world: World, shares: Shares | None, now: int, looks: dict[str, int]) -> None:
        self.world = world
        self.policy = world.policy
        self.rules = world.policy.preemption  # of the pool that is looked at
        self.shares = shares
        self.now = now
        self.looks = looks  # by pool: when time alone may change the answer; of the cycle

    def victims(self, pool: Pool, lane: Lane, job: Job, task: int) -> list[Victim]:
        """Who may be interrupted for the job now, whether or not that is enough."""
        self.rules = self.world.policy_in(pool.name).preemption
        if not self._allowed(pool):
            return []
        return self._candidates(pool, lane, job, claim_of(self.world, lane, job, task, self.now))

    def make_room(
        self, pool: Pool, lane: Lane, job: Job, task: int, rooms: Rooms, victims: list[Victim]
    ) -> list[Victim]:
        """Those who go, so that the job fits in `rooms` and what they leave; none, if that cannot be, or not yet."""
        allowed = self._allowed(pool)
        chosen = by_row(pool, lane, rooms, victims) if not lane.shape.stack else victims
        chosen = needed(pool, lane, rooms, chosen)
        if not chosen or not self._stays_so(lane, chosen):
            return []
        if len(chosen) > allowed:  # all of them or nobody: a part would be interrupted in vain
            self._look_when_renewed(pool)
            return []
        return chosen

    def interrupt(self, victim: Victim, lane: Lane, job: Job, task: int) -> HaltRequested | JobSuspended:
        run = self.world.runs[victim.task]
        other = self.world.jobs[run.task >> ARRAY_BITS]
        how, why = self._class(other).preempt, f"makes room for job {job.id}: {victim.why}"
        if how is Preempt.SUSPEND:
            until = self.now + lane.estimate_ms + max(1, run.expected_end - self.now)
            return JobSuspended(self.now, run.task, run.attempt, why, until, room_for=task)
        again = how is not Preempt.CANCEL
        return HaltRequested(
            self.now, run.task, run.attempt, Outcome.CANCELLED, why,
            again, again and other.spec.checkpoint is not None, task, self.now + max(1, self.rules.grace_ms),
        )  # fmt: skip

    # -- who may be interrupted --------------------------------------------------------------------------

    def _candidates(self, pool: Pool, lane: Lane, job: Job, claim: Claim | None) -> list[Victim]:
        """The lowest level first, then the lowest rung, then those that lose least."""
        world, level, found = self.world, self._class(job).level, []
        users = Counter(user for at, user in world.interrupted if at > self.now - MINUTE_MS)
        ends = planned_ends(pool) if pool.reserved else {}
        for run in world.runs.values():
            if run.pool != pool.name or run.task in world.halting:
                continue
            if pool.reserved and run.task not in ends:
                continue
            other = world.jobs[run.task >> ARRAY_BITS]
            known = self._class(other)
            if known.preempt is Preempt.NEVER or known.level > level:
                continue
            if known.preempt in SAVE_FIRST and other.spec.checkpoint is None:
                continue
            suspends = known.preempt is Preempt.SUSPEND
            if suspends and (is_suspended(world, run.task) or not lent_by(world, run)):
                continue
            why, rule = self._why(pool, lane, job, level - known.level, other)
            if not why and claim is not None:
                why = self._by_feedback(pool, lane, job, claim, other, run)
            if not why:
                continue
            old_enough = ran_since(world, run) + self.rules.min_run_ms
            if old_enough > self.now:
                self._look_at(pool, old_enough)
            elif self.rules.user_max and users[other.spec.user] >= self.rules.user_max:
                self._look_at(pool, self.now + MINUTE_MS)
            else:
                rung = self._rung(run, other) if claim is not None else 0
                lost = 0 if suspends else self._lost(run, other)
                leaves = replace(run, need=lent_by(world, run)) if suspends else run
                if pool.reserved:
                    leaves = replace(leaves, expected_end=ends[run.task])
                found.append(Victim(known.level, rung, lost, run.task, leaves, why, rule))
                users[other.spec.user] += 1
        found.sort(key=lambda victim: (victim.level, -victim.rung, victim.lost, -victim.run.start_ms, -victim.task))
        return found

    def _why(self, pool: Pool, lane: Lane, job: Job, gap: int, other: Job) -> tuple[str, Rule]:
        """'': it may not be."""
        rules = self.rules
        if rules.level_gap and gap >= rules.level_gap:
            return f"class {job.spec.klass} goes before class {other.spec.klass}", BY_LEVEL
        if self.shares is None:
            return "", BY_LEVEL
        mine, theirs = self._apart(lane, other)
        if mine is None or theirs is None:
            return "", BY_LEVEL
        if mine.is_below_guarantee() and not theirs.is_below_guarantee():
            waited = job.submit_ms + rules.reclaim_after_ms
            if waited > self.now:
                self._look_at(pool, waited)
                return "", BY_LEVEL
            return f"queue {mine.name} takes back what it is guaranteed", Rule(mine, theirs, reclaims=True)
        if self.margin() and mine.share_held() + self.margin() < theirs.share_held():
            return f"queue {theirs.name} holds more than its share against {mine.name}", Rule(mine, theirs)
        return "", BY_LEVEL

    def _by_feedback(self, pool: Pool, lane: Lane, job: Job, claim: Claim, other: Job, run: Run) -> str:
        """Within one line only: between queues their shares say who goes first. No array makes room for itself:
        its task that was interrupted would be the next to start.
        """
        if other.id == job.id or not sinks(self.policy, other.spec):
            return ""
        if self.shares is not None and self._leaf_of(lane.queue, lane.user) != self._leaf_of(*self._branch_of(other)):
            return ""
        at = may_take_at(self.world, claim, other, run, self.now)
        if at is None:
            return ""
        if at > self.now:
            self._look_at(pool, max(at, run.start_ms + self.rules.min_run_ms))
            return ""
        return HAS_AGED if claim.is_aged else HAS_SUNK

    def _leaf_of(self, queue: str, user: str) -> str:
        return leaf_of(self.policy, path_of(self.policy, queue, user))

    def _branch_of(self, other: Job) -> tuple[str, str]:
        key = self.world.lane_key(other)
        return key[0], key[4]

    def _rung(self, run: Run, other: Job) -> int:
        ran = without_pauses(self.world, run, self.now)
        return rung_now(self.policy, other, ran, self.world.tries.get(run.task), self.now)

    def _apart(self, lane: Lane, other: Job) -> tuple[Branch | None, Branch | None]:
        """Where the two paths part, seen from the root."""
        assert self.shares is not None
        mine, theirs = self.shares.path(lane.queue, lane.user), self.shares.path(*self._branch_of(other))
        for a, b in zip(reversed(mine), reversed(theirs), strict=False):
            if a is not b:
                return a, b
        return None, None

    def _stays_so(self, lane: Lane, chosen: list[Victim]) -> bool:
        """With the job there and the victims gone, would nobody interrupt it by the same rule?"""
        shares = self.shares
        if shares is None:
            return True
        shares.charge(lane)
        for victim in chosen:
            self._discharge(victim, -1)
        holds = all(victim.rule.holds(self.margin()) for victim in chosen)
        for victim in chosen:
            self._discharge(victim, 1)
        shares.charge(lane, -1)
        return holds

    def _discharge(self, victim: Victim, sign: int) -> None:
        assert self.shares is not None
        queue, user = self._branch_of(self.world.jobs[victim.task >> ARRAY_BITS])
        self.shares.hold(queue, user, victim.run.need, sign * sum(victim.run.counts))

    def _lost(self, run: Run, other: Job) -> int:
        """What it did since it was last saved, times its chunks. One that saves itself when asked loses its grace."""
        ran = self.now - run.start_ms
        if other.spec.checkpoint is not None:
            ran = min(ran, self.rules.grace_ms)
        return ran * sum(run.counts)

    def margin(self) -> int:
        return (self.rules.share_margin_percent << HELD_BITS) // 100

    def _class(self, job: Job) -> JobClass:
        return self.policy.classes.get(job.spec.klass, NO_CLASS)

    # -- how many, and when again ------------------------------------------------------------------------

    def _allowed(self, pool: Pool) -> int:
        """How many more may be interrupted in this minute."""
        world = self.world
        recent = [at for at, _ in world.interrupted if at > self.now - MINUTE_MS]
        most = max(1, (len(world.runs) + len(recent)) * self.rules.budget_percent // 100)
        if len(recent) >= most:
            self._look_when_renewed(pool)
        return max(0, most - len(recent)) if self.rules.budget_percent else 0

    def _look_when_renewed(self, pool: Pool) -> None:
        recent = [at for at, _ in self.world.interrupted if at > self.now - MINUTE_MS]
        if recent:
            self._look_at(pool, min(recent) + MINUTE_MS)

    def look_when_aged(self, pool: Pool, by_age: list[tuple[int, int, Lane]]) -> None:
        at = ages_at(self.policy, by_age)
        if at is not None:
            self._look_at(pool, at)

    def _look_at(self, pool: Pool, at: int) -> None:
        self.looks[pool.name] = min(at, self.looks.get(pool.name, at))


def planned_ends(pool: Pool) -> dict[int, int]:
    """By task, of those in this part of a pool: some are planned with their time limit."""
    return {task: end for end in pool.end_times for task in pool.runs_at[end]}


# -- which of them are enough ------------------------------------------------------------------------------


class _Filling:
    """How many chunks of a shape fit, row by row, as runs are taken off."""

    __slots__ = ("allowed", "need", "rooms", "stack", "total")

    def __init__(self, pool: Pool, lane: Lane, rooms: Rooms) -> None:
        self.need, self.stack = lane.need, lane.shape.stack
        self.rooms = [(time, [room[column].tolist() for column, _ in lane.need]) for time, room in rooms]
        where = lane.shape.where
        self.allowed = pool.rows_matching(where).tolist() if where else None
        self.total = sum(map(self.chunks, range(len(pool.names))))

    def chunks(self, row: int) -> int:
        """All the time."""
        if self.allowed is not None and not self.allowed[row]:
            return 0
        fit: int = min(
            cells[row] // amount for _, room in self.rooms for cells, (_, amount) in zip(room, self.need, strict=True)
        )
        return max(0, fit if self.stack else min(fit, 1))

    def give(self, run: Run, sign: int) -> None:
        """From when it would have ended on its room is there anyhow, and may have been promised."""
        has = dict(run.need)
        for row, count in zip(run.rows, run.counts, strict=True):
            before = self.chunks(row)
            for time, room in self.rooms:
                if run.expected_end > time:
                    for cells, (column, _) in zip(room, self.need, strict=True):
                        cells[row] += sign * has.get(column, 0) * count
            self.total += self.chunks(row) - before


def needed(pool: Pool, lane: Lane, rooms: Rooms, victims: list[Victim]) -> list[Victim]:
    """The first that are enough, without those that can be spared; none where all are not enough."""
    filling, taken = _Filling(pool, lane, rooms), []
    for victim in victims:
        if filling.total >= lane.units:
            break
        filling.give(victim.run, 1)
        taken.append(victim)
    if filling.total < lane.units:
        return []
    kept = []
    for victim in reversed(taken):  # who would lose most is spared first
        filling.give(victim.run, -1)
        if filling.total < lane.units:
            filling.give(victim.run, 1)
            kept.append(victim)
    kept.reverse()
    return kept


def by_row(pool: Pool, lane: Lane, rooms: Rooms, victims: list[Victim]) -> list[Victim]:
    """Those of the cheapest rows first: a gang wants whole nodes, not crumbs of many."""
    filling = _Filling(pool, lane, rooms)
    on_row: dict[int, list[Victim]] = {}
    for victim in victims:
        for row in victim.run.rows:
            on_row.setdefault(row, []).append(victim)
    costs = []
    for row, here in on_row.items():
        if not filling.chunks(row):
            enough = _enough_for_one(filling, row, here)
            if enough:
                costs.append((max(v.level for v in enough), sum(v.lost for v in enough), -enough[0].task, row, enough))
    costs.sort(key=lambda cost: cost[:4])
    return list(dict.fromkeys(victim for *_, enough in costs for victim in enough))


def _enough_for_one(filling: _Filling, row: int, here: list[Victim]) -> list[Victim]:
    """The first of a row's victims that leave room for one chunk there."""
    taken = []
    for victim in here:
        filling.give(victim.run, 1)
        taken.append(victim)
        if filling.chunks(row):
            break
    fits = filling.chunks(row)
    for victim in taken:
        filling.give(victim.run, -1)
    return taken if fits else []
