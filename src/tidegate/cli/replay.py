"""`tide replay`: figures of each policy side by side."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.cli.failure import FailureError
from tidegate.cli.options import Options
from tidegate.cli.table import duration, show_table

if TYPE_CHECKING:
    from tidegate.app.replay import Prepared, Replayed, ReplayWish

DEFAULT_POLICY = "tide"


def replay(options: Options) -> int:
    from tidegate.app.replay import BrokenStateError, JournalError, PolicyError, TraceError, prepare

    try:
        prepared = prepare(wish_of(options))
        tell_problems(prepared)
        replayed = run(prepared)
    except (BrokenStateError, JournalError, PolicyError, TraceError, OSError) as error:
        raise FailureError(str(error)) from error
    if options.json:
        show_json(prepared, replayed)
    else:
        show(prepared, replayed, every_turn=options.tides)
    return 0


def wish_of(options: Options) -> "ReplayWish":
    from tidegate.app.replay import Cadence, Filter, Machine, ReplayWish, Runtimes, TraceOptions, read_policy

    if bool(options.nodes) != bool(options.cpus_per_node):
        raise FailureError("--nodes and --cpus-per-node go together: give both, or --capacity")
    if options.nodes and options.capacity:
        raise FailureError("--capacity and --nodes are two ways to say the machine: give one")
    names = options.policy or [DEFAULT_POLICY]
    policies = [read_policy(name) for name in names]
    taken = [policy.name for policy in policies]
    if len(set(taken)) < len(taken):
        raise FailureError(f"two of the policies have the same name ({', '.join(taken)}): change `name:` in one file")
    return ReplayWish(
        trace=Path(options.words[0]),
        policies=policies,
        machine=Machine(
            capacity=options.capacity or 0, nodes=options.nodes or 0, cpus_per_node=options.cpus_per_node or 0
        ),
        options=TraceOptions(
            filter=Filter(options.filter),
            runtimes=Runtimes(options.runtimes),
            capacity=options.capacity or (options.nodes or 0) * (options.cpus_per_node or 0),
            pools_file=Path(options.pools) if options.pools else None,
            nodes_file=Path(options.nodes_file) if options.nodes_file else None,
            date_from=options.date_from,
            date_to=options.date_to,
        ),
        cadence=Cadence(options.cadence),
        limit=options.limit,
        schedule=Path(options.schedule) if options.schedule else None,
        journal=Path(options.journal) if options.journal else None,
        checked=options.check,
        preempt_cost_ms=options.preempt_cost,
    )


def tell_problems(prepared: "Prepared") -> None:
    for line in prepared.workload.problems.report():
        print(f"tide: {prepared.wish.trace.name}: {line}", file=sys.stderr)
    if not len(prepared.workload):
        raise FailureError(f"{prepared.wish.trace} has no job that can be replayed")


def run(prepared: "Prepared") -> "list[Replayed]":
    from tidegate.app.replay import run_replays

    if not sys.stderr.isatty():
        return list(run_replays(prepared))
    with progress() as news:
        return list(run_replays(prepared, lambda policy: news(policy.name)))


@contextmanager
def progress() -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:

        def news(name: str) -> Any:
            bar = bars.add_task(name, total=None)
            return lambda done, total: bars.update(bar, completed=done, total=total)

        yield news


def show_json(prepared: "Prepared", replayed: "list[Replayed]") -> None:
    import json

    problems = prepared.workload.problems
    counts = {"errors": dict(problems.errors), "left_out": dict(problems.left_out), "notes": dict(problems.notes)}
    objects = [{**one.figures, "trace_problems": counts} for one in replayed]
    json.dump(objects[0] if len(objects) == 1 else objects, sys.stdout, indent=2)
    print()


FIGURES = (
    ("mean wait", "wait_mean_s"), ("median wait", "wait_p50_s"), ("95 % wait less than", "wait_p95_s"),
    ("longest wait", "wait_max_s"), ("mean submit to end", "completion_mean_s"), ("makespan", "makespan_s"),
)  # fmt: skip


def show(prepared: "Prepared", replayed: "list[Replayed]", *, every_turn: bool) -> None:
    figures = [one.figures for one in replayed]
    rows = [[title, *(duration(f[key]) for f in figures)] for title, key in FIGURES]
    rows.append(["mean bounded slowdown", *(f"{f['bsld_mean']:.2f}" for f in figures)])
    rows.append(["largest bounded slowdown", *(f"{f['bsld_max']:.1f}" for f in figures)])
    rows.append(["utilisation", *(f"{f['utilization']:.1%}" for f in figures)])
    rows.append(["started ahead of their turn", *(f"{f['backfilled']:,}" for f in figures)])
    if any(f["preemptions"] for f in figures):
        rows.append(["interrupted to make room", *(f"{f['preemptions']:,}" for f in figures)])
        rows.append(["most of them in a minute", *(most_in_a_minute(f) for f in figures)])
        rows.append(["hours of work lost by it", *(f"{f['lost_hours']:,.0f}" for f in figures)])
    rows.append(["jobs replayed a second", *(f"{f['jobs_per_s']:,.0f}" for f in figures)])
    rows.append(["decision digest", *(f["digest"][:12] for f in figures)])
    machine = f"{len(prepared.nodes):,} node{'s' if len(prepared.nodes) > 1 else ''}"
    show_table(
        f"{prepared.wish.trace.name}: {figures[0]['jobs']:,} jobs on {machine}",
        ["", *(f["policy"] for f in figures)],
        rows,
    )
    tell_leftovers(replayed)
    for one in figures:
        if "tides" in one:
            tell_tides(one["policy"], one["tides"], every_turn=every_turn)


def tell_tides(policy: str, tides: dict[str, Any], *, every_turn: bool) -> None:
    """How long each tide lasted and how those fared who started meanwhile; when each turned, and why."""
    rows = [
        [state, duration(said["hours"] * 3600), f"{said['tasks_came']:,}", f"{said['tasks_started']:,}",
         duration(said["wait_mean_s"])]
        for state, said in tides["states"].items()
    ]  # fmt: skip
    show_table(
        f"{policy}: {tides['turned']:,} turns of the tide", ["tide", "lasted", "came", "started", "waited"], rows
    )
    if every_turn:
        turns = [
            [duration(turn["at_s"]), turn["pool"], f"{turn['from']} → {turn['to']}", turn["why"]]
            for turn in tides["turns"]
        ]
        show_table("since the first second of the trace", ["when", "pool", "tide", "why"], turns, left=(1, 2, 3))


def most_in_a_minute(figures: dict[str, Any]) -> str:
    percent = figures["preemptions_minute_percent"]
    return f"{figures['preemptions_minute_max']:,}" + (f", {percent} % of what ran" if percent else "")


def tell_leftovers(replayed: "list[Replayed]") -> None:
    for one in replayed:
        refused = one.outcome.refused
        if refused:
            job, why = refused[0]
            print(f"{one.policy.name}: {len(refused):,} jobs refused; the first, job {job}: {why.what}; {why.cure}")
        if one.outcome.stuck:
            print(f"{one.policy.name}: {one.outcome.stuck:,} jobs never ended: nothing that happens would start them")
