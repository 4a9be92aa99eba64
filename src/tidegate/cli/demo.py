"""`tide demo`: a real burst on this machine, on a server of its own, watched live; then who waited, and why."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

from tidegate.cli.client import Client
from tidegate.cli.own_server import ask, on_own_server, until_interrupted
from tidegate.cli.screen import table
from tidegate.cli.table import duration
from tidegate.wire import states

NODES, CPUS = 2, 4
TASKS, BACKGROUND = 100, 24
LOOK_S = 0.2
TOGETHER_S = 45.0
"""What is not done by then is cancelled."""
POLICY = "priority"
Row = dict[str, Any]


class Group:
    """Jobs that play one part."""

    def __init__(self, title: str, part: str) -> None:
        self.title = title
        self.part = part
        self.job = 0
        self.tasks = 0


def demo() -> int:
    return until_interrupted(lambda: on_own_server(POLICY, NODES, CPUS, show))


def show(client: Client) -> int:
    print(f"A server of its own in {client.place.home}: {NODES} declared nodes of {CPUS} cpus, policy `{POLICY}`.\n")
    groups: list[Group] = []
    in_time = play(client, groups, time.monotonic() + TOGETHER_S)
    tell(client, groups)
    if in_time:
        return 0
    print(f"\nThis machine was too busy to end it in {TOGETHER_S:.0f} s; what was left is cancelled.", file=sys.stderr)
    return 1


# -- the burst -----------------------------------------------------------------------------------------------


def play(client: Client, groups: list[Group], until: float) -> bool:
    """Background work fills the machine; a burst comes; a critical job arrives in its middle. Did all end in time?"""

    def submit(title: str, part: str, seconds: float, **fields: object) -> Group:
        groups.append(submitted(client, title, part, ["sleep", f"{seconds}"], **fields))
        return groups[-1]

    submit("background work", "background", 3, array=f"0-{BACKGROUND - 1}", **{"class": "background"})
    prepare = submit("a job that prepares", "prepare", 1.5)
    submit("tasks that depend on it", "tasks", 0.6, array=f"0-{TASKS - 1}", after=[{"job": prepare.job}])
    critical: Group | None = None
    with watching(groups) as look:
        while time.monotonic() < until:
            rows = rows_of(client)
            look(rows)
            tasks_done = sum(row["state"] == states.COMPLETED for row in rows if row["name"] == "tasks")
            if critical is None and tasks_done >= TASKS // 3:
                critical = submit("a critical job", "critical", 1, cpus=2, **{"class": "critical"})
            if critical is not None and not any(row["end_ms"] is None for row in rows):
                return True
            time.sleep(LOOK_S)
    return False


def submitted(client: Client, title: str, part: str, command: list[str], **fields: object) -> Group:
    group = Group(title, part)
    env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
    body = {"command": command, "time_ms": 60_000, "env": env, "cwd": "/", "name": part, **fields}
    answer = ask(client, "POST", "/v1/jobs", body)
    group.job, group.tasks = answer["id"], answer.get("tasks", 1)
    return group


def rows_of(client: Client) -> list[Row]:
    rows: list[Row] = ask(client, "GET", "/v1/jobs?all=1")["jobs"]
    return rows


@contextlib.contextmanager
def watching(groups: Sequence[Group]) -> Iterator[Any]:
    """Bars on a terminal; elsewhere a line now and then."""
    if not sys.stdout.isatty():
        yield quiet(groups)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description:<34}"),
        BarColumn(24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[now]}"),
    )
    with Progress(*columns) as bars:
        known: dict[int, Any] = {}

        def show(rows: Sequence[Row]) -> None:
            for group in groups:
                if group.job not in known:
                    known[group.job] = bars.add_task(group.title, total=group.tasks, now="")
                done, running = counts(rows, group)
                words = f"{running} running" if running else ("" if done == group.tasks else "waiting")
                bars.update(known[group.job], completed=done, now=words)

        yield show


def quiet(groups: Sequence[Group]) -> Any:
    last = 0.0

    def show(rows: Sequence[Row]) -> None:
        nonlocal last
        if time.monotonic() - last >= 3:
            last = time.monotonic()
            parts = []
            for group in groups:
                done, running = counts(rows, group)
                parts.append(f"{group.part} {done}/{group.tasks}" + (f" ({running} running)" if running else ""))
            print("  " + ", ".join(parts), flush=True)

    return show


def counts(rows: Sequence[Row], group: Group) -> tuple[int, int]:
    mine = [row for row in rows if row["id"] == group.job]
    done = sum(row["end_ms"] is not None for row in mine)
    return done, sum(row["start_ms"] is not None and row["end_ms"] is None for row in mine)


# -- what it meant -------------------------------------------------------------------------------------------


def tell(client: Client, groups: Sequence[Group]) -> None:
    """The reason has a line of its own: so nothing is cut off on a narrow screen."""
    rows = [row for row in rows_of(client) if row["start_ms"] is not None and row["end_ms"] is not None]
    lines, reasons = [], []
    for group in groups:
        mine = [row for row in rows if row["id"] == group.job]
        if mine:
            waits = [waited(row) for row in mine]
            lines.append((group.title, str(len(mine)), seconds(mean(waits)), seconds(max(waits))))
            reasons.append(why(group.part, mine, rows))
    print("\nWho waited how long, and why\n")
    heads, *told = table(("who", "jobs", "mean", "longest"), lines, right="jobs mean longest")
    print(f"  {heads}")
    for line, reason in zip(told, reasons, strict=True):
        print(f"  {line}\n      {reason}")
    ran = [row for row in rows if row["state"] == states.COMPLETED]
    took = max((row["end_ms"] for row in ran), default=0) - min((row["submit_ms"] for row in ran), default=0)
    print(f"\n{len(ran)} real processes in {duration(took / 1000)}.")
    print("Every start, end and exit code was on disk before it counted.")
    print("\nNext: `tide run -- hostname`, `tide submit --help`;")
    print("`tide demo --replay` shows what a policy is worth.")


def waited(row: Row) -> float:
    return float(row["start_ms"] - row["submit_ms"]) / 1000


def seconds(value: float) -> str:
    return f"{value:.1f} s"


def why(part: str, mine: Sequence[Row], rows: Sequence[Row]) -> str:
    """From the times themselves: who had what this one waited for."""
    match part:
        case "background":
            behind = [row for row in mine if passing(row, rows)]
            most = max((passing(row, rows) for row in behind), default=0)
            return f"{len(behind)} of them were passed by up to {most} that came later: all else goes first"
        case "prepare":
            return "for the first cpu that background work gave back: nothing is cut short"
        case "tasks":
            first = min(row["submit_ms"] for row in mine)
            ready = max((row["end_ms"] for row in rows if row["name"] == "prepare"), default=first)
            return f"{seconds((ready - first) / 1000)} for the job that prepares, then for one of {NODES * CPUS} cpus"
        case _:
            (row,) = mine
            passed = sum(other["submit_ms"] < row["submit_ms"] and passes(row, other) for other in rows)
            return f"for two free cpus at once; it passed {passed} that had waited longer"


def passing(row: Row, rows: Sequence[Row]) -> int:
    """How many came later and started before it."""
    return sum(other["submit_ms"] > row["submit_ms"] and passes(other, row) for other in rows)


def passes(first: Row, then: Row) -> bool:
    return bool(first["start_ms"] < then["start_ms"])
