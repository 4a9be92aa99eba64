"""What the kernel remembers between cycles. It only saves work: with a new Memo every choice is the same.

A ranking holds the lanes of a pool in order. A settled pass says: under this placer everything that waited
was refused; so, until room comes back, only what arrives since needs to be tried.
"""

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field

from tidegate.core.place import Placer, Ranked
from tidegate.core.preempt import may_preempt, only_savers
from tidegate.model.jobs import Job, Shape
from tidegate.model.policy import LEVEL_MAX, PolicySpec
from tidegate.policy.likely import likely_ms
from tidegate.policy.order import AGED, ageing_bound, defers, is_aged, moves_with_time, rank_within
from tidegate.world.accounts import USER_MARK, leaf_of, path_of
from tidegate.world.lanes import Lane
from tidegate.world.pool import Pool
from tidegate.world.world import World

Order = tuple[int, int, int]
"""(rank, submit, job)"""
LeafKey = tuple[int, str]
"""(level, name of the leaf in the queue tree)"""
FLAT: LeafKey = (0, "")
"""All lanes, where the policy has neither queues nor levels."""
AGED_LEAF: LeafKey = (LEVEL_MAX + 1, "")
Ageing = tuple[int, int, Lane]
"""(when it passes the ageing bound, job, lane): the oldest job of a lane that has not passed it."""


def _submit(job: Job) -> int:
    return job.submit_ms


@dataclass(slots=True)
class Ranking:
    """The lanes of one pool, by rank of their heads."""

    policy: PolicySpec  # in that pool
    capacity: list[int]  # of the pool, which ranks may be measured by
    moves: bool  # ranks change against each other while nothing happens
    leaf_names: dict[str, str] | None  # by queue and user, as far as asked; None: neither queues nor levels
    leaves: dict[LeafKey, list[Ranked]] = field(default_factory=dict)
    known: dict[int, Ranked] = field(default_factory=dict)  # by serial of the lane
    by_age: list[Ageing] = field(default_factory=list)  # sorted
    ageing: dict[int, Ageing] = field(default_factory=dict)  # by serial of the lane
    cursors: dict[Shape, int] = field(default_factory=dict)  # first fit: no row below holds a chunk now

    def room_came(self, freed: set[int] | None) -> None:
        """Cursors go back to the lowest row with more room than when they moved; None: it may be any."""
        if freed is None:
            self.cursors.clear()
        elif freed:
            lowest = min(freed)
            for shape, row in self.cursors.items():
                if row > lowest:
                    self.cursors[shape] = lowest

    def update(self, world: World, pool: Pool, lane: Lane, now: int) -> bool:
        """True if a job that was the head before has another rank now."""
        policy = self.policy
        old = self.known.pop(lane.serial, None)
        if old is not None:
            leaf = self.leaves[FLAT if self.leaf_names is None else leaf_key(policy, self, lane, old[0])]
            del leaf[bisect_left(leaf, old)]
            aging = self.ageing.pop(lane.serial, None)
            if aging is not None:
                del self.by_age[bisect_left(self.by_age, aging)]
        if not lane.jobs:
            return False
        head = lane.jobs[0]
        submit = lane.since or head.submit_ms
        bound = ageing_bound(policy, lane)
        turn = rank_within(world, policy, bound, pool, lane, head, now)
        length = lane.estimate_ms
        if policy.backfill.firm_after_ms and defers(policy.order):
            length = likely_ms(world, policy.order, lane, head)
        entry = (turn, submit, head.id, lane.units, length, lane, None)
        self.known[lane.serial] = entry
        key = FLAT if self.leaf_names is None else leaf_key(policy, self, lane, turn)
        found = self.leaves.get(key)
        if found is None:
            self.leaves[key] = [entry]
        else:
            insort(found, entry)
        if bound:
            at = 0
            if is_aged(turn):
                at = len(lane.jobs) if lane.since else bisect_right(lane.jobs, now - bound, key=_submit)
            if at < len(lane.jobs):
                young = lane.jobs[at]
                aging = self.ageing[lane.serial] = ((lane.since or young.submit_ms) + bound, young.id, lane)
                insort(self.by_age, aging)
        return old is not None and old[2] == head.id and old[0] != entry[0]

    def age(self, world: World, pool: Pool, now: int) -> bool:
        """Ranks anew the lanes whose head passed the bound since; True if there were any."""
        aged = False
        while self.by_age and now >= self.by_age[0][0]:
            self.update(world, pool, self.by_age[0][2], now)
            aged = True
        return aged


