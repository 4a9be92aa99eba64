"""Turns: in which order the lanes of one pool are looked at.

Jobs past the ageing bound come first; then one level of classes after the other; within a level the queue tree says
whose turn it is (policy.share), and within a queue the rank. Without queues and levels all lanes are one leaf.
"""

from bisect import insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice

from tidegate.core.memo import LeafKey, Ranking, leaf_key
from tidegate.core.place import Placer, Ranked
from tidegate.core.resume import Stopped
from tidegate.model.base import ARRAY_BITS
from tidegate.model.events import Promise
from tidegate.model.jobs import Job
from tidegate.policy.order import is_aged, rank, rank_when_aged
from tidegate.policy.share import Branch, Key, Place, Shares, held_place
from tidegate.world.arrays import turns
from tidegate.world.lanes import Lane
from tidegate.world.pool import Pool
from tidegate.world.world import World

NOBODY: list[Ranked] = []


class Line:
    """How far the tasks of one lane have come in this pass."""

    __slots__ = ("at", "job", "lane", "lifts", "task", "tasks", "world")

    def __init__(self, world: World, lane: Lane) -> None:
        self.world = world
        self.lane = lane
        self.lifts = -1  # refused when room had come back so often: its other jobs ask for the same
        self.at = 0
        self._enter(lane.jobs[0])

    def _enter(self, job: Job) -> None:
        self.job = job
        self.tasks: Iterator[int] | None = None
        if job.spec.array is None:
            self.task = job.id << ARRAY_BITS
        else:
            self.tasks = array_tasks(self.world, job)
            self.task = next(self.tasks)

    def advance(self) -> bool:
        if self.tasks is not None:
            task = next(self.tasks, None)
            if task is not None:
                self.task = task
                return True
        return self.next_job()

    def next_job(self) -> bool:
        self.at += 1
        jobs = self.lane.jobs
        if self.at == len(jobs):
            return False
        self._enter(jobs[self.at])
        return True


def array_tasks(world: World, job: Job) -> Iterator[int]:
    """The tasks of an array that may start now, in their order."""
    array, state = job.spec.array, world.arrays[job.id]
    assert array is not None
    for index in islice(turns(state, array.indices), state.available(len(array.indices), array.at_once_max)):
        yield job.id << ARRAY_BITS | index


class Leaf:
    """Lanes of one level and one queue: ranked entries as far as they have not had their turn, and who comes again."""

    __slots__ = ("again", "at", "entries", "path")

    def __init__(self, entries: list[Ranked], path: list[Branch]) -> None:
        self.entries = entries  # the memo's own: only read
        self.at = 0
        self.again: list[Ranked] = []  # a heap; the last place holds the line
        self.path = path  # from the queue up

    def first(self) -> Ranked | None:
        again, at = self.again, self.at
        if at == len(self.entries):
            return again[0] if again else None
        entry = self.entries[at]
        return again[0] if again and again[0][:3] < entry[:3] else entry

    def take(self) -> Ranked:
        again, at = self.again, self.at
        if at == len(self.entries) or (again and again[0][:3] < self.entries[at][:3]):
            return heappop(again)
        self.at = at + 1
        return self.entries[at]


