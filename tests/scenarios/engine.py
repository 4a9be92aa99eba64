"""The engine of a scenario: a virtual one whose jobs end as their file says, and whose nodes may be broken."""

from collections.abc import Sequence

from tests.scenarios.scenario import Scenario, listed, nodes_of
from tidegate.engines.virtual import VirtualEngine
from tidegate.model.base import job_of
from tidegate.model.engine import Directive, Ended, Launch, LaunchRefused, Notify, Report
from tidegate.model.jobs import Outcome
from tidegate.wire.units import parse_duration

Attempt = tuple[int, int]
OUTCOMES = {
    "ok": Outcome.COMPLETED,
    "exit": Outcome.FAILED,
    "signal": Outcome.FAILED,
    "oom": Outcome.OUT_OF_MEMORY,
    "timeout": Outcome.TIMED_OUT,
    "lost": Outcome.LOST,
}


class Engine:
    def __init__(self, scenario: Scenario) -> None:
        self.jobs = {job.id: job for job in scenario.jobs}
        run_ms = {job.id: parse_duration(job.run) for job in scenario.jobs}
        self.virtual = VirtualEngine(lambda task, _: run_ms[job_of(task)])
        self.broken = {
            node.name: (said.breaks, parse_duration(said.mended))
            for said in scenario.nodes
            for node in nodes_of(said)
            if said.breaks
        }
        self.placed: dict[Attempt, tuple[str, ...]] = {}
        self.queue: list[tuple[int, Report]] = []  # with when it is told
        self.notices: list[tuple[int, Outcome]] = []

    def deliver(self, directives: Sequence[Directive], now: int) -> None:
        for directive in directives:
            if isinstance(directive, Launch):
                attempt = (directive.task, directive.attempt)
                self.placed[attempt] = tuple(name for name, _ in directive.nodes)
                if self._how(*attempt, now) == "refused":
                    self.queue.append((now, LaunchRefused(*attempt, "no shell")))
                    continue
            elif isinstance(directive, Notify):
                self.notices.append((directive.job.id, directive.outcome))
            self.virtual.deliver([directive], now)

    def _how(self, task: int, attempt: int, now: int) -> str:
        job = self.jobs[job_of(task)]
        for name in self.placed[task, attempt]:
            how, mended = self.broken.get(name, ("", 0))
            if how and now < mended:
                return how
        ends = listed(job.ends)
        return ends[attempt - 1] if attempt <= len(ends) else "exit 1" if job.fails else "ok"

    def reports(self, now: int) -> Sequence[Report]:
        for report in self.virtual.reports(now):
            if isinstance(report, Ended) and report.outcome is Outcome.COMPLETED:
                late = parse_duration(self.jobs[job_of(report.task)].reported_after)
                self.queue.append((now + late, self._ended(report, now)))
            else:
                self.queue.append((now, report))
        told = [report for when, report in self.queue if when <= now]
        self.queue = [(when, report) for when, report in self.queue if when > now]
        return told

    def _ended(self, report: Ended, now: int) -> Ended:
        how, _, number = self._how(report.task, report.attempt, now).partition(" ")
        code = int(number) if how == "exit" else 0
        signal = int(number) if how == "signal" else 0
        return Ended(report.task, report.attempt, OUTCOMES[how], code, signal)

    def next_at(self) -> int | None:
        times = [self.virtual.next_at(), *(when for when, _ in self.queue)]
        return min((time for time in times if time is not None), default=None)
