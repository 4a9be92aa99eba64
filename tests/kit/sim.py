"""A whole cluster in one object: the real loop between a faulty engine and a scripted inbox, watched closely."""

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from itertools import islice

import msgspec
from msgspec.structs import replace

from tests.kit.deep import deep, difference, without_traces
from tests.kit.faulty_engine import CALM, FaultyEngine
from tests.kit.ledger import Ledger
from tests.kit.slow_decide import slow_decide
from tests.kit.slow_tree import SlowTree
from tidegate.core.decide import decide
from tidegate.core.memo import Memo
from tidegate.journals.memory import MemoryJournal
from tidegate.loop.loop import Cadence, Loop
from tidegate.loop.recovery import keep_snapshot, recover
from tidegate.model.base import ARRAY_BITS, task_key
from tidegate.model.commands import (
    Cancel,
    ChangePolicy,
    Command,
    EndReservation,
    Refused,
    Release,
    Resume,
    RevokeExcess,
    SetNode,
)
from tidegate.model.events import CycleRan, Event, JobStarted, TideTurned
from tidegate.model.jobs import CPUS, Job, Outcome
from tidegate.model.nodes import Node, NodeState
from tidegate.model.policy import PolicySpec
from tidegate.policy.order import moves_with_time
from tidegate.world.apply import apply
from tidegate.world.check import check
from tidegate.world.snapshot import dump, load
from tidegate.world.world import World

TURNS_AT_ONE_TIME_MAX = 500
DRAIN_TURNS_MAX = 20_000


class StepClock:
    """Says when the loop wants to be woken; the simulation moves the hands."""

    def __init__(self) -> None:
        self.time = 0
        self.wanted: int | None = None

    def now(self) -> int:
        return self.time

    def wait(self, until: int | None) -> bool:
        self.wanted = until
        return until is not None


class ScriptedInbox:
    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.refused: list[Refused] = []
        self.open = 0

    def take(self, now: int, at_most: int) -> Sequence[Command]:
        taken, self.commands = self.commands[:at_most], self.commands[at_most:]
        self.open += len(taken)
        return taken

    def answer(self, command: Command, result: tuple[Event, ...] | Refused) -> None:
        self.open -= 1
        if isinstance(result, Refused):
            assert result.what, command
            assert result.cure, command
            self.refused.append(result)

    def next_at(self) -> int | None:
        return 0 if self.commands else None


class WatchedLoop(Loop):
    """Before every cycle: a cold memo and a fork decide the same, and deciding changes nothing."""

    digests: dict[int, str]
    watched: bool = True

    def commit(self, events: Sequence[Event]) -> None:
        super().commit(events)
        if events:
            self.digests[self.world.seq] = self.world.read_digest()

    def _cycle(self, now: int) -> None:
        world = self.world
        if not world.stirred or not self.watched:
            super()._cycle(now)
            return
        self._let_time_pass(now)
        before, sum_before = deep(world), world.full_digest()
        cold = decide(world, Memo(), now)
        assert world.full_digest() == sum_before
        assert not difference(before, deep(world)), difference(before, deep(world))
        twin = world.fork()
        if not any(moves_with_time(world.policy_in(pool)) for pool in world.pools):
            forked = decide(twin, Memo(), now)
            assert forked == cold, f"a fork decides otherwise: {forked} is not {cold}"
        expected_starts, expected_promises = slow_decide(world, now)
        has_suspended = any(pool.suspended for pool in world.pools.values())  # of them the reference knows nothing
        at = world.seq
        super()._cycle(now)
        assert isinstance(self.journal, MemoryJournal)
        warm = [event for event in self.journal.events[at:] if not isinstance(event, TideTurned)]
        expected = [cold.cycle, *cold.starts, *cold.halts, *cold.resumes]
        assert warm == expected, f"a warm memo decides otherwise: {warm} is not {expected}"
        if not cold.cycle.cut and not has_suspended:
            assert list(cold.starts) == expected_starts, f"{cold.starts} is not {expected_starts}"
            assert world.promises == expected_promises, f"{world.promises} is not {expected_promises}"
            self._promises_hold(now)

    def _promises_hold(self, now: int) -> None:
        world = self.world
        for task, promise in world.promises.items():
            job = world.jobs[task >> ARRAY_BITS]
            assert job.id not in world.parked, f"job {job.id} holds a promise and is parked"
            assert promise.start_by > now, f"{promise} is due at {now} and not kept"
            count = sum(count for _, count in promise.nodes)
            assert count in (0, job.spec.shape.count), f"{promise} is for half of {job.spec.shape}"


