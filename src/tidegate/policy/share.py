"""Share: whose turn it is among queues. Hierarchical dominant-resource fairness over the queue tree.

From the root down the child goes first that is within its guarantee, the emptiest first; then the one with the smallest
dominant share by weight, of what it holds and of what it held before, decayed. A start counts at once.
"""

from typing import Final

from tidegate.model.policy import PART_BITS, Bounds, Queue
from tidegate.policy import SHARE_BITS
from tidegate.world.accounts import USER_MARK, Path, path_of, queue_of, used_at
from tidegate.world.decay import USE_BITS
from tidegate.world.lanes import Lane
from tidegate.world.records import NO_USE, Need
from tidegate.world.world import World

MORE_BITS: Final = 12
"""On top of SHARE_BITS: weights divide shares, and one cpu of a large cluster must still count."""
HELD_BITS: Final = 32
NOT_DECLARED = Queue()
Key = tuple[int, int, str]
"""(0 within the guarantee, else 1; how full it is, or its share; its name)"""
Amounts = list[tuple[int, int]]
"""(column, amount)"""


class Branch:
    """A queue, or a user of one, in one cycle."""

    __slots__ = ("guarantee", "held", "limit", "name", "scales", "shut", "used", "weight")

    def __init__(self, name: str, held: list[int], used: list[int], scales: list[int]) -> None:
        self.name = name
        self.held = held  # by column, in this cycle too
        self.used = used
        self.scales = scales  # by column: capacity times weight; 0: there is none
        self.guarantee: Amounts = []
        self.limit: Amounts = []
        self.shut = False  # somebody past the ageing bound waits for room under this limit

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

    def has_room(self, need: Need, units: int) -> bool:
        if self.shut:
            return False
        if self.limit:
            asked = dict(need)
            for column, most in self.limit:
                if self.held[column] + asked.get(column, 0) * units > most:
                    return False
        return True


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
            found = self.paths[queue, user] = [self._branch(name) for name in names]
        return found

    def _branch(self, name: str) -> Branch:
        found = self.tree.get(name)
        if found is None:
            found = self.tree[name] = self._made(name)
        return found

    def _made(self, name: str) -> Branch:
        policy, capacity = self.world.policy, self.capacity
        is_user = name.rpartition("/")[2][:1] == USER_MARK
        queue = policy.queues.get(queue_of(name) if is_user else name, NOT_DECLARED)
        account = self.world.accounts.get(name, NO_USE)
        used = used_at(account, self.at, policy.share.half_life_ms)
        weight = 1 if is_user else queue.weight
        branch = Branch(
            name, widened(account.held, len(capacity)), widened(used, len(capacity)), [c * weight for c in capacity]
        )
        branch.limit = self.amounts(queue.user_limit if is_user else queue.limit)
        if not is_user:
            branch.guarantee = self.amounts(queue.guarantee)
        return branch

    def amounts(self, bounds: Bounds) -> Amounts:
        """Of a resource that no node has there is nothing to give or to limit."""
        columns, capacity = self.world.columns, self.capacity
        return [
            (columns[bound.resource], bound.amount or capacity[columns[bound.resource]] * bound.part >> PART_BITS)
            for bound in bounds
            if bound.resource in columns
        ]

    def has_room(self, lane: Lane) -> bool:
        for branch in self.path(lane.queue, lane.user):
            if not branch.has_room(lane.need, lane.units):
                return False
        return True

    def shut(self, lane: Lane) -> None:
        """Of the limits that keep the lane waiting, all: what comes back is not for others."""
        for branch in self.path(lane.queue, lane.user):
            if not branch.has_room(lane.need, lane.units):
                branch.shut = True

    def charge(self, lane: Lane, sign: int = 1) -> None:
        self.hold(lane.queue, lane.user, lane.need, sign * lane.units)

    def hold(self, queue: str, user: str, need: Need, units: int) -> None:
        for branch in self.path(queue, user):
            held = branch.held
            for column, amount in need:
                held[column] += amount * units


def widened(row: tuple[int, ...], columns: int) -> list[int]:
    return [*row, *[0] * (columns - len(row))]
