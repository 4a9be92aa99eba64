"""Accounts: what each queue holds, and what it held before, decayed. Kept while the policy has queues.

A queue's path names it: `lab/vision` is a part of `lab`, and what it holds `lab` holds too. Where a queue tells its
users apart each has an account below it, `lab/vision/@ann`.
"""

from itertools import zip_longest

from tidegate.model.base import ARRAY_BITS
from tidegate.model.policy import PolicySpec, Users
from tidegate.world.decay import USE_BITS, halved
from tidegate.world.records import NO_USE, Account, Need
from tidegate.world.world import World, tells_users_apart

Path = tuple[str, ...]
"""The account of a queue, or of a user, and all above it; the lowest first."""
USER_MARK = "@"
BEFORE_USER = f"/{USER_MARK}"
ITSELF = "."
"""Below a queue that has parts: the jobs that name the queue itself."""
PATHS_KEPT = 100_000
ACCOUNTS_KEPT = 100_000
"""Whenever there are so many more, those that hold nothing are forgotten, with their past."""


def path_of(policy: PolicySpec, queue: str, user: str) -> Path:
    """`user` counts only where the queue tells its users apart. A queue the policy does not name is one of the root."""
    queues = policy.queues
    known = queues.get(queue)
    if known is None:
        return (f"{queue}/{ITSELF}",)
    path = []
    has_parts = any(other.startswith(f"{queue}/") for other in queues)
    base = f"{queue}/{ITSELF}" if has_parts else queue
    if tells_users_apart(known):
        path.append(f"{base}/{USER_MARK}{user}")
    if has_parts:
        path.append(base)
    at = len(queue)
    while at > 0:
        path.append(queue[:at])
        at = queue.rfind("/", 0, at)
    return tuple(path)


def leaf_of(policy: PolicySpec, path: Path) -> str:
    """Whose turn the jobs of such a path wait for: the queue's, or the user's where users have turns of their own."""
    lowest = path[0]
    if is_of_user(lowest) and policy.queues[queue_of(lowest)].users is not Users.FAIR:
        return lowest.partition(BEFORE_USER)[0]
    return lowest


def queue_of(name: str) -> str:
    """The queue that an account is of, or is in."""
    return name.partition(BEFORE_USER)[0].removesuffix(f"/{ITSELF}")


def is_of_user(name: str) -> bool:
    """A queue of the policy has no mark in its path; what follows the first one is the user, whatever is in it."""
    return BEFORE_USER in name


def user_of(name: str) -> str:
    return name.partition(BEFORE_USER)[2]


def charge(world: World, queue: str, user: str, need: Need, units: int, at: int) -> None:
    """So many chunks more, or less."""
    key = (queue, user)
    path = world.paths.get(key)
    if path is None:
        if len(world.paths) >= PATHS_KEPT:
            world.paths.clear()
        path = world.paths[key] = path_of(world.policy, queue, user)
    half_life = world.policy.share.half_life_ms
    for name in path:
        known = world.accounts.get(name, NO_USE)
        held = list(known.held)
        for column, amount in need:
            while len(held) <= column:
                held.append(0)
            held[column] += amount * units
        _keep(world, name, Account(at, tuple(held), used_at(known, at, half_life)))


def _keep(world: World, name: str, account: Account) -> None:
    """One that holds nothing and has no past is as good as none."""
    if any(account.held) or any(account.used):
        if name not in world.accounts and (len(world.accounts) + 1) % ACCOUNTS_KEPT == 0:
            _forget_idle(world)
        world.accounts[name] = account
        world.digest.accounts.touched.add(name)
    elif world.accounts.pop(name, None) is not None:
        world.digest.accounts.gone(name)


def _forget_idle(world: World) -> None:
    for name in [name for name, account in world.accounts.items() if not any(account.held)]:
        del world.accounts[name]
        world.digest.accounts.gone(name)


def used_at(account: Account, at: int, half_life_ms: int) -> tuple[int, ...]:
    """Decayed use by column, with USE_BITS bits: the average of what was held, the last half-life counting half."""
    if not half_life_ms:
        return ()
    past = at - account.at
    if past <= 0:
        return account.used
    found = []
    for held, used in zip_longest(account.held, account.used, fillvalue=0):
        target = held << USE_BITS
        found.append(target + halved(used - target, past, half_life_ms))
    return tuple(found)


def reopen(world: World, half_life_ms: int, at: int) -> None:
    """The policy has changed: queues may have other parts now. What is known of the past is kept by name.

    `half_life_ms`: by which use decayed until now.
    """
    before = {name: used_at(account, at, half_life_ms) for name, account in world.accounts.items()}
    if not world.policy.share.half_life_ms:
        before = {}
    for name in world.accounts:
        world.digest.accounts.gone(name)
    world.accounts = {}
    world.paths = {}
    if not world.policy.queues:
        return
    for name, used in before.items():
        _keep(world, name, Account(at, (), used))
    for run in world.runs.values():
        spec = world.jobs[run.task >> ARRAY_BITS].spec
        charge(world, spec.queue, spec.user, run.need, sum(run.counts), at)
