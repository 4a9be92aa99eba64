"""Share: whose turn it is among queues. Hierarchical dominant-resource fairness over the queue tree.

From the root down the child goes first that is within its guarantee, the emptiest first; then the one with the smallest
dominant share by weight, of what it holds and of what it held before, decayed. A start counts at once.
"""

from typing import Final

from tidegate.model.base import ARRAY_BITS
from tidegate.model.events import Promise
from tidegate.model.policy import PART_BITS, Bounds, PolicySpec, Queue
from tidegate.policy import SHARE_BITS
from tidegate.policy.order import AGED, ageing_bound, rank_when_aged
from tidegate.world.accounts import Path, is_of_user, path_of, queue_of, used_at
from tidegate.world.decay import USE_BITS
from tidegate.world.lanes import Lane
from tidegate.world.records import NO_USE, Need
from tidegate.world.world import World

MORE_BITS: Final = 12
"""On top of USE_BITS: weights divide shares, and one cpu of a large cluster must still count."""
HELD_BITS: Final = 32
NOT_DECLARED = Queue()
Key = tuple[int, int, str]
"""(0 within the guarantee, else 1; how full it is, or its share; its name)"""
Place = tuple[int, int, int]
"""(rank, submit, job): where a job stands among all."""
BEHIND_ALL: Place = (1 << 62, 0, 0)
HELD: Final = AGED - 1
Amounts = list[tuple[int, int]]
"""(column, amount)"""


def held_place(promise: Promise) -> Place:
    """One that others made room for stands before all, and no two share a place."""
    return (HELD, 0, promise.task)


def approvers_of(policy: PolicySpec, queue: str) -> tuple[str, ...]:
    """Who may let the queue exceed its limit: its own approvers, and those of the queues above."""
    names: tuple[str, ...] = ()
    at = len(queue)
    while at > 0:
        known = policy.queues.get(queue[:at])
        names += known.approvers if known is not None else ()
        at = queue.rfind("/", 0, at)
    return names


