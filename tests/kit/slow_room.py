"""Room over time, as the slow reference sees it: what is booked, and what is free beside it."""

from msgspec.structs import replace

from tests.kit.slow_placer import Amounts, Chosen, chunks_on, place
from tidegate.model.base import ARRAY_BITS, Value
from tidegate.model.events import Placement
from tidegate.model.jobs import Job
from tidegate.model.nodes import Node, NodeState
from tidegate.model.policy import FitBy
from tidegate.world.records import Reservation, Run
from tidegate.world.world import World


class Booking(Value, frozen=True, gc=False):
    """Chunks taken from `start` up to `end`; without rows where only their number counts. `count`: how many."""

    start: int
    end: int
    chosen: Chosen
    chunk: tuple[tuple[str, int], ...]
    count: int


class Room:
    """What is free of a pool at any time, under everything booked so far; or of what one of its reservations keeps."""

    def __init__(self, world: World, pool: str, now: int, within: str = "") -> None:
        self.now = now
        self.world = world
        self.within = within
        self.by: FitBy = world.policy_in(pool).fit.by
        busy = {name for run in world.runs.values() for name, _ in run.nodes}
        self.nodes: list[Node] = [  # one that is tried takes one run at a time
            replace(node, state=NodeState.DRAINED)
            if node.name in busy and node.name in world.suspects and world.suspects[node.name].tried
            else node
            for node in world.pools[pool].nodes
        ]
        self.kept = self._kept_for_classes(pool)
        self.base: list[Amounts] = [dict(node.capacity) for node in self.nodes]
        self.reserved = [known for known in world.reservations.values() if known.pool == pool]
        self.counted = world.pools[pool].counted and not self.reserved
        self.windows = [known.spec.start_ms for known in self.reserved if known.spec.start_ms > now]
        self.booked: list[Booking] = []
        runs = [run for run in world.runs.values() if run.pool == pool]
        if within:
            self.windows = [world.reservations[within].spec.end_ms]
            self._only_what_is_kept(runs)
        else:
            for known in self.reserved:
                self._take_off(known, runs)
        for run in runs:
            if self._is_in(run, within):  # one that should have ended holds on for another instant
                job = world.jobs[run.task >> ARRAY_BITS]
                end = max(self._certain(run, job), now + 1)
                chunk, count = job.spec.shape.chunk, job.spec.shape.count
                self.booked.append(Booking(run.start_ms, end, (run.rows, run.counts), chunk, count))

    def _kept_for_classes(self, pool: str) -> dict[str, tuple[str, ...]]:
        """Node -> the classes that may use it: the last nodes that are up, one entry of the policy after the other."""
        up = [node.name for node in self.world.pools[pool].nodes if node.state is NodeState.UP]
        kept: dict[str, tuple[str, ...]] = {}
        for _, entry in sorted(self.world.policy.kept.items()):
            if entry.pool in ("", pool):
                part = (len(self.nodes) * entry.percent + 99) // 100
                for _ in range(max(entry.nodes, part)):
                    if up:
                        kept[up.pop()] = entry.classes
        return kept

    def nodes_for(self, job: Job) -> list[Node]:
        """Those kept for others take no work of it, but in its reservation."""
        if not self.kept or self.within:
            return self.nodes
        return [
            node if job.spec.klass in self.kept.get(node.name, (job.spec.klass,))
            else replace(node, state=NodeState.DRAINED)
            for node in self.nodes
        ]  # fmt: skip

    def _is_in(self, run: Run, name: str) -> bool:
        said = self.world.jobs[run.task >> ARRAY_BITS].spec.reservation
        return (said if said in self.world.reservations else "") == name

    def _certain(self, run: Run, job: Job) -> int:
        """Nobody is trusted to leave before a reservation begins but by the time limit."""
        limit = run.start_ms + job.spec.limit_ms
        crosses = any(run.expected_end <= opens < limit for opens in self.windows)
        return limit if crosses and not self.within and run.task not in self.world.halting else run.expected_end

    def until(self, job: Job, start: int) -> int:
        end, limit = start + job.estimate_ms, start + job.spec.limit_ms
        return limit if any(end <= opens < limit for opens in self.windows) else end

    def _kept_by(self, known: Reservation) -> list[Amounts]:
        """By row: whole nodes, or chunks."""
        kept: list[Amounts] = [{} for _ in self.nodes]
        placed, shape = dict(known.nodes), known.spec.shape
        for row, node in enumerate(self.nodes):
            chunk = shape.chunk if shape is not None and shape.chunk else node.capacity
            kept[row] = {name: amount * placed.get(node.name, 0) for name, amount in chunk}
        return kept

    def _used(self, runs: list[Run], name: str) -> list[Amounts]:
        used: list[Amounts] = [{} for _ in self.nodes]
        for run in runs:
            if self._is_in(run, name):
                for row, count in zip(run.rows, run.counts, strict=True):
                    for resource, amount in self.world.jobs[run.task >> ARRAY_BITS].spec.shape.chunk:
                        used[row][resource] = used[row].get(resource, 0) + amount * count
        return used

    def _take_off(self, known: Reservation, runs: list[Run]) -> None:
        """What it keeps is taken from its start to its end; what its runs have beyond that, for good."""
        used = self._used(runs, known.spec.name)
        for row, kept in enumerate(self._kept_by(known)):
            for name in self.base[row]:
                self.base[row][name] -= max(0, used[row].get(name, 0) - kept.get(name, 0))
            start, chunk = known.spec.start_ms, tuple(kept.items())
            self.booked.append(Booking(start, known.spec.end_ms, ((row,), (1,)), chunk, 1))

    def _only_what_is_kept(self, runs: list[Run]) -> None:
        """As far as nobody else is there."""
        known = self.world.reservations[self.within]
        used, kept = self._used(runs, self.within), self._kept_by(known)
        free: list[Amounts] = [dict(node.capacity) for node in self.nodes]
        for run in runs:
            for row, count in zip(run.rows, run.counts, strict=True):
                for name, amount in self.world.jobs[run.task >> ARRAY_BITS].spec.shape.chunk:
                    free[row][name] = free[row].get(name, 0) - amount * count
        for row, node in enumerate(self.nodes):
            for name, _ in node.capacity:
                mine = used[row].get(name, 0)
                self.base[row][name] = min(kept[row].get(name, 0) - mine, free[row][name]) + mine

    def at(self, time: int) -> list[Amounts]:
        room = [dict(amounts) for amounts in self.base]
        for booking in self.booked:
            if booking.start <= time < booking.end:
                for row, count in zip(*booking.chosen, strict=True):
                    for name, amount in booking.chunk:
                        room[row][name] = room[row].get(name, 0) - amount * count
        return room

    def find(self, job: Job, start: int) -> Chosen | None:
        """Where the job may run for its estimate, from `start` on; chunks are all that counts later on."""
        end = self.until(job, start)
        if self.within and end > self.windows[0]:
            return None
        instants = [start, *(booking.start for booking in self.booked if start < booking.start < end)]
        if not self.counted:
            rooms = [self.at(time) for time in instants]
            least = [
                {name: min(room[row].get(name, 0) for room in rooms) for name, _ in node.capacity}
                for row, node in enumerate(self.nodes)
            ]
            return place(self.nodes_for(job), least, job.spec.shape, self.by)
        if min(self._chunks_at(time, job) for time in instants) < job.spec.shape.count:
            return None
        return place(self.nodes_for(job), self.at(start), job.spec.shape, self.by) if start == self.now else ((), ())

    def _chunks_at(self, time: int, job: Job) -> int:
        """Bookings without rows take chunks anywhere."""
        free = sum(chunks_on(node, room, job.spec.shape) for node, room in zip(self.nodes, self.at(time), strict=True))
        nowhere = [b.count for b in self.booked if not b.chosen[0] and b.start <= time < b.end]
        return free - sum(nowhere)

    def earliest(self, job: Job) -> tuple[int, Chosen] | None:
        """Room grows at ends only."""
        for time in sorted({booking.end for booking in self.booked if booking.end > self.now}):
            chosen = self.find(job, time)
            if chosen is not None:
                return time, chosen
        return None

    def book(self, job: Job, start: int, chosen: Chosen) -> Booking:
        shape = job.spec.shape
        booking = Booking(start, self.until(job, start), chosen, shape.chunk, shape.count)
        self.booked.append(booking)
        return booking

    def names(self, chosen: Chosen) -> Placement:
        return tuple((self.nodes[row].name, count) for row, count in zip(*chosen, strict=True))
