"""Standing: how every queue stands against its neighbours, for people. It reads what `share` decides by."""

from collections.abc import Iterator

from tidegate.model.base import Value
from tidegate.model.policy import MINUTE_MS
from tidegate.policy.share import MORE_BITS, Amounts, Key, Shares
from tidegate.world.accounts import ITSELF, is_of_user, path_of
from tidegate.world.decay import USE_BITS
from tidegate.world.world import World

SHARE_ONE = 1 << USE_BITS + MORE_BITS
"""The share of who holds all there is of a resource."""
QUARTERS = (1, 2, 4, 8, 16, 32, 64)
"""Of a half-life, when it is looked at: while nothing happens, two queues change places once at most in a resource."""


class Standing(Value, frozen=True, gc=False):
    """One queue, or a user of one, among its neighbours. Amounts by column."""

    name: str
    depth: int
    place: int  # from 1; whose turn is first
    neighbours: int  # itself among them
    key: Key
    share: int  # of SHARE_ONE
    ahead: str  # the neighbour just before it; "": none
    ahead_key: Key | None
    again_ms: int | None  # so long from now, it is before that one if nothing else happens; None: not by itself
    held: Amounts
    used: Amounts
    guarantee: Amounts
    limit: Amounts
    waiting: int  # jobs, of its parts too


def standings(world: World, now: int) -> list[Standing]:
    """From the root down; neighbours in the order of their turn."""
    if not world.policy.queues:
        return []
    waiting = _waiting(world)
    parts: dict[str, list[str]] = {}
    for name in sorted(_names(world, waiting)):
        parts.setdefault(_above(world, name), []).append(name)
    reader = _Reader(world, now, waiting, parts)
    return list(reader.below("", 0))


def _waiting(world: World) -> dict[str, int]:
    """Jobs by account."""
    found: dict[str, int] = {}
    for pool in world.pools.values():
        for lane in pool.lanes.values():
            for name in path_of(world.policy, lane.queue, lane.user):
                found[name] = found.get(name, 0) + len(lane.jobs)
    return found


def _names(world: World, waiting: dict[str, int]) -> set[str]:
    """Every queue of the policy, and whoever has an account or waits."""
    names = {*world.accounts, *waiting}
    for name in world.policy.queues:
        at = len(name)
        while at > 0:
            names.add(name[:at])
            at = name.rfind("/", 0, at)
    return names


def _above(world: World, name: str) -> str:
    parent = name.partition("/@")[0] if is_of_user(name) else name.rpartition("/")[0]
    is_stray = name.endswith(f"/{ITSELF}") and parent not in world.policy.queues
    return "" if is_stray else parent  # a queue that the policy does not name is one of the root


class _Reader:
    def __init__(self, world: World, now: int, waiting: dict[str, int], parts: dict[str, list[str]]) -> None:
        self.world = world
        self.now = now
        self.waiting = waiting
        self.parts = parts
        self.shares = Shares(world, now)
        half_life = world.policy.share.half_life_ms
        self.later = [half_life * quarters // 4 for quarters in QUARTERS] if half_life else []

    def below(self, parent: str, depth: int) -> Iterator[Standing]:
        keys = sorted(self.shares.branch(name).key() for name in self.parts.get(parent, ()))
        before: Key | None = None
        for place, key in enumerate(keys, 1):
            branch = self.shares.branch(key[2])
            yield Standing(
                key[2], depth, place, len(keys), key, branch.share(), before[2] if before else "", before,
                self._again(key[2], before[2]) if before else None,
                _some(branch.held), _some([use >> USE_BITS for use in branch.used]),
                branch.guarantee, branch.limit, self.waiting.get(key[2], 0),
            )  # fmt: skip
            yield from self.below(key[2], depth + 1)
            before = key

    def _again(self, name: str, other: str) -> int | None:
        """To the minute."""
        low = 0
        for high in self.later:
            if self._is_before(name, other, high):
                break
            low = high
        else:
            return None
        while high - low > MINUTE_MS:
            middle = (low + high) // 2
            if self._is_before(name, other, middle):
                high = middle
            else:
                low = middle
        return high

    def _is_before(self, name: str, other: str, later_ms: int) -> bool:
        shares = Shares(self.world, self.now + later_ms)
        return shares.branch(name).key() < shares.branch(other).key()


def _some(row: list[int]) -> Amounts:
    return [(column, amount) for column, amount in enumerate(row) if amount]
