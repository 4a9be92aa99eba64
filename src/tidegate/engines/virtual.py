"""The virtual engine: jobs that end by themselves after a known run time. Nothing really runs."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from tidegate.model.engine import Directive, Ended, Halt, Launch, Notified, Notify, Report
from tidegate.model.jobs import Outcome

RunTime = Callable[[int, int], int]
"""(task, attempt) -> milliseconds"""


class VirtualEngine:
    """Ends come in order of time; at one instant in the order the attempts were launched."""

    def __init__(self, run_time: RunTime) -> None:
        self.run_time = run_time
        self.ends: list[tuple[int, int, int, int]] = []  # heap of (end, launch number, task, attempt)
        self.live: dict[int, int] = {}  # task -> attempt
        self.halted: list[tuple[int, int, Outcome]] = []
        self.notified: list[int] = []
        self.launched = 0

    def deliver(self, directives: Sequence[Directive], now: int) -> None:
        for directive in directives:
            if type(directive) is Launch:
                self._launch(directive.task, directive.attempt, now)
            elif isinstance(directive, Halt):
                self._halt(directive)
            elif isinstance(directive, Notify):
                self.notified.append(directive.job.id)

    def _launch(self, task: int, attempt: int, now: int) -> None:
        if self.live.get(task, 0) >= attempt:
            return
        self.live[task] = attempt
        self.launched += 1
        heappush(self.ends, (now + self.run_time(task, attempt), self.launched, task, attempt))

    def _halt(self, halt: Halt) -> None:
        if self.live.get(halt.task) == halt.attempt:
            del self.live[halt.task]
            self.halted.append((halt.task, halt.attempt, halt.outcome))

    def reports(self, now: int) -> Sequence[Report]:
        reports: list[Report] = [Ended(task, attempt, outcome) for task, attempt, outcome in self.halted]
        self.halted.clear()
        if self.notified:
            reports.extend(map(Notified, self.notified))
            self.notified.clear()
        ends, live = self.ends, self.live
        while ends and ends[0][0] <= now:
            _, _, task, attempt = heappop(ends)
            if live.get(task) == attempt:
                del live[task]
                reports.append(Ended(task, attempt, Outcome.COMPLETED))
        return reports

    def next_at(self) -> int | None:
        if self.halted or self.notified:
            return 0
        return self.ends[0][0] if self.ends else None
