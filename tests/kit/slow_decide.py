"""One cycle, once more, from the documentation: job by job, instant by instant, in plain Python.

No lanes, no memo, no columns, no cursors: only records are read. `core.decide` must choose the same. Cycles
that are cut are left out: where a count runs out is the kernel's own affair.
"""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from tests.kit.slow_placer import Amounts, Chosen, chunks_on, place
from tests.kit.slow_tree import SlowTree, since, sinks, tried
from tidegate.model.base import ARRAY_BITS, Value
from tidegate.model.events import JobStarted, Placement, Promise
from tidegate.model.jobs import Job
from tidegate.model.nodes import Node, NodeState
from tidegate.model.policy import CandidateOrder, FitBy, OrderBy, PolicySpec
from tidegate.policy import SHARE_BITS
from tidegate.policy.estimate import remaining
from tidegate.world.lanes import LaneKey
from tidegate.world.world import World

FIRST_OF_ALL = -(1 << 62)
THEN_THESE = FIRST_OF_ALL + 1
CPU = 1000


class Booking(Value, frozen=True, gc=False):
    """Chunks taken from `start` up to `end`; without rows where only their number counts."""

    start: int
    end: int
    chosen: Chosen
    job: Job


class Room:
    """What is free of a pool at any time, under everything booked so far."""

    def __init__(self, world: World, pool: str, now: int) -> None:
        self.now = now
        self.by: FitBy = world.policy_in(pool).fit.by
        busy = {name for run in world.runs.values() for name, _ in run.nodes}
        self.nodes: list[Node] = [  # one that is tried takes one run at a time
            replace(node, state=NodeState.DRAINED)
            if node.name in busy and node.name in world.suspects and world.suspects[node.name].tried
            else node
            for node in world.pools[pool].nodes
        ]
        self.counted = world.pools[pool].counted
        self.booked: list[Booking] = []
        for run in world.runs.values():
            if run.pool == pool:  # one that should have ended holds on for another instant
                end = max(run.expected_end, now + 1)
                self.booked.append(
                    Booking(run.start_ms, end, (run.rows, run.counts), world.jobs[run.task >> ARRAY_BITS])
                )

    def at(self, time: int) -> list[Amounts]:
        room = [dict(node.capacity) for node in self.nodes]
        for booking in self.booked:
            if booking.start <= time < booking.end:
                for row, count in zip(*booking.chosen, strict=True):
                    for name, amount in booking.job.spec.shape.chunk:
                        room[row][name] = room[row].get(name, 0) - amount * count
        return room

    def find(self, job: Job, start: int) -> Chosen | None:
        """Where the job may run for its estimate, from `start` on; chunks are all that counts later on."""
        end = start + job.estimate_ms
        instants = [start, *(booking.start for booking in self.booked if start < booking.start < end)]
        if not self.counted:
            rooms = [self.at(time) for time in instants]
            least = [
                {name: min(room[row].get(name, 0) for room in rooms) for name, _ in node.capacity}
                for row, node in enumerate(self.nodes)
            ]
            return place(self.nodes, least, job.spec.shape, self.by)
        if min(self._chunks_at(time, job) for time in instants) < job.spec.shape.count:
            return None
        return place(self.nodes, self.at(start), job.spec.shape, self.by) if start == self.now else ((), ())

    def _chunks_at(self, time: int, job: Job) -> int:
        """Bookings without rows take chunks anywhere."""
        free = sum(chunks_on(node, room, job.spec.shape) for node, room in zip(self.nodes, self.at(time), strict=True))
        nowhere = [b.job.spec.shape.count for b in self.booked if not b.chosen[0] and b.start <= time < b.end]
        return free - sum(nowhere)

    def earliest(self, job: Job) -> tuple[int, Chosen] | None:
        """Room grows at ends only."""
        for time in sorted({booking.end for booking in self.booked if booking.end > self.now}):
            chosen = self.find(job, time)
            if chosen is not None:
                return time, chosen
        return None

    def book(self, job: Job, start: int, chosen: Chosen) -> Booking:
        booking = Booking(start, start + job.estimate_ms, chosen, job)
        self.booked.append(booking)
        return booking

    def names(self, chosen: Chosen) -> Placement:
        return tuple((self.nodes[row].name, count) for row, count in zip(*chosen, strict=True))


