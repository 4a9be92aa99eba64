"""`tide demo`: a real burst on this machine, on a server of its own, watched live; then who waited, and why."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from tidegate.cli.client import Client, Place
from tidegate.cli.failure import FailureError
from tidegate.cli.quick_json import dumps, loads
from tidegate.cli.table import duration, show_table
from tidegate.wire import states

NODES, CPUS = 2, 4
TASKS = 100
READY_S = 60.0
LOOK_S = 0.2
TOGETHER_S = 55.0
"""The demo ends by then, whatever happens."""
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
    home = tempfile.mkdtemp(prefix="tide-demo-")
    server = start(home)
    client = Client(Place(home=home))
    groups: list[Group] = []
    try:
        with contextlib.closing(client):
            wait_ready(client, server)
            print(f"A server of its own in {home}: {NODES} declared nodes of {CPUS} cpus, policy `{POLICY}`.\n")
            play(client, groups)
            tell(client, groups)
    except KeyboardInterrupt:
        print("\nInterrupted: cancelling what runs.")
        return 130
    else:
        return 0
    finally:
        end(client, server)
        shutil.rmtree(home, ignore_errors=True)


# -- the server ----------------------------------------------------------------------------------------------


def start(home: str) -> "subprocess.Popen[bytes]":
    command = [
        sys.executable, "-P", "-m", "tidegate.cli.main", "up", "--home", home, "--nodes", str(NODES),
        "--cpus", str(CPUS), "--memory", "1G", "--policy", POLICY,
    ]  # fmt: skip
    with Path(home, "demo.log").open("wb") as log:
        # In a group of its own: Ctrl-C is for the demo, which then ends the server in good order.
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def wait_ready(client: Client, server: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + READY_S
    while True:
        try:
            ask(client, "GET", "/v1/status")
        except FailureError:
            if server.poll() is not None or time.monotonic() > until:
                log = Path(client.place.home, "demo.log").read_text(errors="replace").strip()
                raise FailureError(f"the server of the demo did not start: {log or 'it said nothing'}") from None
            time.sleep(0.05)
        else:
            return


def end(client: Client, server: "subprocess.Popen[bytes]") -> None:
    """Nothing is left running: jobs are cancelled, seen to end, and then the server goes, and its keeper with it."""
    with contextlib.suppress(FailureError, KeyboardInterrupt):
        rows = ask(client, "GET", "/v1/jobs")["jobs"]
        jobs = sorted({row["id"] for row in rows})
        for job in jobs:
            with contextlib.suppress(FailureError):
                ask(client, "POST", f"/v1/jobs/{job}/cancel", {})
        until = time.monotonic() + 10
        while jobs and ask(client, "GET", "/v1/jobs")["jobs"] and time.monotonic() < until:
            time.sleep(0.05)
        ask(client, "POST", "/v1/stop", {"keeper": True})
    client.close()
    if server.poll() is None:
        server.terminate()
    server.wait(30)


def ask(client: Client, method: str, path: str, body: object = None) -> Any:
    answer = client.exchange(method, path, None if body is None else dumps(body).encode())
    octets = loads(answer.read())
    if answer.status >= 300:
        raise FailureError(f"{octets['error']['what']}; {octets['error']['cure']}")
    return octets


# -- the burst -----------------------------------------------------------------------------------------------


def play(client: Client, groups: list[Group]) -> None:
    """Background work fills the machine; a burst comes; a critical job arrives in its middle."""
    began = time.monotonic()
    env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}

    def submit(title: str, part: str, seconds: float, **fields: object) -> Group:
        group = Group(title, part)
        body = {"command": ["sleep", f"{seconds}"], "time_ms": 60_000, "env": env, "cwd": "/", "name": part, **fields}
        answer = ask(client, "POST", "/v1/jobs", body)
        group.job, group.tasks = answer["id"], answer.get("tasks", 1)
        groups.append(group)
        return group

    submit("background work, running before", "background", 5, array="0-11", **{"class": "background"})
    prepare = submit("the job that prepares", "prepare", 1.5)
    submit("100 tasks that depend on it", "tasks", 0.6, array=f"0-{TASKS - 1}", after=[{"job": prepare.job}])
    critical: Group | None = None
    with watching(groups) as show:
        while time.monotonic() - began < TOGETHER_S:
            rows = rows_of(client)
            show(rows)
            tasks_done = sum(row["state"] == states.COMPLETED for row in rows if row["name"] == "tasks")
            if critical is None and tasks_done >= TASKS // 3:
                critical = submit("a critical job, in the middle", "critical", 1, cpus=2, **{"class": "critical"})
            if critical is not None and not any(row["end_ms"] is None for row in rows):
                return
            time.sleep(LOOK_S)


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
    rows = [row for row in rows_of(client) if row["start_ms"] is not None]
    by_part = {group.part: [row for row in rows if row["id"] == group.job] for group in groups}
    lines = []
    for group in groups:
        waits = [(row["start_ms"] - row["submit_ms"]) / 1000 for row in by_part[group.part]]
        if waits:
            lines.append([group.title, str(len(waits)), seconds(mean(waits)), seconds(max(waits)), why(group, by_part)])
    print()
    show_table("Who waited, and why", ["", "jobs", "mean", "longest", "because"], lines, left=(0, 4))
    total = (max(row["end_ms"] for row in rows) - min(row["submit_ms"] for row in rows)) / 1000
    ran = sum(row["state"] == states.COMPLETED for row in rows)
    print(f"{ran} real processes in {duration(total)}. Every start, end and exit code was on disk before it counted.")
    print("\nNext: `tide run -- hostname`, `tide submit --help`; `tide demo --replay` shows what a policy is worth.")


def seconds(value: float) -> str:
    return f"{value:.1f} s"


def why(group: Group, by_part: dict[str, list[Row]]) -> str:
    """From the times themselves: who had what this one waited for."""
    mine = by_part[group.part]
    match group.part:
        case "background":
            late = [row for row in mine if row["start_ms"] - row["submit_ms"] > 1000]
            return f"{len(late)} gave way: all else goes before background" if late else "the machine was free"
        case "prepare":
            return "background work held every cpu until the first ended"
        case "tasks":
            ready = max(row["end_ms"] for row in by_part["prepare"])
            first = min(row["submit_ms"] for row in mine)
            return f"{(ready - first) / 1000:.1f} s for the preparing job, then for room"
        case _:
            (row,) = mine
            passed = sum(
                other["submit_ms"] < row["submit_ms"] and other["start_ms"] > row["start_ms"]
                for others in by_part.values()
                for other in others
            )
            return f"for two free cpus; it passed {passed} that waited longer"
