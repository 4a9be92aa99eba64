"""`tide replay`, wired: the trace, the machine, the virtual engine, and what is kept."""

import gc
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tidegate.engines.virtual import VirtualEngine
from tidegate.journals.memory import Tee
from tidegate.journals.sqlite import SqliteJournal
from tidegate.lab.generate import GenerateError, GenerateOptions, write_swf
from tidegate.lab.measure import Row, ScheduleFile
from tidegate.lab.replay import BrokenStateError, Machine, News, Outcome, Wiring, first_arrivals, replay
from tidegate.lab.tides import TideLog
from tidegate.lab.traces import read_trace
from tidegate.lab.traces.journal import workload_from_events
from tidegate.lab.workload import Filter, Runtimes, TraceError, TraceOptions, Workload
from tidegate.loop.loop import Cadence
from tidegate.loop.recovery import recover
from tidegate.model.nodes import Node
from tidegate.model.policy import PolicySpec
from tidegate.ports import JournalError
from tidegate.wire.policy_file import PolicyError, read_policy

__all__ = [
    "BrokenStateError",
    "Cadence", "Filter", "GenerateError", "GenerateOptions", "JournalError", "Machine", "PolicyError", "ReplayWish",
    "Replayed", "Runtimes", "TraceError", "TraceOptions", "prepare", "read_policy", "run_replays", "write_swf",
]  # fmt: skip

SQLITE = b"SQLite format 3\0"
GC_EVERY = 200_000
"""The values of the model hold no cycles, so the collector has next to nothing to find."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayWish:
    """What `tide replay` was asked for."""

    trace: Path
    policies: Sequence[PolicySpec]
    machine: Machine = field(default_factory=Machine)
    options: TraceOptions = field(default_factory=TraceOptions)
    cadence: Cadence = Cadence.BATCHED
    limit: int = 0
    schedule: Path | None = None
    journal: Path | None = None
    checked: bool = False
    preempt_cost_ms: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    wish: ReplayWish
    workload: Workload
    nodes: tuple[Node, ...]

    @property
    def jobs(self) -> int:
        return first_arrivals(self.workload, self.wish.limit)[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    policy: PolicySpec
    outcome: Outcome
    figures: dict[str, Any]


def prepare(wish: ReplayWish) -> Prepared:
    """Reads the trace and lays out the machine. Raises TraceError or JournalError, which say what to do."""
    if is_journal(wish.trace):
        journal = SqliteJournal(wish.trace, readonly=True)
        pruned = journal.pruned  # then the nodes are told by a snapshot alone
        nodes = recover(journal).nodes.values() if pruned else ()
        workload = workload_from_events(journal.read(pruned), wish.options, nodes)
        journal.close()
    else:
        workload = read_trace(wish.trace, options=wish.options)
    return Prepared(wish=wish, workload=workload, nodes=wish.machine.lay_out(workload))


def is_journal(path: Path) -> bool:
    return begins_with(path, SQLITE)


def begins_with(path: Path, mark: bytes) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(mark)) == mark
    except OSError:
        return False  # whoever opens it says what is wrong with it


def spare(path: Path, mark: bytes, kind: str) -> None:
    """Only what is empty or was written by an earlier run is written over."""
    if path.is_file() and path.stat().st_size and not begins_with(path, mark):
        raise FileExistsError(f"{path} is there and is not {kind}: give another name, or remove it first")


def run_replays(
    prepared: Prepared,
    news: Callable[[PolicySpec], News | None] | None = None,
    on_end: Callable[[PolicySpec, Row], None] | None = None,
) -> Iterator[Replayed]:
    """One replay a policy, each with a world of its own."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_EVERY, 50, 100)
    several = len(prepared.wish.policies) > 1
    for policy in prepared.wish.policies:
        told = None if on_end is None else partial(on_end, policy)
        yield _run_one(prepared, policy, news(policy) if news else None, told, several=several)


def _run_one(
    prepared: Prepared,
    policy: PolicySpec,
    news: News | None,
    on_end: Callable[[Row], None] | None,
    *,
    several: bool,
) -> Replayed:
    wish, workload = prepared.wish, prepared.workload
    arrivals, total = first_arrivals(workload, wish.limit)
    with ExitStack() as stack:
        if wish.schedule is not None:
            path = named_for(wish.schedule, policy, several=several)
            spare(path, ScheduleFile.HEADER.encode(), "a schedule")
            schedule = ScheduleFile(path, workload.labels_by_job())
            stack.callback(schedule.close)
            on_end = both(on_end, schedule.write)
        kept: list[Any] = []
        if wish.journal is not None:
            path = named_for(wish.journal, policy, several=several)
            spare(path, SQLITE, "a journal")
            journal = SqliteJournal(path, grouped=True, fresh=True)
            stack.callback(journal.close)
            kept.append(journal)
        tides = TideLog() if policy.tide is not None else None
        if tides is not None:
            kept.append(tides)
        outcome = replay(
            arrivals,
            total,
            prepared.nodes,
            policy,
            Wiring(engine=VirtualEngine, journal=lambda listeners: Tee(*listeners, *kept)),
            cadence=wish.cadence,
            on_end=on_end,
            news=news,
            checked=wish.checked,
            preempt_cost_ms=wish.preempt_cost_ms,
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Replayed(
        policy=policy,
        outcome=outcome,
        figures={"policy": policy.name, **outcome.figures, "peak_rss_mb": peak, "refused": len(outcome.refused),
                 "never_ended": outcome.stuck, "cadence": str(wish.cadence),
                 **({} if tides is None else {"tides": tides.figures()})},
    )  # fmt: skip


def both(first: Callable[[Row], None] | None, second: Callable[[Row], None]) -> Callable[[Row], None]:
    if first is None:
        return second

    def tell(row: Row) -> None:
        first(row)
        second(row)

    return tell


def named_for(path: Path, policy: PolicySpec, *, several: bool) -> Path:
    """One file a policy: with several policies the name of each goes before the ending."""
    return path.with_name(f"{path.stem}.{policy.name}{path.suffix}") if several else path