def ranked(world: World, policy: PolicySpec, pool: Pool, now: int) -> Ranking:
    """All lanes of the pool in order as of now."""
    parted = bool(policy.queues) or any(known.level for known in policy.classes.values())
    ranking = Ranking(policy, pool.capacity, moves_with_time(policy), {} if parted else None)
    for lane in pool.lanes.values():
        ranking.update(world, pool, lane, now)
    return ranking


def leaf_key(policy: PolicySpec, ranking: Ranking, lane: Lane, turn: int) -> LeafKey:
    """Where a job of the lane with such a rank has its turn."""
    names = ranking.leaf_names
    if names is None:
        return FLAT
    if is_aged(turn):
        return AGED_LEAF
    known = policy.classes.get(lane.klass)
    level = known.level if known is not None else 0
    if not policy.queues:
        return (level, "")
    said = f"{lane.queue}/{USER_MARK}{lane.user}"
    name = names.get(said)
    if name is None:
        name = names[said] = leaf_of(policy, path_of(policy, lane.queue, lane.user))
    return (level, name)


@dataclass(slots=True)
class Settled:
    """How a full pass over a pool ended: everything that waits, but for some lanes, was refused under this placer."""

    placer: Placer
    last_refused: Order | None  # of the last job refused in its turn,
    last_level: int  # and its level
    room_for_promises: bool  # fewer promises were given than the policy allows
    strict: bool  # nobody goes ahead of the last refused
    slips_from: int  # the promised start that may slip: a run beyond it may move the promise
    firm_from: int  # from when on a promise is firm that could be put off; FOREVER_MS: there is none
    untried: tuple[int, ...]  # serials of lanes that the pass was cut before: all others were refused

    def holds(self, now: int, pool: Pool, ranking: Ranking) -> bool:
        """Nothing that arrived could get a promise, or take the place of a job that was refused in its turn."""
        last = self.last_refused
        if last is None or (self.room_for_promises and pool.grown) or self.placer.counted != pool.counted:
            return False
        if self.firm_from <= now:
            return False
        known = ranking.known
        for serial in pool.changed:
            entry = known.get(serial)
            if entry is None:
                continue
            # Compared as far as `last` goes: rank, submit, job. A job past the ageing bound always gets a promise.
            level = leaf_key(ranking.policy, ranking, entry[5], entry[0])[0]
            if level > self.last_level or (level == self.last_level and entry < last) or entry[0] == AGED:
                return False
        return True


class Memo:
    __slots__ = ("cycle", "only_savers", "policy_version", "preempts", "rankings", "settled")

    def __init__(self) -> None:
        self.cycle = -1
        self.policy_version = -1
        self.preempts = False  # the policy lets somebody be interrupted,
        self.only_savers = False  # and nobody but those who can save themselves
        self.rankings: dict[str, Ranking] = {}
        self.settled: dict[str, Settled] = {}

    def refresh(self, world: World) -> None:
        """Forgets everything unless it saw the last cycle and the policy is the same."""
        if self.cycle != world.cycle or self.policy_version != world.policy_version:
            self.rankings.clear()
            self.settled.clear()
            self.policy_version = world.policy_version
            self.preempts = may_preempt(world.policy)
            self.only_savers = only_savers(world.policy)

    def ranking(self, world: World, policy: PolicySpec, pool: Pool, now: int) -> tuple[Ranking, bool]:
        """The lanes in order as of now, and whether the order of what waited before is unchanged."""
        ranking = self.rankings.get(pool.name)
        if ranking is None or ranking.capacity is not pool.capacity or ranking.policy is not policy or ranking.moves:
            ranking = self.rankings[pool.name] = ranked(world, policy, pool, now)
            return ranking, False
        unchanged = True
        for lane in pool.changed.values():
            unchanged &= not ranking.update(world, pool, lane, now)
        if ranking.by_age:
            unchanged &= not ranking.age(world, pool, now)
        return ranking, unchanged
