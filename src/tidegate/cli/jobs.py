"""`tide queue`: what waits and runs. The server writes the table; this only carries it, for `watch`."""

import sys

from tidegate.cli.options import Command, Option, Options, count, flag
from tidegate.cli.screen import colours, json_rows, width
from tidegate.cli.server import TALKING, Server, target_of, write_out
from tidegate.wire.states import LIVE, OVER

NO_EDGE = 1000
"""A file or a pipe has none to fold at."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def states(text: str) -> str:
    """`running`, or several: `failed,lost`. Capitals or not."""
    for state in text.upper().split(","):
        if state not in OVER and state not in LIVE:
            raise ValueError(f"{state[:40]!r} is no state; write one of {', '.join((*LIVE, *OVER))}")
    return text.upper()


SELECTION = (
    Option("--user -u", "NAME", "only jobs of this user; me: your own"),
    Option("--queue -q", "NAME", "only jobs of this queue"),
    Option("--state -s", "STATE[,...]", "only in these states: WAITING, RUNNING, FAILED, ...", states),
)


def filter_of(options: Options) -> "dict[str, Any]":
    found = {"user": options.user, "queue": options.queue, "state": options.state}
    if options.state and any(state in OVER for state in options.state.split(",")):
        found["all"] = "1"
    return found


def queue(options: Options) -> int:
    query = filter_of(options)
    query["limit"] = options.limit
    if options.words:
        from tidegate.cli.ids import on_wire, tasks_of

        query["job"] = ",".join(map(on_wire, tasks_of("queue", options.words)))
    if options.all or options.words:
        query["all"] = "1"
    server = Server(options)
    if options.json:
        found = server.call("GET", "/v1/jobs", query)
        json_rows(found["jobs"])
        if found.get("more"):
            print("tide: there are more; raise --limit", file=sys.stderr)
        return 0
    look = {"width": width() or NO_EDGE, "colour": "1" if colours() else None}
    if not write_out(server.open(target_of("/v1/jobs", {**query, **look}), "text/plain").pieces()):
        print(f"tide: {nothing(options)}", file=sys.stderr)
    return 0


def nothing(options: Options) -> str:
    if options.words or options.user or options.queue or options.state:
        return "no job is like that; tide queue --all lists every job"
    if options.all:
        return "no jobs yet; tide submit -- COMMAND submits one"
    return "nothing waits or runs (tide queue --all shows what has ended; tide submit -- COMMAND submits a job)"


QUEUE = Command(
    "queue",
    "Lists the jobs that wait and run. Tasks of an array that have not started share a row.",
    queue,
    "which jobs",
    flag("--all -a", "ended ones too"),
    *SELECTION,
    Option("--limit", "N", "at most so many rows", count),
    *TALKING,
    words="[ID...]",
    most=-1,
    examples="""
tide queue
tide queue --all --user me
tide queue --state failed,timed_out --json
watch tide queue
""",
)
COMMANDS = {"queue": QUEUE}
