"""`tide show`: everything about one job, or one task of an array."""

import time

from tidegate.cli.ids import of_task, shown, tasks_of
from tidegate.cli.options import Command, Options
from tidegate.cli.screen import (
    colours,
    facts,
    json_rows,
    json_value,
    kib,
    memory,
    moment,
    number,
    paint,
    span,
    table,
    width,
)
from tidegate.cli.server import KNOWN, TALKING, Server
from tidegate.wire.look import plain
from tidegate.wire.states import ENDING, RUNNING, STARTING, SUSPENDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TASKS_SHOWN = 40
LIVE = (STARTING, RUNNING, SUSPENDED, ENDING)


def show(options: Options) -> int:
    tasks = tasks_of("show", options.words)
    server = Server(options, KNOWN)
    found = [server.call("GET", f"/v1/jobs/{job}", of_task(index)) for job, index in tasks]
    if options.json:
        if len(found) == 1:
            json_value(found[0])
        else:
            json_rows(found)
        return 0
    for at, job in enumerate(found):
        print("\n".join([""] * bool(at) + sheet(job)))
    return 0


def sheet(job: "dict[str, Any]") -> list[str]:
    """The facts, then what was tried, then the tasks of an array."""
    title = f"job {shown(job['id'], job.get('index'))}"
    state = str(job["state"])
    lines = [f"{title}  {paint(state, state, coloured=colours())}  {plain(str(job['name']))}"]
    pairs = [*what(job), *when(job), *saving(job), *where(job), *used(job)]
    lines += [f"  {line}" for line in facts(pairs)]
    if len(job.get("history", ())) > 1 and not job.get("array"):
        lines += ["", *attempts(job["history"])]
    if job.get("array"):
        lines += ["", *tasks_table(job["array"])]
    return lines


def what(job: "dict[str, Any]") -> list[tuple[str, str]]:
    command = " ".join(map(word, job.get("command", ())))
    after = ", ".join(f"{one['job']}:{one.get('kind', 'ok')}" for one in job.get("after", ()))
    retry = job.get("retry")
    return [
        ("why", str(job.get("reason") or "")),
        ("exit", str(job["exit_code"]) if job.get("exit_code") is not None else ""),
        ("signal", str(job.get("signal") or "")),
        ("script", f"{len(job['script'].splitlines())} lines" if job.get("script") else ""),
        ("command", command),
        ("user", str(job["user"])),
        (
            "queue",
            f"{job['queue']}, class {job.get('class', 'normal')}" + (f", pool {job['pool']}" * bool(job["pool"])),
        ),
        ("asks for", asked(job)),
        ("after", after),
        ("retries", f"{retry.get('times', 0)}" if retry else ""),
        ("tasks", tasks_of_array(job)),
        ("tags", ", ".join(f"{key}={value}" for key, value in job.get("tags", {}).items())),
        ("notify", str(job.get("notify") or "")),
    ]


def tasks_of_array(job: "dict[str, Any]") -> str:
    if not job.get("tasks"):
        return ""
    return f"{job['tasks']:,} not started: {job['indices']}" if job.get("indices") else f"{job['tasks']:,}"


def asked(job: "dict[str, Any]") -> str:
    parts = [f"{number(job.get('cpus', 1))} cpu{'s' * (job.get('cpus', 1) != 1)}"]
    if job.get("memory_mib"):
        parts.append(f"{memory(job['memory_mib'])} memory")
    if job.get("gpus"):
        parts.append(f"{job['gpus']} gpu{'s' * (job['gpus'] != 1)}")
    if job.get("node_count", 1) > 1:
        parts.append(f"on each of {job['node_count']} nodes")
    if job.get("limit_ms"):
        parts.append(f"for at most {span(job['limit_ms'])}")
    return ", ".join(parts)


def when(job: "dict[str, Any]") -> list[tuple[str, str]]:
    start, end = job.get("start_ms"), job.get("end_ms")
    waited = f" (waited {span(start - job['submit_ms'])})" if start else ""
    ran = f" (ran {span(end - start)})" if start and end else ""
    return [
        ("submitted", moment(job["submit_ms"])),
        ("not before", moment(job.get("begin_ms"))),
        ("deadline", moment(job.get("deadline_ms"))),
        ("started", moment(start) + waited),
        ("ended", moment(end) + ran),
        ("attempts", str(job.get("attempts") or "")),
    ]