def slow_decide(world: World, now: int) -> tuple[list[JobStarted], dict[int, Promise]]:
    """Starts in order, and every promise held after the cycle."""
    starts: list[JobStarted] = []
    promises = {task: promise for name, pool in world.pools.items() if name not in world.stirred
                for task, promise in world.promises.items() if task in pool.promised}  # fmt: skip
    tree = SlowTree(world, now)
    if world.policy.queues:
        tree.keep_for_held()
        heads = [job for pool in world.pools for job in first_of_lanes(world, pool)]
        tree.keep_for_aged([job for job in heads if has_aged(world, job, now)])
    for name in sorted(world.stirred):
        one = _Slow(world, name, now, tree)
        one.run()
        starts += one.starts
        promises |= one.promises
    return starts, promises


class _Slow:
    def __init__(self, world: World, pool: str, now: int, tree: SlowTree) -> None:
        self.world, self.pool, self.now = world, pool, now
        self.tree = tree
        self.passed_by: set[LaneKey] = set()  # no room under the limits of their queues
        self.policy = world.policy_in(pool)
        self.room = Room(world, pool, now)
        self.starts: list[JobStarted] = []
        self.promises: dict[int, Promise] = {}
        self.standing: dict[int, Booking] = {}
        self.booked: dict[int, Booking] = {}  # the promises of this cycle
        self.passed: set[int] = set()  # arrays: their tasks are alike, so the first that has to wait stands for them

    def run(self) -> None:
        depth = self.policy.backfill.depth
        tasks = sorted(waiting(self.world, self.pool), key=lambda found: self._turn(found[0]))
        self._stand({task: job for job, task in tasks}, all_of_them=depth > 1)
        begun = self._start_held({task: job for job, task in tasks})
        tasks = [found for found in tasks if found[1] not in begun]
        strict = depth == 0
        while tasks:
            job, task = self.tree.next(tasks, self._rank)
            aged = self._rank(job) in (FIRST_OF_ALL, THEN_THESE)
            promised = self._rank(job) == FIRST_OF_ALL
            most = depth + (self.policy.order.aged_promises_max if promised else 0)
            may_promise = len(self.promises) < most
            if self.promises and not may_promise:
                strict |= promised
                break
            tasks.remove((job, task))
            if not self.tree.has_room(job, aged=aged):
                self.passed_by.add(self.world.lane_key(job))
                tasks = [found for found in tasks if self.world.lane_key(found[0]) not in self.passed_by]
                continue
            stood = self.standing.pop(task, None)
            if stood is not None:
                self.room.booked.remove(stood)
            if job.id in self.passed or self._start(job, task):
                continue
            if job.spec.array is not None:
                self.passed.add(job.id)
            if may_promise:
                self._promise(job, task)
            if aged:
                self.tree.keep(job, promised=task in self.promises)
            if depth == 0:
                break
        for task, booking in self.standing.items():
            if task in self.held:
                self.booked[task] = booking
                self.promises[task] = Promise(
                    task, self.starts_by[task], self.room.names(booking.chosen), self.held[task]
                )
            else:
                self.room.booked.remove(booking)
        if len(self.promises) == 1:
            self._let_slip(*self.promises.values())
        if self.policy.backfill.order is CandidateOrder.SHORTEST:
            tasks.sort(key=lambda found: (found[0].estimate_ms, since(self.world, found[0]), found[0].id))
        while tasks and not strict:
            job, task = self.tree.next(tasks, self._rank)
            tasks.remove((job, task))
            if job.id not in self.passed and self.tree.has_room(job, aged=False):
                self._start(job, task)

    def _stand(self, waits: dict[int, Job], *, all_of_them: bool) -> None:
        """Promises made before keep their room while they can, the earliest first; or those only that are held."""
        kept = [promise for promise in self._handed_on(waits) if all_of_them or promise.held_until > self.now]
        self.held = {promise.task: promise.held_until for promise in kept if promise.held_until > self.now}
        self.starts_by = {promise.task: promise.start_by for promise in kept}
        for promise in sorted(kept, key=lambda promise: (promise.start_by, promise.task)):
            job, start = waits[promise.task], max(promise.start_by, self.now)
            chosen: Chosen | None
            if self.room.counted or not promise.nodes:
                chosen = self.room.find(job, start)
                if chosen is not None and self.room.counted:
                    chosen = ((), ())
            else:
                chosen = self._rows(promise)
                if not self._still_free(job, start, chosen):
                    chosen = None
            if chosen is not None:
                self.standing[promise.task] = self.room.book(job, start, chosen)

    def _start_held(self, waits: dict[int, Job]) -> set[int]:
        """Those that others made room for start before anybody's turn."""
        begun = set()
        for task in sorted(self.held.keys() & self.standing.keys(), key=lambda task: (self.starts_by[task], task)):
            job, booking = waits[task], self.standing[task]
            told = next(one for one in self.world.promises if one >> ARRAY_BITS == job.id)
            if not self.tree.has_room_held(job, told):
                continue
            self.room.booked.remove(booking)
            if self._start(job, task):
                begun.add(task)
                self.tree.kept.pop((-1, 0, told), None)
                del self.standing[task]
            else:
                self.room.booked.append(booking)
        return begun

    def _handed_on(self, waits: dict[int, Job]) -> Iterator[Promise]:
        """What an array was promised goes to the tasks that wait now, the earliest to the first."""
        known = sorted(self.world.promises.values(), key=lambda promise: (promise.start_by, promise.task))
        for job in dict.fromkeys(waits.values()):
            mine = [promise for promise in known if promise.task >> ARRAY_BITS == job.id]
            tasks = [task for task in waits if task >> ARRAY_BITS == job.id]
            yield from (replace(promise, task=task) for promise, task in zip(mine, tasks, strict=False))

    def _still_free(self, job: Job, start: int, chosen: Chosen) -> bool:
        shape, end = job.spec.shape, start + job.estimate_ms
        for time in (start, *(b.start for b in self.room.booked if start < b.start < end)):
            room = self.room.at(time)
            for row, count in zip(*chosen, strict=True):
                if chunks_on(self.room.nodes[row], room[row], shape) < count:
                    return False
        return True

    def _start(self, job: Job, task: int) -> bool:
        chosen = self.room.find(job, self.now)
        if chosen is None:
            return False
        self.room.book(job, self.now, chosen)
        self.tree.hold(job)
        known = self.world.tries.get(task)
        attempt = known.attempt + 1 if known else 1
        end = self.now + job.estimate_ms
        backfilled = bool(self.promises)
        self.starts.append(JobStarted(self.now, task, attempt, end, self.room.names(chosen), backfilled))
        return True

    def _promise(self, job: Job, task: int) -> None:
        """What is promised no sooner than before keeps its nodes."""
        found = self.room.earliest(job)
        if found is not None:
            known = self._known(task)
            if known is not None and known[0] == found[0] and known[1][0] and found[1][0]:
                found = known if self._still_free(job, *known) else found
            self.booked[task] = self.room.book(job, *found)
            self.promises[task] = Promise(task, found[0], self.room.names(found[1]), self.held.get(task, 0))

    def _let_slip(self, promise: Promise) -> None:
        """The others may delay it up to a part of its run time, from the best that it was promised."""
        booking = self.booked[promise.task]
        job, start = booking.job, promise.start_by
        allowed = job.estimate_ms * self.policy.backfill.slip_percent // 100
        told = self.world.told.get(promise.task, start)
        latest = allowed + (start if start > told + allowed else min(told, start))
        if latest <= start or promise.held_until > self.now or has_aged(self.world, job, self.now):
            return
        self.room.booked.remove(booking)
        chosen = booking.chosen
        if chosen[0]:
            free = self._still_free(job, latest, chosen)
        else:
            free = self.room.find(job, latest) is not None
        self.room.book(job, latest if free else start, chosen)

    def _known(self, task: int) -> tuple[int, Chosen] | None:
        promise = self.world.promises.get(task)
        return None if promise is None else (promise.start_by, self._rows(promise))

    def _rows(self, promise: Promise) -> Chosen:
        rows = {node.name: row for row, node in enumerate(self.room.nodes)}
        return tuple(rows[name] for name, _ in promise.nodes), tuple(count for _, count in promise.nodes)

    def _turn(self, job: Job) -> tuple[int, int, int]:
        return self._rank(job), since(self.world, job), job.id

    def _rank(self, job: Job) -> int:
        if has_aged(self.world, job, self.now):
            return THEN_THESE if sinks(self.policy, job) else FIRST_OF_ALL
        order, rung = self.policy.order, 0
        if order.by is OrderBy.FEEDBACK and sinks(self.policy, job):
            used = tried(self.world, job).ran_ms * gpus(self.policy, job)
            rung = sum(used >= edge * CPU for edge in self.policy.feedback.rungs_ms)
        by = order.then if order.by is OrderBy.FEEDBACK else order.by
        left = remaining(self.policy.estimate, job.estimate_ms, tried(self.world, job).kept_ms)
        return (rung << 58) + RANKS[by](self.policy, self.room.nodes, job, left, self.now)