class Sim:
    def __init__(
        self, engine: FaultyEngine, nodes: Sequence[Node], policy: PolicySpec, cadence: Cadence = Cadence.BATCHED
    ) -> None:
        self.engine = engine
        self.nodes = {node.name: node for node in nodes}
        self.cadence = cadence
        self.clock = StepClock()
        self.inbox = ScriptedInbox()
        self.journal = MemoryJournal(history=True)
        self.ledger = Ledger()
        self.booked = 0
        self.overfull = False  # a node was made smaller than what ran there
        self.forced = False  # something was reserved over what ran or was promised there
        self.loop = self._new_loop(World())
        self.digests = self.loop.digests = {}
        self.send(ChangePolicy(policy), *(SetNode(node) for node in nodes))

    def _new_loop(self, world: World) -> WatchedLoop:
        return WatchedLoop(world, self.clock, self.journal, self.engine, self.inbox, self.cadence)

    @property
    def world(self) -> World:
        return self.loop.world

    @property
    def now(self) -> int:
        return self.clock.time

    # -- acting ------------------------------------------------------------------------------------------

    def send(self, *commands: Command) -> None:
        self.inbox.commands.extend(commands)
        self.advance(0)

    def advance(self, ms: int) -> None:
        """Lets the loop turn at every time it asks for, up to then."""
        until, turns = self.clock.time + ms, 0
        while True:
            self.turn()
            wanted = self.clock.wanted
            if wanted is None or wanted > until:
                break
            turns = 0 if wanted > self.clock.time else turns + 1
            assert turns < TURNS_AT_ONE_TIME_MAX, "the loop spins: it asks to be woken at once, again and again"
            self.clock.time = max(self.clock.time, wanted)
        self.clock.time = until

    def turn(self) -> None:
        self.loop.turn()
        self.ledger.append(list(islice(self.journal.read(self.booked), None)))
        self.booked = len(self.journal.events)
        self.inspect()

    def restart(self) -> None:
        """The writer dies and folds the journal; the engine has not noticed."""
        live, world = deep(self.world), recover(self.journal)
        found = deep(world)
        if self.journal.kept:
            live, found = without_traces(live), without_traces(found)
        assert not difference(live, found), difference(live, found)
        self._go_on(world)

    def keep_snapshot(self) -> None:
        keep_snapshot(self.journal, self.world)

    def restart_from_snapshot(self) -> None:
        """As of now: nothing is left to fold."""
        world = load(dump(self.world))
        live, found = without_traces(deep(self.world)), without_traces(deep(world))
        assert not difference(live, found), difference(live, found)
        assert world.full_digest() == self.world.full_digest()
        self._go_on(world)

    def _go_on(self, world: World) -> None:
        found = check(world, may_be_overfull=self.overfull)
        assert not found, found
        self.loop = self._new_loop(world)
        self.loop.digests = self.digests

    # -- looking -----------------------------------------------------------------------------------------

    def inspect(self) -> None:
        world, ledger = self.world, self.ledger
        found = check(world, may_be_overfull=self.overfull)
        assert not found, found
        assert self.inbox.open == 0, "a command was taken and not answered"
        assert world.runs.keys() == ledger.live.keys()
        assert {task >> ARRAY_BITS for task in (*ledger.waiting, *ledger.live)} == world.jobs.keys()
        assert world.notices.keys() == ledger.notices
        if not self.overfull:
            self._nodes_hold()

    def _nodes_hold(self) -> None:
        """As the engine sees it: what the world has live fits on the nodes."""
        room = {name: dict(node.capacity) for name, node in self.world.nodes.items()}
        for task, attempt in self.engine.live():
            run = self.world.runs.get(task)
            if run is None or run.attempt != attempt:
                continue
            chunk, placement = self.engine.placed[task, attempt]
            pause = self.world.pauses.get(task)
            if pause is not None and pause.stopped:  # what it lends may be taken before it has heard of it
                chunk = tuple(part for part in chunk if part[0] != CPUS)
            for name, count in placement:
                for resource, amount in chunk:
                    room[name][resource] = room[name].get(resource, 0) - amount * count
        full = {name: left for name, left in room.items() if any(amount < 0 for amount in left.values())}
        assert not full, f"the engine has more on these nodes than they hold: {full}"

    def waiting_jobs(self) -> list[Job]:
        return [self.world.jobs[job] for job in sorted({task >> ARRAY_BITS for task in self.ledger.waiting})]

    def check_recovery(self, numbers: Sequence[int]) -> None:
        """Folding the journal up to each number gives the state that was live then."""
        world, done = World(), 0
        for number in sorted(numbers):
            for event in islice(self.journal.read(done), number - done):
                apply(world, event)
            done = number
            assert world.full_digest() == self.digests[number], f"event {number}"

    def decisions(self) -> str:
        """One number over every choice, in order."""
        chosen = [event for event in self.journal.events if isinstance(event, CycleRan | JobStarted)]
        return blake2b(msgspec.msgpack.encode(chosen), digest_size=16).hexdigest()

    def drain(self) -> None:
        """No more faults, every node up and every hold released: everything ends, and nothing is left behind."""
        self.engine.faults = CALM
        self.engine.spoiled.clear()
        self.engine.return_nodes(self.now)
        self.send(*(SetNode(node) for node in self.nodes.values()))
        queues = {name: replace(queue, limit=(), user_limit=()) for name, queue in self.world.policy.queues.items()}
        everybody = replace(self.world.policy, queues=queues, kept={})
        if everybody != self.world.policy:  # a limit may have come that is too small for what waits
            self.send(ChangePolicy(everybody))
        self.send(*(Release(job) for job, parked in self.world.parked.items() if parked.held))
        self.send(*(Resume(task >> ARRAY_BITS) for task, pause in self.world.pauses.items() if pause.held))
        self.send(*(RevokeExcess(queue) for queue in self.world.excesses))
        self.send(*(EndReservation(name) for name in self.world.reservations))
        tree = SlowTree(self.world, self.now)  # the policy and the nodes may have changed since a job came
        self.send(*(Cancel(job.id) for job in self.world.jobs.values() if not tree.may_ever_hold(job)))
        for _ in range(DRAIN_TURNS_MAX):
            self.turn()
            if self.clock.wanted is None:
                break
            self.clock.time = max(self.clock.time, self.clock.wanted)
            down = [self.nodes[node.name] for node in self.world.nodes.values() if node.state is not NodeState.UP]
            if down and not self.engine.late:
                self.inbox.commands.extend(SetNode(node) for node in down)
        self._nothing_left()

    def _nothing_left(self) -> None:
        world, ledger = self.world, self.ledger
        left = {name for name in ("jobs", "runs", "arrays", "tries", "promises", "parked", "halting", "strays",
                                  "dependents", "environments", "env_users", "failed_on", "launching", "notices",
                                  "ripe", "timers", "saves", "asks", "pauses") if getattr(world, name)}  # fmt: skip
        assert not left, {name: getattr(world, name) for name in left}
        assert not ledger.waiting
        assert not ledger.live
        self._history_holds()
        for pool in world.pools.values():
            assert not pool.lanes
            assert not pool.end_times
            assert pool.free.tolist() == pool.total.tolist()

    def _history_holds(self) -> None:
        """Each task has one final row, and each attempt that was started has one row."""
        final: dict[int, Outcome] = {}
        over = Counter[tuple[int, int]]()
        for row in self.journal.endings:
            for index in row.indices:
                task = task_key(row.job.id, index)
                if row.final:
                    assert task not in final, f"task {task} ends twice in the history"
                    final[task] = row.outcome
                if row.start_ms >= 0:
                    over[task, row.attempt] += 1
        assert final == self.ledger.outcome
        started = {(event.task, event.attempt) for event in self.journal.events if isinstance(event, JobStarted)}
        assert over == dict.fromkeys(started, 1)