def saving(job: "dict[str, Any]", now_ms: int | None = None) -> list[tuple[str, str]]:
    """How a job that can save itself stands."""
    state = job.get("checkpoint")
    if state is None:
        return [("checkpoint", "it starts over")] if job.get("starts_over") else []
    now = int(time.time() * 1000) if now_ms is None else now_ms
    size = f", {memory(state['size_mib'])}" if state["size_mib"] else ""
    saved = f"{span(max(0, now - state['saved_ms']))} ago{size}" if state["saved_ms"] else "not yet in this attempt"
    since = state["open_since_ms"]
    return [
        ("saved", saved if job["state"] in LIVE else ""),
        ("asked", f"{state['asked']} times" + (f", not answered for {span(max(0, now - since))}" if since else "")),
        ("safe", f"{span(state['kept_ms'])} of its work" if state["kept_ms"] else ""),
        ("restarts", str(state["restarts"] or "")),
        ("saves to", str(state["where"])),
    ]


def where(job: "dict[str, Any]") -> list[tuple[str, str]]:
    apart = job.get("stderr") if job.get("stderr") != job.get("stdout") else ""
    return [
        ("nodes", ", ".join(job.get("nodes", ()))),
        ("in", str(job.get("cwd") or "")),
        ("output", str(job.get("stdout") or "")),
        ("errors", str(apart or "")),
    ]


def used(job: "dict[str, Any]") -> list[tuple[str, str]]:
    def known(name: str) -> bool:
        return job.get(name) is not None

    read = f"{kib(job['read_kib'])} read" if known("read_kib") else ""
    written = f"{kib(job['written_kib'])} written" if known("written_kib") else ""
    return [
        ("cpu time", span(job["cpu_ms"]) if known("cpu_ms") else ""),
        ("peak", f"{kib(job['peak_kib'])} memory" if known("peak_kib") else ""),
        ("disk", ", ".join(filter(None, (read, written)))),
    ]


def word(text: str) -> str:
    """As one would type it, near enough to read."""
    if text and all(mark.isalnum() or mark in "-_./=:,@%+" for mark in text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def ran(start: int | None, end: int | None) -> str:
    return span(end - start) if start and end else ""


def attempts(history: "list[dict[str, Any]]") -> list[str]:
    rows = []
    for one in history:
        start, end = one.get("start_ms"), one.get("end_ms")
        how = one.get("why") or (f"exit {one['exit_code']}" if one.get("exit_code") is not None else "")
        rows.append([
            str(one.get("attempt", "")), str(one.get("state", "")), moment(start), ran(start, end),
            ",".join(one.get("nodes", ())), plain(str(how)),
        ])  # fmt: skip
    heads = ("ATTEMPT", "STATE", "STARTED", "RAN", "NODES", "WHY")
    return table(heads, rows, right="ATTEMPT RAN", elastic="NODES WHY", across=width())


def task_of(row: "dict[str, Any]") -> str:
    return str(row["index"]) if row.get("index") is not None else str(row.get("indices") or f"{row.get('tasks')} more")


def tasks_table(rows: "list[dict[str, Any]]") -> list[str]:
    cells = []
    for row in rows[:TASKS_SHOWN]:
        start, end = row.get("start_ms"), row.get("end_ms")
        code = f"signal {row['signal']}" if row.get("signal") else str(row.get("exit_code") or "")
        cells.append([
            task_of(row), str(row["state"]), moment(start), ran(start, end),
            code, str(row.get("attempts") or ""), ",".join(row.get("nodes", ())),
        ])  # fmt: skip
    heads = ("TASK", "STATE", "STARTED", "RAN", "EXIT", "ATTEMPTS", "NODES")
    lines = table(heads, cells, right="TASK RAN ATTEMPTS", elastic="TASK NODES", across=width())
    if len(rows) > TASKS_SHOWN:
        lines.append(f"... and {len(rows) - TASKS_SHOWN:,} more (tide queue --all {rows[0]['id']})")
    return lines


SHOW = Command(
    "show",
    "Everything about a job: what it asks for, why it waits or how it ended, where its output is, what it used.",
    show,
    *TALKING,
    words="ID[INDEX]...",
    least=1,
    most=-1,
    examples="""
tide show 12
tide show 12[5] --json
""",
)
COMMANDS = {"show": SHOW}