class Turns:
    """`entries` by leaf; they are only read. `shares`: of this cycle, where the policy has queues."""

    __slots__ = (
        "heaps", "leaves", "level", "levels", "members", "now", "policy", "pool", "ranking", "shares", "soft",
        "waiting", "world",
    )  # fmt: skip

    def __init__(
        self, world: World, now: int, pool: Pool, ranking: Ranking, leaves: dict[LeafKey, list[Ranked]],
        shares: Shares | None, stopped: list[Ranked] = NOBODY,
    ) -> None:  # fmt: skip
        self.world = world
        self.policy = ranking.policy
        self.pool = pool
        self.ranking = ranking
        self.shares = shares
        self.now = now
        self.soft = False  # promises may be put off by what is likely to end in time
        self.waiting = 0
        self.leaves: dict[LeafKey, Leaf] = {}
        for key, entries in leaves.items():
            if entries:
                self.leaves[key] = Leaf(entries, self._path(key, entries[0][5]))
                self.waiting += len(entries)
        for entry in stopped:
            self._come(entry)
        self.levels: list[int] = []  # still to come, the highest last
        for level, _ in self.leaves:
            if level not in self.levels:
                insort(self.levels, level)
        self.level: int | None = None
        self.members: list[Leaf] = []  # of the level, where there are no queues
        self.heaps: dict[str, list[Key]] = {}  # of the level, by parent: its children with somebody waiting

    def _path(self, key: LeafKey, lane: Lane) -> list[Branch]:
        if self.shares is None or not key[1]:
            return []
        path = self.shares.path(lane.queue, lane.user)
        return path if path[0].name == key[1] else path[1:]

    # -- whose turn it is --------------------------------------------------------------------------------

    def leaf(self) -> Leaf | None:
        """The one whose first entry is next; None: everybody has had a turn."""
        while True:
            if self.level is None:
                if not self.levels:
                    return None
                self._open(self.levels.pop())
            leaf = self._top() if self.heaps else self._first_member()
            if leaf is not None:
                return leaf
            self.level = None

    def _open(self, level: int) -> None:
        self.level = level
        self.members = [leaf for key, leaf in self.leaves.items() if key[0] == level]
        if self.shares is None:
            return
        self.heaps = {}
        seen: set[str] = set()
        for leaf in self.members:
            for at, branch in enumerate(leaf.path):
                if branch.name not in seen:
                    seen.add(branch.name)
                    self.heaps.setdefault(_parent(leaf.path, at), []).append(branch.key())
        for heap in self.heaps.values():
            heapify(heap)

    def _first_member(self) -> Leaf | None:
        """Without queues a level is one leaf."""
        for leaf in self.members:
            if leaf.at < len(leaf.entries) or leaf.again:
                return leaf
        return None

    def _top(self) -> Leaf | None:
        assert self.level is not None
        heaps = self.heaps
        while heaps:
            name = ""
            while name in heaps:
                name = heaps[name][0][2]
            leaf = self.leaves[self.level, name]
            if leaf.first() is not None:
                return leaf
            for at in range(len(leaf.path)):  # it is done, and so is every parent that has no other
                parent = _parent(leaf.path, at)
                heappop(heaps[parent])
                if heaps[parent]:
                    break
                del heaps[parent]
        return None

    def take(self, leaf: Leaf) -> Ranked:
        self.waiting -= 1
        return leaf.take()

    def started(self, leaf: Leaf, line: Line | Stopped) -> None:
        """What it was given counts at once. `leaf` is the one whose turn it was."""
        if self.shares is None:
            return
        self._hold(line.lane, line.job)
        if self.heaps:
            for at, branch in enumerate(leaf.path):
                heapreplace(self.heaps[_parent(leaf.path, at)], branch.key())

    def held_started(self, lane: Lane, promise: Promise) -> None:
        """Before anybody's turn."""
        if self.shares is not None:
            self.shares.let_go(lane, held_place(promise))
            self._hold(lane, self.world.jobs[promise.task >> ARRAY_BITS])

    def _hold(self, lane: Lane, job: Job) -> None:
        assert self.shares is not None
        self.shares.charge(lane)
        self.shares.let_go(lane, (rank_when_aged(lane), lane.since or job.submit_ms, job.id))

    def comes_again(self, line: Line, *, shortest: bool = False) -> None:
        """The line's next job, in its own turn."""
        job, lane = line.job, line.lane
        turn = rank(self.world, self.policy, self.pool, lane, job, self.now)
        length = self._length(lane)
        first = length if shortest else turn
        level = self._come((first, lane.since or job.submit_ms, job.id, lane.units, length, lane, line), turn)
        if level != self.level and level not in self.levels:
            insort(self.levels, level)

    def _come(self, entry: Ranked, turn: int | None = None) -> int:
        """In a leaf of its own turn; the answer is its level."""
        lane = entry[5]
        key = leaf_key(self.policy, self.ranking, lane, entry[0] if turn is None else turn)
        leaf = self.leaves.get(key)
        if leaf is None:
            leaf = self.leaves[key] = Leaf([], self._path(key, lane))
        heappush(leaf.again, entry)
        self.waiting += 1
        return key[0]

    def _length(self, lane: Lane) -> int:
        """How long it is taken to run."""
        known = self.ranking.known.get(lane.serial) if self.soft else None
        return lane.estimate_ms if known is None else known[4]

    # -- ahead of their turn -----------------------------------------------------------------------------

    def leave_candidates(self, placer: Placer, lifts: int, *, shortest: bool, soft: bool) -> None:
        """Leaves those who may start now. `shortest`: within each leaf the shortest go first from here on.

        `soft`: they are taken to run as long as is likely, else as long as they ask for.
        """
        self.soft = soft
        judged_anew = self.policy.backfill.firm_after_ms > 0
        self.waiting = 0
        for leaf in self.leaves.values():
            rest = leaf.entries[leaf.at :] if leaf.at else leaf.entries
            if leaf.again:
                rest = rest + [entry for entry in leaf.again if entry[6].lifts != lifts]
            if judged_anew:
                rest = [(*entry[:4], self._length(entry[5]), entry[5], entry[6]) for entry in rest]
            rest = placer.sift(rest)
            if shortest:
                rest = [(entry[4], *entry[1:]) for entry in rest]
            if len(rest) > 1:
                heapify(rest)
            leaf.entries, leaf.at, leaf.again = [], 0, rest
            self.waiting += len(rest)

    def sift(self, placer: Placer) -> None:
        """Candidates that cannot start any more."""
        self.waiting = 0
        for leaf in self.leaves.values():
            if leaf.again:
                leaf.again = placer.sift(leaf.again)
                heapify(leaf.again)
            self.waiting += len(leaf.again)

    def serials(self) -> tuple[int, ...]:
        return tuple([entry[5].serial for leaf in self.leaves.values() for entry in leaf.again])

    # -- limits ------------------------------------------------------------------------------------------

    def has_room(self, lane: Lane, place: Place) -> bool:
        """Under the limits of its queues. One past the ageing bound keeps what comes back for itself."""
        if self.shares is None or self.shares.has_room(lane, place):
            return True
        if is_aged(place[0]):
            self.shares.shut(lane, place)
        return False

    def waits(self, lane: Lane, place: Place, *, promised: bool) -> None:
        """One past the ageing bound keeps its room under the limits until its promised start."""
        if self.shares is not None and is_aged(place[0]):
            if promised:
                self.shares.keep(lane, place)
            else:
                self.shares.let_go(lane, place)


def _parent(path: list[Branch], at: int) -> str:
    return path[at + 1].name if at + 1 < len(path) else ""
