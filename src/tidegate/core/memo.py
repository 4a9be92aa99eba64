"""What the kernel remembers between cycles. It only saves work: with a new Memo every choice is the same.

A ranking holds the lanes of a pool in order. A settled pass says: under this placer everything that waited
was refused; so, until room comes back, only what arrives since needs to be tried.
"""

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field

from tidegate.core.place import Placer, Ranked
from tidegate.model.jobs import Job, Shape
from tidegate.policy.order import AGED, moves_with_time, rank
from tidegate.world.lanes import Lane
from tidegate.world.pool import Pool
from tidegate.world.world import World

Order = tuple[int, int, int]
"""(rank, submit, job)"""
Ageing = tuple[int, int, Lane]
"""(submit, job, lane): the oldest job of a lane that has not passed the ageing bound."""


def _submit(job: Job) -> int:
    return job.submit_ms


@dataclass(slots=True)
class Ranking:
    """The lanes of one pool, by rank of their heads."""

    capacity: list[int]  # of the pool, which ranks may be measured by
    entries: list[Ranked] = field(default_factory=list)
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
        old = self.known.pop(lane.serial, None)
        if old is not None:
            del self.entries[bisect_left(self.entries, old)]
            aging = self.ageing.pop(lane.serial, None)
            if aging is not None:
                del self.by_age[bisect_left(self.by_age, aging)]
        if not lane.jobs:
            return False
        head = lane.jobs[0]
        submit = head.submit_ms
        entry = (rank(world, pool, lane, head, now), submit, head.id, lane.units, lane.estimate_ms, lane, None)
        self.known[lane.serial] = entry
        insort(self.entries, entry)
        bound = world.policy.order.ageing_bound_ms
        if bound:
            at = 0 if entry[0] != AGED else bisect_right(lane.jobs, now - bound, key=_submit)
            if at < len(lane.jobs):
                young = lane.jobs[at]
                aging = self.ageing[lane.serial] = (young.submit_ms, young.id, lane)
                insort(self.by_age, aging)
        return old is not None and old[2] == head.id and old[0] != entry[0]

    def age(self, world: World, pool: Pool, now: int) -> bool:
        """Ranks anew the lanes whose head passed the bound since; True if there were any."""
        aged = False
        while self.by_age and now - self.by_age[0][0] >= world.policy.order.ageing_bound_ms:
            self.update(world, pool, self.by_age[0][2], now)
            aged = True
        return aged


@dataclass(slots=True)
class Settled:
    """How a full pass over a pool ended: everything that waits, but for some lanes, was refused under this placer."""

    placer: Placer
    last_refused: Order | None  # of the last job refused in its turn
    room_for_promises: bool  # fewer promises were given than the policy allows
    strict: bool  # nobody goes ahead of the last refused
    untried: tuple[int, ...]  # serials of lanes that the pass was cut before: all others were refused


class Memo:
    __slots__ = ("cycle", "moving", "policy_version", "rankings", "settled")

    def __init__(self) -> None:
        self.cycle = -1
        self.policy_version = -1
        self.moving = False  # ranks change against each other while nothing happens
        self.rankings: dict[str, Ranking] = {}
        self.settled: dict[str, Settled] = {}

    def refresh(self, world: World) -> None:
        """Forgets everything unless it saw the last cycle and the policy is the same."""
        if self.cycle != world.cycle or self.policy_version != world.policy_version:
            self.rankings.clear()
            self.settled.clear()
            self.policy_version = world.policy_version
            self.moving = moves_with_time(world.policy)

    def ranking(self, world: World, pool: Pool, now: int) -> tuple[Ranking, bool]:
        """The lanes in order as of now, and whether the order of what waited before is unchanged."""
        ranking = self.rankings.get(pool.name)
        if ranking is None or ranking.capacity is not pool.capacity or self.moving:
            ranking = self.rankings[pool.name] = Ranking(pool.capacity)
            for lane in pool.lanes.values():
                ranking.update(world, pool, lane, now)
            return ranking, False
        unchanged = True
        for lane in pool.changed.values():
            unchanged &= not ranking.update(world, pool, lane, now)
        if ranking.by_age:
            unchanged &= not ranking.age(world, pool, now)
        return ranking, unchanged