class Branch:
    """A queue, or a user of one, in one cycle."""

    __slots__ = ("guarantee", "held", "kept", "limit", "name", "scales", "shut", "used")

    def __init__(self, name: str, held: list[int], used: list[int], scales: list[int]) -> None:
        self.name = name
        self.held = held  # by column, in this cycle too
        self.used = used
        self.scales = scales  # by column: capacity times weight; 0: there is none
        self.guarantee: Amounts = []
        self.limit: Amounts = []
        self.kept: dict[Place, tuple[Need, int]] = {}  # chunks under the limit, for jobs past the ageing bound
        self.shut: Place | None = None  # who is past the ageing bound and waits for room under this limit

    def key(self) -> Key:
        held = self.held
        if self.guarantee:
            fill = 0
            for column, amount in self.guarantee:
                if held[column] >= amount:
                    break
                fill = max(fill, (held[column] << SHARE_BITS) // amount)
            else:
                return (0, fill, self.name)
        return (1, self.share(), self.name)

    def share(self) -> int:
        """The dominant one, by weight."""
        share = 0
        for column, scale in enumerate(self.scales):
            if scale:
                share = max(share, ((self.held[column] << USE_BITS) + self.used[column] << MORE_BITS) // scale)
        return share

    def share_held(self) -> int:
        """As `share`, of what it holds now alone, with HELD_BITS bits."""
        held = self.held
        return max([(held[c] << HELD_BITS) // scale for c, scale in enumerate(self.scales) if scale], default=0)

    def is_below_guarantee(self) -> bool:
        return bool(self.guarantee) and all(self.held[column] < amount for column, amount in self.guarantee)

    def is_guaranteed(self) -> bool:
        """All that it holds of the resources it has a guarantee for."""
        return bool(self.guarantee) and all(self.held[column] <= amount for column, amount in self.guarantee)

    def has_room(self, need: Need, units: int, place: Place) -> bool:
        if self.shut is not None and place > self.shut:
            return False
        if self.limit:
            asked = {column: amount * units for column, amount in need}
            for before, (other, others) in self.kept.items():
                if before < place:
                    for column, amount in other:
                        asked[column] = asked.get(column, 0) + amount * others
            for column, most in self.limit:
                if self.held[column] + asked.get(column, 0) > most:
                    return False
        return True

    def may_ever_hold(self, need: Need, units: int) -> bool:
        """With nothing else there."""
        asked = dict(need)
        return all(asked.get(column, 0) * units <= most for column, most in self.limit)


class Shares:
    """The branches of the tree that a cycle has to do with, made when they are asked for."""

    __slots__ = ("at", "capacity", "paths", "tree", "world")

    def __init__(self, world: World, now: int) -> None:
        self.world = world
        self.at = now
        self.capacity = [0] * len(world.columns)
        for pool in world.pools.values():
            for column, amount in enumerate(pool.capacity):
                self.capacity[column] += amount
        self.tree: dict[str, Branch] = {}
        self.paths: dict[tuple[str, str], list[Branch]] = {}

    def path(self, queue: str, user: str) -> list[Branch]:
        """The lowest first, as in world.accounts."""
        found = self.paths.get((queue, user))
        if found is None:
            names: Path = path_of(self.world.policy, queue, user)
            found = self.paths[queue, user] = [self.branch(name) for name in names]
        return found

    def branch(self, name: str) -> Branch:
        found = self.tree.get(name)
        if found is None:
            found = self.tree[name] = self._made(name)
        return found

    def _made(self, name: str) -> Branch:
        policy, capacity = self.world.policy, self.capacity
        is_user = is_of_user(name)
        queue = policy.queues.get(queue_of(name) if is_user else name, NOT_DECLARED)
        account = self.world.accounts.get(name, NO_USE)
        used = used_at(account, self.at, policy.share.half_life_ms)
        weight = 1 if is_user else queue.weight
        branch = Branch(
            name, widened(account.held, len(capacity)), widened(used, len(capacity)), [c * weight for c in capacity]
        )
        branch.limit = self.amounts(queue.user_limit if is_user else queue.limit)
        if not is_user:
            excess = self.world.excesses.get(name)
            if excess is not None:
                more = {self.world.columns.get(resource, -1): amount for resource, amount in excess.amounts}
                branch.limit = [(column, most + more.get(column, 0)) for column, most in branch.limit]
            branch.guarantee = [(column, amount) for column, amount in self.amounts(queue.guarantee) if amount]
        return branch

    def amounts(self, bounds: Bounds) -> Amounts:
        """Of a resource that no node has there is nothing to give or to limit."""
        columns, capacity = self.world.columns, self.capacity
        return [
            (columns[bound.resource], bound.amount or capacity[columns[bound.resource]] * bound.part >> PART_BITS)
            for bound in bounds
            if bound.resource in columns
        ]

    # -- limits ------------------------------------------------------------------------------------------

    def has_room(self, lane: Lane, place: Place) -> bool:
        for branch in self.path(lane.queue, lane.user):
            if not branch.has_room(lane.need, lane.units, place):
                return False
        return True

    def shut(self, lane: Lane, place: Place) -> None:
        """The limits that keep the lane waiting: what comes back there is not for those behind.

        One that has become too large for a limit (the policy or the nodes have changed) must not block it for ever.
        """
        need, units = lane.need, lane.units
        path = self.path(lane.queue, lane.user)
        if not all(branch.may_ever_hold(need, units) for branch in path):
            return
        for branch in path:
            if not branch.has_room(need, units, place) and (branch.shut is None or place < branch.shut):
                branch.shut = place

    def keep_for_held(self) -> None:
        """For the jobs that others were interrupted for: else a job behind takes what their limits leave."""
        world = self.world
        for promise in world.promises.values():
            if promise.held_until > self.at:
                job = world.jobs[promise.task >> ARRAY_BITS]
                lane = world.pools[job.pool].lanes.get(world.lane_key(job))
                if lane is not None:
                    self.keep(lane, held_place(promise))

    def keep_for_aged(self) -> None:
        """For the jobs past the ageing bound, of every pool, before any pool is looked at."""
        policy = self.world.policy
        if not any(queue.limit or queue.user_limit for queue in policy.queues.values()):
            return
        aged: list[tuple[Place, str, Lane]] = []
        for pool in self.world.pools.values():
            for lane in pool.lanes.values():
                head, bound = lane.jobs[0], ageing_bound(self.world.policy_in(pool.name), lane)
                since = lane.since or head.submit_ms
                if bound and self.at - since >= bound:
                    aged.append(((rank_when_aged(lane), since, head.id), pool.name, lane))
        aged.sort()
        for place, _, lane in aged:
            if self.has_room(lane, place):
                self.keep(lane, place)
            else:
                self.shut(lane, place)

    def keep(self, lane: Lane, place: Place) -> None:
        """The room under its limits that the job needs: those behind it do without."""
        for branch in self.path(lane.queue, lane.user):
            if branch.limit:
                branch.kept[place] = (lane.need, lane.units)

    def let_go(self, lane: Lane, place: Place) -> None:
        for branch in self.path(lane.queue, lane.user):
            branch.kept.pop(place, None)

    def charge(self, lane: Lane, sign: int = 1) -> None:
        self.hold(lane.queue, lane.user, lane.need, sign * lane.units)

    def hold(self, queue: str, user: str, need: Need, units: int) -> None:
        for branch in self.path(queue, user):
            held = branch.held
            for column, amount in need:
                held[column] += amount * units


def shares_for_cycle(world: World, now: int) -> Shares | None:
    if not world.has_queues:
        return None
    shares = Shares(world, now)
    shares.keep_for_held()
    shares.keep_for_aged()
    return shares


def widened(row: tuple[int, ...], columns: int) -> list[int]:
    return [*row, *[0] * (columns - len(row))]
