"""One cycle, once more, from the documentation: job by job, instant by instant, in plain Python.

No lanes, no memo, no columns, no cursors: only records are read. `core.decide` must choose the same. Cycles
that are cut are left out: where a count runs out is the kernel's own affair.
"""

from collections.abc import Callable, Collection, Iterator
from fractions import Fraction

from msgspec.structs import replace

from tests.kit.slow_placer import Chosen, chunks_on
from tests.kit.slow_room import Booking, Room
from tests.kit.slow_tree import SlowTree, since, sinks, tried
from tidegate.model.base import ARRAY_BITS
from tidegate.model.events import JobStarted, Promise
from tidegate.model.jobs import Job
from tidegate.model.nodes import Node
from tidegate.model.policy import CandidateOrder, OrderBy, PolicySpec
from tidegate.policy import SHARE_BITS
from tidegate.policy.estimate import remaining
from tidegate.world.lanes import LaneKey
from tidegate.world.records import Reservation
from tidegate.world.world import World

FIRST_OF_ALL = -(1 << 62)
THEN_THESE = FIRST_OF_ALL + 1
CPU = 1000


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
        inside = [one for one in world.pools[name].reserved if _is_open(world.reservations[one], now)]
        for within in (*inside, ""):
            one = _Slow(world, name, now, tree, within)
            one.run()
            starts += one.starts
            promises |= one.promises
    return starts, promises


def _is_open(known: Reservation, now: int) -> bool:
    spec = known.spec
    return spec.start_ms <= now < spec.end_ms and bool(spec.users or spec.queues)


class _Slow:
    def __init__(self, world: World, pool: str, now: int, tree: SlowTree, within: str) -> None:
        self.world, self.pool, self.now = world, pool, now
        self.within = within
        self.tree = tree
        self.passed_by: set[LaneKey] = set()  # no room under the limits of their queues
        self.policy = world.policy_in(pool)
        self.room = Room(world, pool, now, within)
        self.starts: list[JobStarted] = []
        self.promises: dict[int, Promise] = {}
        self.standing: dict[int, Booking] = {}
        self.booked: dict[int, Booking] = {}  # the promises of this cycle
        self.jobs: Collection[Job] = ()
        self.passed: set[int] = set()  # arrays: their tasks are alike, so the first that has to wait stands for them

    def run(self) -> None:
        depth = self.policy.backfill.depth
        mine = [found for found in waiting(self.world, self.pool) if self._stands_here(found[0])]
        self.jobs = {job.id: job for job, _ in mine}.values()
        tasks = sorted(mine, key=lambda found: self._turn(found[0]))
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
        length = self._length if self._soft() else _asked
        if self.policy.backfill.order is CandidateOrder.SHORTEST:
            tasks.sort(key=lambda found: (length(found[0]), since(self.world, found[0]), found[0].id))
        while tasks and not strict:
            job, task = self.tree.next(tasks, self._rank)
            tasks.remove((job, task))
            if job.id not in self.passed and self.tree.has_room(job, aged=False):
                self._start(job, task, length(job))

    def _stands_here(self, job: Job) -> bool:
        said = job.spec.reservation
        return (said if said in self.world.reservations else "") == self.within

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
        shape, end = job.spec.shape, self.room.until(job, start)
        if self.within and end > self.room.windows[0]:
            return False
        for time in (start, *(b.start for b in self.room.booked if start < b.start < end)):
            room = self.room.at(time)
            for row, count in zip(*chosen, strict=True):
                if chunks_on(self.room.nodes_for(job)[row], room[row], shape) < count:
                    return False
        return True

    def _start(self, job: Job, task: int, length: int | None = None) -> bool:
        taken = job if length is None else replace(job, estimate_ms=length)
        chosen = self.room.find(taken, self.now)
        if chosen is None:
            return False
        self.room.book(taken, self.now, chosen)
        self.tree.hold(job)
        known = self.world.tries.get(task)
        attempt = known.attempt + 1 if known else 1
        end = self.room.until(job, self.now)
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
        job, start = self.world.jobs[promise.task >> ARRAY_BITS], promise.start_by
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
        if by is OrderBy.DEFERRED:
            return (rung << 58) + job.submit_ms + self._deferral(job)
        left = remaining(self.policy.estimate, job.estimate_ms, tried(self.world, job).kept_ms)
        return (rung << 58) + RANKS[by](self.policy, self.room.nodes, job, left, self.now)

    def _deferral(self, job: Job) -> int:
        order, world = self.policy.order, self.world
        doublings = self._likely(job)
        line = sorted((other.submit_ms, other.id) for other in self.jobs if _same_lane(world, other, job))
        running = [world.jobs[task >> ARRAY_BITS] for task in world.runs]
        if 0 < order.scout_from <= len(line) and line[0][1] == job.id and not any(_alike(o, job) for o in running):
            doublings -= _steps(len(line) - 1, 1)
        ahead = (order.wide_ms * _share(self.room.nodes, job)) >> SHARE_BITS
        return (order.per_doubling_ms * doublings >> 6) - ahead

    def _likely(self, job: Job) -> int:
        """The mean of all votes, in steps of doublings."""
        order, world, user, chunks = self.policy.order, self.world, job.spec.user, job.spec.shape.count
        said = [(2, job.estimate_ms)]
        if job.compared:
            alike, kin = (world.alike.get((user, chunks, asked)) for asked in (job.estimate_ms, 0))
            known = [(8, alike and alike.last), (4, kin and kin.last), (1, world.last_runs.get(user))]
            said += [(votes, run) for votes, runs in known if runs for run in runs.after()]
        total = sum(votes * _steps(min(run, job.estimate_ms), order.short_ms) for votes, run in said)
        return total // sum(votes for votes, _ in said)

    def _length(self, job: Job) -> int:
        """How long it is taken to run beside promises that can be put off."""
        if self.policy.order.by is not OrderBy.DEFERRED:
            return job.estimate_ms
        steps, short = self._likely(job), self.policy.order.short_ms
        if steps >= _steps(job.estimate_ms, short):
            return job.estimate_ms
        return min(job.estimate_ms, max(short, (short * (64 + steps % 64) * (1 << steps // 64) // 64) - short))

    def _soft(self) -> bool:
        """May what was promised be put off by what is likely to end in time?"""
        after = self.policy.backfill.firm_after_ms
        waited = [self.now - self.world.jobs[task >> ARRAY_BITS].submit_ms for task in self.promises]
        return bool(waited) and max(waited) < after and not self.held and not self.room.windows


def _asked(job: Job) -> int:
    return job.estimate_ms


def _alike(one: Job, other: Job) -> bool:
    return one.compared and (one.spec.user, one.spec.shape.count, one.estimate_ms) == (
        other.spec.user, other.spec.shape.count, other.estimate_ms)  # fmt: skip


def _same_lane(world: World, one: Job, other: Job) -> bool:
    return world.lane_key(one) == world.lane_key(other)


def _steps(run_ms: int, short_ms: int) -> int:
    """log2(1 + run / short) in 64ths, straight between whole numbers."""
    times = Fraction((short_ms + run_ms) * 2**20 // short_ms, 2**20)
    whole = 0
    while times >= 2 ** (whole + 1):
        whole += 1
    return 64 * whole + int((times / 2**whole - 1) * 64)


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
