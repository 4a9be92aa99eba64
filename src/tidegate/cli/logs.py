"""`tide logs`: what a job has written."""

import sys

from tidegate.cli.failure import FailureError, UsageError
from tidegate.cli.follow import Follower, Tail, to
from tidegate.cli.ids import of_task, shown, tasks_of
from tidegate.cli.options import Command, Options, flag
from tidegate.cli.outcome import told_end
from tidegate.cli.screen import json_value
from tidegate.cli.server import KNOWN, TALKING, Server
from tidegate.wire.arrays import parse_indices
from tidegate.wire.states import HELD, OVER, STARTING, WAITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def logs(options: Options) -> int:
    tasks = tasks_of("logs", options.words)
    if len(tasks) != 1:
        raise UsageError("tide logs: that names several jobs; name one, such as 12 or 12[5]")
    if options.follow and options.json:
        raise UsageError("tide logs: --follow writes the output as it comes; leave out --json")
    job, index = task = tasks[0]
    server = Server(options, KNOWN)
    known = server.call("GET", f"/v1/jobs/{job}", of_task(index))
    if index < 0 and known.get("tasks") is not None:
        raise FailureError(f"job {job} is an array; name one of its tasks, such as tide logs {job}[{first_of(known)}]")
    stream = "stdout"
    if options.stderr:
        if known.get("stderr") in {None, "", known.get("stdout")}:
            raise FailureError(f"job {shown(job, index)} writes both to one place; tide logs {shown(job, index)}")
        stream = "stderr"
    sys.stdout.flush()
    if options.follow:
        Follower(server, task, {stream: to(1)}).run(lambda: None)
        return 0
    parts: list[bytes] = []
    tail = Tail(server, task, stream, parts.append if options.json else to(1))
    tail.at(str(known.get(stream) or ""))
    size = tail.more()
    if options.json:
        text = b"".join(parts).decode(errors="replace")
        json_value({"id": job, "index": of_task(index).get("index"), "stream": stream, "path": tail.path, "text": text})
    elif not size:
        is_kept = tail.path or tail.remote
        why = nothing(known, shown(job, index)) if is_kept else f"{tail.told} keeps nothing to read"
        print(f"tide: {why}", file=sys.stderr)
    return 0


def nothing(job: "dict[str, Any]", name: str) -> str:
    if job["state"] in {HELD, WAITING, STARTING}:
        return f"job {name} has not started; tide logs -f {name} waits for it"
    if job["state"] in OVER:
        return f"nothing was written; {told_end(job, name)}"
    return f"nothing is written yet; tide logs -f {name} waits for it"


def first_of(array: "dict[str, Any]") -> int:
    """One of its tasks, started or not."""
    for row in (*array.get("array", ()), array):
        if row.get("index") is not None:
            return int(row["index"])
        if row.get("indices"):
            return parse_indices(row["indices"])[0]
    return 0


LOGS = Command(
    "logs",
    "Writes what a job has written so far. With -f it goes on until the job has ended, also across a restart of the "
    "server.",
    logs,
    "options",
    flag("--follow -f", "go on as it grows, until the job has ended"),
    flag("--stderr", "standard error, where it has a file of its own"),
    *TALKING,
    words="ID[INDEX]",
    least=1,
    most=1,
    examples="""
tide logs 12
tide logs -f 12
tide logs 12[5]
""",
)
COMMANDS = {"logs": LOGS}
