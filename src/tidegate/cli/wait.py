"""`tide wait`: returns when jobs have ended, and says how."""

import sys
import time

from tidegate.cli.failure import FailureError
from tidegate.cli.ids import Task, shown, tasks_of
from tidegate.cli.options import Command, Option, Options, flag
from tidegate.cli.outcome import told_end
from tidegate.cli.screen import json_value, span, width
from tidegate.cli.server import KNOWN, TALKING, Server
from tidegate.cli.values import time_limit
from tidegate.cli.watch import TASKS_PER_ASK, Watch
from tidegate.wire.look import cut
from tidegate.wire.states import COMPLETED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TICK_S = 0.25
BAR = 30
TOLD_MAX = 10


def wait(options: Options) -> int:
    tasks = tasks_of("wait", options.words)
    server = Server(options, KNOWN)
    return wait_for(server, tasks, quiet=options.quiet, as_json=options.json, limit_ms=options.timeout)


def wait_for(
    server: Server, tasks: list[Task], *, quiet: bool = False, as_json: bool = False, limit_ms: int | None = None
) -> int:
    """0 when all of them completed."""
    bar = Bar(shown_at_all=sys.stderr.isatty() and not quiet)
    until = None if limit_ms is None else time.monotonic() + limit_ms / 1000
    done: list[dict[str, Any]] = []
    for begin in range(0, len(tasks), TASKS_PER_ASK):
        watch = Watch(server, tasks[begin : begin + TASKS_PER_ASK])
        left = max(0, len(tasks) - begin - TASKS_PER_ASK)
        try:
            done.append(watch_all(watch, bar, done, left, until))
        finally:
            bar.clear()
            watch.server.client.close()
    said = together(done)
    if as_json:
        json_value(said)
    elif not quiet:
        tell(said)
    return 1 if said["failed"] else 0


def watch_all(
    watch: Watch, bar: "Bar", before: "list[dict[str, Any]]", left: int, until: float | None
) -> "dict[str, Any]":
    while True:
        said = watch.step(TICK_S)
        if said is not None:
            bar.now(together([*before, said]), left)
            if said["ended"] >= said["total"]:
                return said
        bar.draw()
        if until is not None and time.monotonic() > until:
            bar.clear()
            raise FailureError(f"{bar.words() or 'not all have ended'} when time was up; the jobs go on")


def together(parts: "list[dict[str, Any]]") -> "dict[str, Any]":
    names = ("total", "ended", "running", "failed")
    summed: dict[str, Any] = {name: sum(part.get(name, 0) for part in parts) for name in names}
    summed["rows"] = [row for part in parts for row in part.get("rows", ())]
    return summed


class Bar:
    """One line on standard error that is drawn over itself."""

    def __init__(self, *, shown_at_all: bool) -> None:
        self.shown = shown_at_all
        self.began = time.monotonic()
        self.counts: dict[str, Any] = {}
        self.drawn = ""

    def now(self, counts: "dict[str, Any]", left: int) -> None:
        self.counts = {**counts, "total": counts["total"] + left}

    def words(self) -> str:
        if not self.counts:
            return ""
        counts = self.counts
        failed = f", {counts['failed']:,} not well" if counts["failed"] else ""
        return f"{counts['ended']:,} of {counts['total']:,} ended, {counts['running']:,} running{failed}"

    def draw(self) -> None:
        if not self.shown or not self.counts:
            return
        full = BAR * self.counts["ended"] // max(1, self.counts["total"])
        text = f"[{'#' * full}{'.' * (BAR - full)}] {self.words()}  {span(int((time.monotonic() - self.began) * 1000))}"
        text = cut(text, width(2) - 1)  # a line that is folded could not be drawn over
        if text != self.drawn:
            sys.stderr.write(f"\r{text}\x1b[K")
            sys.stderr.flush()
            self.drawn = text

    def clear(self) -> None:
        if self.drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self.drawn = ""


def tell(said: "dict[str, Any]") -> None:
    """How they ended: the few that matter by name, the rest as a number."""
    rows = said["rows"]
    bad = [row for row in rows if row["state"] != COMPLETED]
    for row in (rows if len(rows) == 1 else bad)[:TOLD_MAX]:
        print(told_end(row, shown(row["id"], row.get("index"))))
    if len(bad) > TOLD_MAX:
        print(f"... and {len(bad) - TOLD_MAX:,} more that did not complete; tide queue --all shows them")
    if said["total"] > 1:
        print(f"{said['ended'] - said['failed']:,} of {said['total']:,} completed")


WAIT = Command(
    "wait",
    "Returns when the jobs have ended: with 0 when all of them completed, with 1 otherwise. It goes on across a "
    "restart of the server.",
    wait,
    "options",
    Option("--timeout", "DURATION", "give up after so long (the jobs go on)", time_limit),
    flag("--quiet", "say nothing"),
    *TALKING,
    words="ID...",
    least=1,
    most=-1,
    examples="""
tide wait 12
tide wait 12 13 20-29 && make report
tide wait 12[5]
""",
)
COMMANDS = {"wait": WAIT}