def first_of_lanes(world: World, pool: str) -> Iterator[Job]:
    """Of those that ask for the same the first: the others come behind it whatever it finds."""
    found: dict[LaneKey, Job] = {}
    for job, _ in waiting(world, pool):
        first = found.setdefault(world.lane_key(job), job)
        if (since(world, job), job.id) < (since(world, first), first.id):
            found[world.lane_key(job)] = job
    yield from found.values()


def has_aged(world: World, job: Job, now: int) -> bool:
    policy = world.policy_in(job.pool)
    if sinks(policy, job):
        return now - since(world, job) >= policy.feedback.ageing_bound_ms
    known = policy.classes.get(job.spec.klass)
    bound = known.ageing_bound_ms if known and known.ageing_bound_ms else policy.order.ageing_bound_ms
    return bound > 0 and now - job.submit_ms >= bound


def gpus(policy: PolicySpec, job: Job) -> int:
    """In thousandths."""
    chunk, count = dict(job.spec.shape.chunk), job.spec.shape.count
    cpus = chunk.get("cpus", 0) * count // policy.feedback.cpus_per_gpu
    return max(1, chunk["gpus"] * count if "gpus" in chunk else cpus)


def waiting(world: World, pool: str) -> Iterator[tuple[Job, int]]:
    """Every task that nothing but room and rank keeps; the tasks of an array in their order."""
    for job in world.jobs.values():
        if job.pool != pool or job.id in world.parked:
            continue
        array = job.spec.array
        if array is None:
            if job.id << ARRAY_BITS not in world.runs:
                yield job, job.id << ARRAY_BITS
            continue
        state = world.arrays[job.id]
        ahead = [index for index in array.indices[state.started :] if index not in state.skipped]
        indices = (*state.returned, *ahead)
        may = array.at_once_max - state.running if array.at_once_max else len(indices)
        for index in indices[: max(0, may)]:
            yield job, job.id << ARRAY_BITS | index


