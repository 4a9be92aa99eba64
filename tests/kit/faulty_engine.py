"""A virtual engine behind a bad wire: it loses, repeats, delays and reorders, and nodes vanish under it.

Jobs end there in every way there is, and some launches are refused.

What a real engine must do, this one does too: it knows every attempt it ever ended, so a launch of one of
those is answered with its end; a launch on a node that is gone is answered with the loss of the node; and an
inventory comes again and again until it had something quiet to say. So nothing is lost for good.
"""

import random
from collections.abc import Sequence

from tidegate.engines.virtual import RunTime, VirtualEngine
from tidegate.model.base import FOREVER_MS, Value
from tidegate.model.engine import (
    Directive,
    Ended,
    Halt,
    Inventory,
    Launch,
    Launched,
    LaunchRefused,
    NodeLost,
    NodeSeen,
    Report,
)
from tidegate.model.events import Placement
from tidegate.model.jobs import Amounts, Outcome, Used
from tidegate.model.nodes import Node

INVENTORY_MS = 25
QUIET_INVENTORIES = 3
"""After so many of them without a new fault nothing can be left to repair."""


class Faults(Value, frozen=True, gc=False):
    """Out of a hundred."""

    directive_lost: int = 0
    directive_twice: int = 0
    report_lost: int = 0
    report_twice: int = 0
    report_late: int = 0
    failing: int = 0
    refusing: int = 0


FAILURES = (Outcome.FAILED, Outcome.FAILED, Outcome.FAILED, Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT, Outcome.LOST)
CALM = Faults()
STORM = Faults(10, 10, 10, 10, 15, 20, 8)
Attempt = tuple[int, int]


