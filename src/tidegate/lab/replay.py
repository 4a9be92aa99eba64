"""Replay: a trace through the live loop, with a clock that jumps and an engine that only waits.

The loop, the kernel and the fold are the ones that run live. What is here hands in the trace, sets up the
machine, and measures what comes out.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import Any

from tidegate.core.accept import accept
from tidegate.lab.measure import Collector, DecisionDigest, Row
from tidegate.lab.ports import TraceInbox, VirtualClock
from tidegate.lab.workload import Arrival, TraceError, Workload
from tidegate.loop.loop import Cadence, Loop
from tidegate.model.commands import ChangePolicy, Command, Refused, SetNode
from tidegate.model.nodes import Node
from tidegate.model.policy import PolicySpec
from tidegate.ports import Engine, Journal
from tidegate.world.check import check
from tidegate.world.world import World

TURNS_BETWEEN_NEWS = 4096
TURNS_BETWEEN_CHECKS = 64
PROCESSORS_POOL = "default"


class BrokenStateError(Exception):
    """What is kept for speed does not follow from the records: a bug of ours, never of the trace."""


News = Callable[[int, int], None]
"""(jobs handed in, jobs in all): progress."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Where the jobs run. Nothing set: as the trace says."""

    capacity: int = 0  # processors, as one pool without nodes of its own
    nodes: int = 0
    cpus_per_node: int = 0

    def lay_out(self, workload: Workload) -> tuple[Node, ...]:
        if self.nodes and self.cpus_per_node:
            width = len(str(self.nodes - 1))
            return tuple(processors(f"n{row:0{width}}", self.cpus_per_node) for row in range(self.nodes))
        if self.capacity:
            return (processors(PROCESSORS_POOL, self.capacity),)
        if workload.nodes:
            return workload.nodes
        if workload.max_procs:
            return (processors(PROCESSORS_POOL, workload.max_procs),)
        raise TraceError(
            "the trace does not say how large its machine was; "
            "give --capacity N, or --nodes N --cpus-per-node K, or --pools FILE"
        )


def processors(name: str, cpus: int) -> Node:
    return Node(name, PROCESSORS_POOL, (("cpus", cpus * 1000),))


@dataclass(frozen=True, kw_only=True, slots=True)
class Wiring:
    """The ports that the composition root chooses: the engine, and who else gets the events."""

    engine: Callable[[Callable[[int, int], int], int], Engine]  # run times, and what going on takes
    journal: Callable[[Sequence[Any]], Journal]  # the listeners of this replay -> a journal that feeds them


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    figures: dict[str, Any]
    refused: list[tuple[int, Refused]]
    stuck: int  # jobs that never ended: nothing could ever start them
    collector: Collector


def replay(
    arrivals: Iterable[Arrival],
    total: int,
    nodes: Sequence[Node],
    policy: PolicySpec,
    wiring: Wiring,
    *,
    cadence: Cadence = Cadence.BATCHED,
    on_end: Callable[[Row], None] | None = None,
    news: News | None = None,
    checked: bool = False,
    preempt_cost_ms: int | None = None,
    inbox: TraceInbox | None = None,
) -> Outcome:
    """`checked`: now and then the whole state is compared with its records, at many times the cost.

    `preempt_cost_ms`: every job can save itself and go on later, for so much more of its time. None: no job can.
    `inbox`: hands the arrivals in, where they do not just come.
    """
    inbox = inbox or TraceInbox(iter(arrivals), saves=preempt_cost_ms is not None)
    resource, capacity = measured(nodes)
    resume_ms = preempt_cost_ms or 0
    collector, digest = Collector(resource, on_end, resume_ms), DecisionDigest()
    loop = Loop(
        World(),
        VirtualClock(min(0, inbox.next_at() or 0)),
        wiring.journal((digest, collector)),
        wiring.engine(inbox.run_time, resume_ms),
        inbox,
        cadence,
    )
    began = perf_counter()
    set_up(loop, nodes, policy)
    turns = 0
    while loop.turn():
        turns += 1
        if checked and turns % TURNS_BETWEEN_CHECKS == 0:
            must_be_sound(loop.world)
        if news is not None and turns % TURNS_BETWEEN_NEWS == 0:
            news(inbox.taken, total)
    loop.journal.close()
    wall = perf_counter() - began
    if news is not None:
        news(inbox.taken, total)
    figures = collector.figures(capacity)
    figures["cycles"] = collector.cycles
    figures["digest"] = digest.hex()
    figures["wall_s"] = wall
    figures["jobs_per_s"] = inbox.taken / wall if wall else 0.0
    return Outcome(figures=figures, refused=inbox.refused, stuck=len(loop.world.jobs), collector=collector)


def must_be_sound(world: World) -> None:
    wrong = check(world)
    if wrong:
        raise BrokenStateError(f"at event {world.seq}: {'; '.join(wrong[:3])}; please report it with the trace")


def set_up(loop: Loop, nodes: Sequence[Node], policy: PolicySpec) -> None:
    """The machine and the policy are events too, so that the journal of a replay is complete."""
    now = loop.clock.now()
    commands: list[Command] = [ChangePolicy(policy), *map(SetNode, nodes)]
    for command in commands:
        answer = accept(loop.world, command, now)
        if isinstance(answer, Refused):
            raise TraceError(f"{answer.what}; {answer.cure}")
        loop.commit(answer)


def measured(nodes: Sequence[Node]) -> tuple[str, int]:
    """What utilisation is measured in, and how much of it there is: GPUs where there are any, else processors."""
    totals: dict[str, int] = {}
    for node in nodes:
        for name, amount in node.capacity:
            totals[name] = totals.get(name, 0) + amount
    resource = "gpus" if totals.get("gpus") else "cpus"
    return resource, totals.get(resource, 0)


def first_arrivals(workload: Workload, limit: int) -> tuple[Iterable[Arrival], int]:
    if not limit:
        return workload, len(workload)
    return islice(workload, limit), min(limit, len(workload))
