"""What the kernel remembers between cycles. It only saves work: with a new Memo every choice is the same.

A ranking holds the lanes of a pool in order. A settled pass says: under this placer everything that waited
was refused; so, until room comes back, only what arrives since needs to be tried.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from tidegate.core.place import Placer
from tidegate.model.policy import PolicySpec
from tidegate.policy.order import AGED, moves_with_time, rank
from tidegate.world.lanes import Lane, LaneKey
from tidegate.world.pool import Pool
from tidegate.world.world import World

Ranked = tuple[int, int, int, Lane]
"""(rank, submit, job, lane): sorts by the first three; job ids never tie."""


@dataclass(slots=True)
class Ranking:
    """The lanes of one pool, by rank of their heads."""

    entries: list[Ranked] = field(default_factory=list)
    known: dict[LaneKey, Ranked] = field(default_factory=dict)
    by_age: list[tuple[int, int, LaneKey]] = field(default_factory=list)
    """(submit, job, lane) of every head that is not yet aged."""

    def update(self, policy: PolicySpec, pool: Pool, key: LaneKey, now: int) -> None:
        old = self.known.pop(key, None)
        if old is not None:
            del self.entries[bisect_left(self.entries, old)]
            if self.by_age and old[0] != AGED:
                del self.by_age[bisect_left(self.by_age, (old[1], old[2]))]
        lane = pool.lanes.get(key)
        if lane is None:
            return
        head = lane.jobs[0]
        entry = (rank(policy, pool, lane, head, now), head.submit_ms, head.id, lane)
        self.known[key] = entry
        insort(self.entries, entry)
        if policy.order.ageing_bound_ms and entry[0] != AGED:
            insort(self.by_age, (head.submit_ms, head.id, key))

    def age(self, policy: PolicySpec, pool: Pool, now: int) -> bool:
        """Ranks anew the lanes whose head passed the bound since; True if there were any."""
        aged = False
        while self.by_age and now - self.by_age[0][0] >= policy.order.ageing_bound_ms:
            self.update(policy, pool, self.by_age[0][2], now)
            aged = True
        return aged


@dataclass(slots=True)
class Settled:
    """How a full pass over a pool ended."""

    placer: Placer
    last_refused: tuple[int, int, int] | None  # the order of the last job refused in its turn
    room_for_promises: bool  # fewer promises were given than the policy allows


@dataclass(slots=True)
class Memo:
    cycle: int = -1
    policy_version: int = -1
    rankings: dict[str, Ranking] = field(default_factory=dict)
    settled: dict[str, Settled] = field(default_factory=dict)

    def refresh(self, world: World) -> None:
        """Forgets everything unless it saw the last cycle and the policy is the same."""
        if self.cycle != world.cycle or self.policy_version != world.policy_version:
            self.rankings.clear()
            self.settled.clear()
            self.policy_version = world.policy_version

    def ranking(self, world: World, pool: Pool, now: int) -> tuple[Ranking, bool]:
        """The lanes in order as of now, and whether the order of what waited before is unchanged."""
        policy = world.policy
        ranking = self.rankings.get(pool.name)
        if ranking is None or moves_with_time(policy) or pool.freed is None:
            ranking = self.rankings[pool.name] = Ranking()
            for key in pool.lanes:
                ranking.update(policy, pool, key, now)
            return ranking, False
        for key in pool.changed:
            ranking.update(policy, pool, key, now)
        aged = bool(policy.order.ageing_bound_ms) and ranking.age(policy, pool, now)
        return ranking, not aged
