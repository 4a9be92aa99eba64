"""The virtual engine: jobs that end by themselves after a known run time. Nothing really runs."""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

from tidegate.model.engine import Ask, Directive, Ended, Halt, Launch, Notified, Notify, Report, Resume, Saved, Suspend
from tidegate.model.jobs import Outcome

RunTime = Callable[[int, int], int]
"""(task, attempt) -> milliseconds"""
Ran = tuple[int, int, int]
"""(attempt, when it began, how long it takes before it goes on with what was saved)"""


class VirtualEngine:
    """Ends come in order of time; at one instant in the order the attempts were launched."""

    def __init__(self, run_time: RunTime, resume_ms: int = 0) -> None:
        self.run_time = run_time
        self.resume_ms = resume_ms  # what an attempt that goes on from a checkpoint needs more
        self.ends: list[tuple[int, int, int, int]] = []  # heap of (end, launch number, task, attempt)
        self.live: dict[int, Ran] = {}  # by task
        self.stopped: dict[int, tuple[int, int]] = {}  # by task: since when, and how much of its time is left
        self.saved: list[Saved] = []
        self.halted: list[tuple[int, int, Outcome]] = []
        self.notified: list[int] = []
        self.launched = 0

    def deliver(self, directives: Sequence[Directive], now: int) -> None:
        for directive in directives:
            if type(directive) is Launch:
                self._launch(directive, now)
            elif isinstance(directive, Halt):
                self._halt(directive, now)
            elif isinstance(directive, Suspend):
                self._suspend(directive, now)
            elif isinstance(directive, Resume):
                self._resume(directive, now)
            elif isinstance(directive, Ask):
                self._save(directive.task, directive.attempt, directive.number, now)
            elif isinstance(directive, Notify):
                self.notified.append(directive.job.id)

    def _launch(self, launch: Launch, now: int) -> None:
        task, attempt = launch.task, launch.attempt
        known = self.live.get(task)
        if known is not None and known[0] >= attempt:
            return
        run_ms, resume_ms = self.run_time(task, attempt), 0
        if launch.kept_ms:
            resume_ms = self.resume_ms
            run_ms = max(0, run_ms - launch.kept_ms) + resume_ms
        self.live[task] = (attempt, now, resume_ms)
        self.stopped.pop(task, None)  # of an attempt before
        self.launched += 1
        heappush(self.ends, (now + run_ms, self.launched, task, attempt))

    def _suspend(self, suspend: Suspend, now: int) -> None:
        task, attempt = suspend.task, suspend.attempt
        if self._runs(task, attempt) and task not in self.stopped:
            ends = [one for one in self.ends if one[2:] == (task, attempt)]
            self.stopped[task] = (now, max(0, ends[0][0] - now))
            self.ends.remove(ends[0])
            heapify(self.ends)

    def _resume(self, resume: Resume, now: int) -> None:
        if self._runs(resume.task, resume.attempt) and resume.task in self.stopped:
            since, left_ms = self.stopped.pop(resume.task)
            attempt, began, resume_ms = self.live[resume.task]
            self.live[resume.task] = (attempt, began + now - since, resume_ms)
            self.launched += 1
            heappush(self.ends, (now + left_ms, self.launched, resume.task, attempt))

    def _halt(self, halt: Halt, now: int) -> None:
        if self._runs(halt.task, halt.attempt):
            if halt.save:
                self._save(halt.task, halt.attempt, 0, now)
            del self.live[halt.task]
            self.stopped.pop(halt.task, None)
            self.halted.append((halt.task, halt.attempt, halt.outcome))

    def _save(self, task: int, attempt: int, number: int, now: int) -> None:
        """At once, and all that it has done."""
        if self._runs(task, attempt):
            _, began, resume_ms = self.live[task]
            until = self.stopped[task][0] if task in self.stopped else now
            self.saved.append(Saved(task, attempt, number, max(0, until - began - resume_ms)))

    def _runs(self, task: int, attempt: int) -> bool:
        known = self.live.get(task)
        return known is not None and known[0] == attempt

    def reports(self, now: int) -> Sequence[Report]:
        reports: list[Report] = list(self.saved)
        self.saved.clear()
        reports.extend([Ended(task, attempt, outcome) for task, attempt, outcome in self.halted])
        self.halted.clear()
        if self.notified:
            reports.extend(map(Notified, self.notified))
            self.notified.clear()
        ends, live = self.ends, self.live
        while ends and ends[0][0] <= now:
            _, _, task, attempt = heappop(ends)
            known = live.get(task)
            if known is not None and known[0] == attempt:
                del live[task]
                reports.append(Ended(task, attempt, Outcome.COMPLETED))
        return reports

    def next_at(self) -> int | None:
        if self.halted or self.notified or self.saved:
            return 0
        return self.ends[0][0] if self.ends else None