def _share(nodes: list[Node], job: Job) -> int:
    shape = job.spec.shape
    totals = {name: sum(dict(node.capacity).get(name, 0) for node in nodes) for name, _ in shape.chunk}
    return max((amount * shape.count << SHARE_BITS) // max(1, totals[name]) for name, amount in shape.chunk)


def _head_start(policy: PolicySpec, job: Job) -> int:
    return policy.classes[job.spec.klass].head_start_ms if job.spec.klass in policy.classes else 0


RANKS: dict[OrderBy, Callable[[PolicySpec, list[Node], Job, int, int], int]] = {
    OrderBy.FCFS: lambda _policy, _nodes, _job, _left, _now: 0,
    OrderBy.FEEDBACK: lambda _policy, _nodes, _job, _left, _now: 0,
    OrderBy.SHORTEST: lambda _policy, _nodes, job, _left, _now: job.estimate_ms,
    OrderBy.SHORTEST_REMAINING: lambda _policy, _nodes, _job, left, _now: left,
    OrderBy.SMALLEST_AREA: lambda _policy, nodes, job, _left, _now: job.estimate_ms * _share(nodes, job),
    OrderBy.EXPANSION: lambda _policy, _nodes, job, _left, now: (
        -((now - job.submit_ms + job.estimate_ms << SHARE_BITS) // job.estimate_ms)
    ),
    OrderBy.PRIORITY: lambda policy, _nodes, job, _left, _now: job.submit_ms - _head_start(policy, job),
}
