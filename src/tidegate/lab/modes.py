"""Is a policy with a tide better than each of its own modes, kept for good? On bursts from the generator.

Three replays of one workload: the policy; the policy without its tide, which is always as in a calm; and always as in
a surge, what that closes closed for good. Who is refused comes again every quarter of an hour, and waits meanwhile; who
is never let in counts as waiting until the last submission. So a mode cannot look quick by shutting work out.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any, NamedTuple

from msgspec.structs import replace

from tidegate.lab.generate import SMALL_PROCS_MAX, SMALL_RUN_S_MAX, GenerateOptions, generate
from tidegate.lab.measure import Row
from tidegate.lab.ports import TraceInbox
from tidegate.lab.replay import Wiring, processors, replay
from tidegate.lab.workload import Arrival
from tidegate.model.base import ARRAY_BITS
from tidegate.model.commands import Command, Refused, Submit
from tidegate.model.events import Event
from tidegate.model.jobs import JobSpec, Shape, amounts
from tidegate.model.policy import PolicySpec, Tide, in_tides
from tidegate.ports import Engine

AGAIN_MS = 15 * 60_000
RESUME_MS = 10 * 60_000
"""Every job can save itself; going on takes so much longer."""
CRITICAL, OPPORTUNISTIC = 0.05, 0.10
BURSTS = GenerateOptions(
    jobs=0, days=14, procs=256, load=0.5, bursts=4, burst_factor=50, burst_hours=3, burst_small_percent=50
)


class Submitted(NamedTuple):
    arrival: Arrival
    critical: bool
    small: bool
    spared: bool  # of no kind that a surge may close: neither opportunistic nor wide


class PatientInbox(TraceInbox):
    """Whoever is refused submits it again in a while, until nobody submits anything new."""

    def __init__(self, arrivals: Sequence[Arrival], *, saves: bool = False) -> None:
        super().__init__(iter(arrivals), saves=saves)
        self.last_ms = arrivals[-1].at_ms
        self.runs = {arrival.submit.job: arrival.run_ms for arrival in arrivals}
        self.again: list[tuple[int, int, Submit]] = []  # a heap: (when, job, what)
        self.now = 0

    def next_at(self) -> int | None:
        coming = super().next_at()
        if self.again and (coming is None or self.again[0][0] < coming):
            return self.again[0][0]
        return coming

    def take(self, now: int, at_most: int) -> Sequence[Command]:
        self.now = now
        commands = list(super().take(now, at_most))
        while self.again and self.again[0][0] <= now and len(commands) < at_most:
            _, job, command = heappop(self.again)
            self.run_ms[job] = self.runs[job]
            commands.append(command)
        return commands

    def answer(self, command: Command, result: tuple[Event, ...] | Refused) -> None:
        if isinstance(result, Refused) and isinstance(command, Submit) and self.now + AGAIN_MS <= self.last_ms:
            heappush(self.again, (self.now + AGAIN_MS, command.job, command))
        else:
            super().answer(command, result)


def modes(policy: PolicySpec) -> tuple[PolicySpec, PolicySpec, PolicySpec]:
    """The policy, and as it is in a calm and in a surge."""
    shut = {name: replace(rule, tides=()) for name, rule in policy.admission.items()}
    open_rules = {name: rule for name, rule in policy.admission.items() if not rule.tides}
    surge = in_tides(policy).get(Tide.SURGE, policy)
    return (
        policy,
        replace(policy, name="always calm", tide=None, admission=open_rules),
        replace(surge, name="always surge", tide=None, admission=shut),
    )


def workload(seed: int, options: GenerateOptions = BURSTS) -> list[Submitted]:
    """Classes by chance, from the seed: bursts, like days, are of all kinds."""
    random = Random(f"{seed}/classes")
    found = []
    for row in generate(replace(options, seed=seed)):
        drawn = random.random()
        klass = "critical" if drawn < CRITICAL else "opportunistic" if drawn < CRITICAL + OPPORTUNISTIC else "normal"
        spec = JobSpec(
            user=str(row.user), klass=klass, shape=Shape(amounts(cpus=1000), row.procs, stack=True),
            limit_ms=row.requested_s * 1000,
        )  # fmt: skip
        found.append(
            Submitted(
                Arrival(row.submit_s * 1000, Submit(spec, job=row.job), max(1, row.run_s) * 1000, row.job),
                klass == "critical",
                row.procs <= SMALL_PROCS_MAX and row.run_s <= SMALL_RUN_S_MAX,
                klass != "opportunistic" and 2 * row.procs < options.procs,
            )
        )
    return found


def trial(policy: PolicySpec, seed: int, engine: Callable[..., Engine], journal: Any) -> Iterator[dict[str, Any]]:
    """Of each mode: mean waits in seconds."""
    jobs = workload(seed)
    wiring = Wiring(engine=engine, journal=lambda listeners: journal(*listeners))
    nodes = (processors("n", BURSTS.procs),)
    for mode in modes(policy):
        waits: dict[int, int] = {}
        by_job = {one.arrival.submit.job: one for one in jobs}

        def ended(row: Row, waits: dict[int, int] = waits, by_job: dict[int, Submitted] = by_job) -> None:
            arrival = by_job[row[0] >> ARRAY_BITS].arrival
            waits[arrival.submit.job] = max(0, row[3] - arrival.at_ms - arrival.run_ms)

        arrivals = [one.arrival for one in jobs]
        inbox = PatientInbox(arrivals, saves=True)
        outcome = replay(arrivals, len(jobs), nodes, mode, wiring, on_end=ended, preempt_cost_ms=RESUME_MS, inbox=inbox)
        for job, _ in inbox.refused:
            waits[job] = inbox.last_ms - by_job[job].arrival.at_ms
        yield {
            "mode": mode.name if mode.tide is None else "tide",
            "critical_wait_mean_s": _mean(waits, [one for one in jobs if one.critical]),
            "small_wait_mean_s": _mean(waits, [one for one in jobs if one.small]),
            "critical_spared_wait_mean_s": _mean(waits, [one for one in jobs if one.critical and one.spared]),
            "small_spared_wait_mean_s": _mean(waits, [one for one in jobs if one.small and one.spared]),
            "wait_mean_s": _mean(waits, jobs),
            "never_let_in": len(inbox.refused),
            "utilization": outcome.figures["utilization"],
        }


def _mean(waits: dict[int, int], some: Sequence[Submitted]) -> float:
    found = [waits[one.arrival.submit.job] for one in some if one.arrival.submit.job in waits]
    return sum(found) / len(found) / 1000 if found else 0.0