class FaultyEngine:
    def __init__(self, run_time: RunTime, seed: int, faults: Faults = CALM) -> None:
        self.inner = VirtualEngine(run_time)
        self.random = random.Random(seed)
        self.faults = faults
        self.exits: dict[Attempt, Ended | LaunchRefused] = {}
        self.placed: dict[Attempt, tuple[Amounts, Placement]] = {}  # what runs, and on what
        self.ghosts: dict[Attempt, int] = {}  # attempts that were replaced and run on, with their ends
        self.down: dict[str, Node] = {}
        self.spoiled: set[str] = set()  # nodes on which every job fails
        self.returned: dict[str, Node] = {}
        self.queue: list[Report] = []
        self.late: list[tuple[int, Report]] = []
        self.inventory_at: int | None = None
        self.quiet = 0

    # -- directives --------------------------------------------------------------------------------------

    def deliver(self, directives: Sequence[Directive], now: int) -> None:
        for directive in directives:
            for _ in range(self._copies(self.faults.directive_lost, self.faults.directive_twice)):
                if isinstance(directive, Launch):
                    self._launch(directive, now)
                elif isinstance(directive, Halt):
                    self._halt(directive, now)
                else:
                    self.inner.deliver([directive], now)
        self._look_again(now)

    def _launch(self, launch: Launch, now: int) -> None:
        attempt = (launch.task, launch.attempt)
        if attempt in self.exits:
            self.queue.append(self.exits[attempt])
            return
        gone = [name for name, _ in launch.nodes if name in self.down]
        if gone:
            self.queue.extend(NodeLost(name, "it is gone") for name in gone)
            return
        if attempt in self.placed:
            return
        if self.random.randrange(100) < self.faults.refusing:
            self.exits[attempt] = LaunchRefused(*attempt, "not today")
            self.queue.append(self.exits[attempt])
            return
        self._make_ghost(launch.task)
        assert sum(count for _, count in launch.nodes) == launch.job.spec.shape.count, "a gang is all or nothing"
        self.placed[attempt] = (launch.job.spec.shape.chunk, launch.nodes)
        self.inner.deliver([launch], now)
        self.queue.append(Launched(*attempt))

    def _make_ghost(self, task: int) -> None:
        known = self.inner.live.get(task)
        if known is not None:
            before = known[0]
            ends = [end for end, _, other, attempt in self.inner.ends if (other, attempt) == (task, before)]
            self.ghosts[task, before] = ends[0] if ends else FOREVER_MS  # one that is stopped ends when it is halted

    def _halt(self, halt: Halt, now: int) -> None:
        attempt = (halt.task, halt.attempt)
        if attempt in self.ghosts:
            self.ghosts[attempt] = now
        elif attempt in self.exits:
            self.queue.append(self.exits[attempt])
        self.inner.deliver([halt], now)

    # -- nodes -------------------------------------------------------------------------------------------

    def lose_node(self, node: Node, now: int, *, truly: bool = True) -> None:
        """Not truly: the report is wrong, and what runs there runs on."""
        self.queue.append(NodeLost(node.name, "no answer"))
        self._look_again(now)
        self.returned.pop(node.name, None)
        if not truly:
            self.returned[node.name] = node
            return
        self.down[node.name] = node
        for task, attempt in [at for at, (_, nodes) in self.placed.items() if node.name in dict(nodes)]:
            del self.placed[task, attempt]
            self.ghosts.pop((task, attempt), None)
            if (task, attempt) in self._live():
                del self.inner.live[task]

    def return_nodes(self, now: int) -> None:
        self.returned.update(self.down)
        self.down.clear()
        self._look_again(now)

    # -- reports -----------------------------------------------------------------------------------------

    def reports(self, now: int) -> Sequence[Report]:
        queue, self.queue = self.queue, []
        for report in self.inner.reports(now):
            queue.append(self._ended(report) if isinstance(report, Ended) else report)
        for (task, attempt), _ in [ghost for ghost in self.ghosts.items() if ghost[1] <= now]:
            del self.ghosts[task, attempt]
            queue.append(self._ended(Ended(task, attempt, Outcome.COMPLETED)))
        if queue or self.late:
            self._look_again(now)
        if self.inventory_at is not None and self.inventory_at <= now:
            queue.extend(self._inventory(now))
        sent = [report for due, report in self.late if due <= now]
        self.late = [(due, report) for due, report in self.late if due > now]
        for report in queue:
            for _ in range(self._copies(self.faults.report_lost, self.faults.report_twice)):
                if self.random.randrange(100) < self.faults.report_late:
                    self.late.append((now + self.random.randint(1, 60), report))
                else:
                    sent.append(report)
        if self.faults.report_late:
            self.random.shuffle(sent)
        return sent

    def _ended(self, report: Ended) -> Ended:
        _, nodes = self.placed.get((report.task, report.attempt), ((), ()))
        spoiled = any(name in self.spoiled for name, _ in nodes)
        if report.outcome is Outcome.COMPLETED and spoiled:
            report = Ended(report.task, report.attempt, Outcome.FAILED, 1)
        elif report.outcome is Outcome.COMPLETED and self.random.randrange(100) < self.faults.failing:
            report = self._some_failure(report.task, report.attempt)
        self.exits[report.task, report.attempt] = report
        self.placed.pop((report.task, report.attempt), None)
        return report

    def _some_failure(self, task: int, attempt: int) -> Ended:
        outcome, why = self.random.choice(FAILURES), self.random.choice(("", "it said"))
        by_itself, by_signal = outcome is Outcome.FAILED, self.random.random() < 0.3
        code = self.random.randint(1, 255) if by_itself and not by_signal else 0
        signal = self.random.randint(1, 15) if by_itself and by_signal else 0
        return Ended(task, attempt, outcome, code, signal, Used(peak_kib=7), why)

    def _live(self) -> list[Attempt]:
        return [(task, ran[0]) for task, ran in self.inner.live.items()]

    def _inventory(self, now: int) -> list[Report]:
        self.quiet += 1
        running = (*self._live(), *self.ghosts)
        more = self.quiet < QUIET_INVENTORIES or running or self.down
        self.inventory_at = now + INVENTORY_MS if more else None
        return [
            Inventory(now, tuple(running)),
            *(NodeLost(name, "it is gone") for name in self.down),
            *(NodeSeen(node) for node in self.returned.values()),
        ]

    def next_at(self) -> int | None:
        times = [self.inner.next_at(), self.inventory_at, 0 if self.queue else None]
        times += [due for due, _ in self.late]
        times += self.ghosts.values()
        return min((time for time in times if time is not None), default=None)

    # -- chance ------------------------------------------------------------------------------------------

    def _copies(self, lost: int, twice: int) -> int:
        drawn = self.random.randrange(100)
        return 0 if drawn < lost else 2 if drawn >= 100 - twice else 1

    def _look_again(self, now: int) -> None:
        self.quiet = 0
        if self.inventory_at is None:
            self.inventory_at = now + INVENTORY_MS

    def live(self) -> list[Attempt]:
        return list(self.placed)
