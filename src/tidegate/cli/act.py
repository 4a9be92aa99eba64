"""`tide cancel`, `hold`, `release`, `requeue`, `suspend`, `resume`: one wish for many jobs, named or chosen."""

import sys

from tidegate.cli import late
from tidegate.cli.failure import UsageError
from tidegate.cli.ids import TASKS_MAX, Task, of_task, shown, tasks_of
from tidegate.cli.jobs import SELECTION, filter_of
from tidegate.cli.options import Command, Option, Options, flag
from tidegate.cli.screen import json_rows
from tidegate.cli.server import KNOWN, TALKING, BusyError, RefusedError, Server
from tidegate.wire.arrays import parse_indices
from tidegate.wire.states import HELD, RUNNING, STARTING, SUSPENDED, WAITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

TOLD_MAX = 20
STATES = {
    "hold": WAITING, "release": HELD, "requeue": f"{STARTING},{RUNNING},{SUSPENDED}", "suspend": RUNNING,
    "resume": SUSPENDED,
}  # fmt: skip
"""Which of the chosen jobs an action can mean, where no state is given."""
OF_WHOLE_JOBS = ("hold", "release")


def act(verb: str, past: str, options: Options) -> int:
    chosen = bool(options.all or options.name or options.state or options.user or options.queue)
    if chosen == bool(options.words):
        raise UsageError(
            f"tide {verb}: name jobs, or choose them: tide {verb} 12 13[5], tide {verb} --all, tide {verb} --name 'a*'"
        )
    named = tasks_of(verb, options.words)
    server = Server(options, KNOWN)
    tasks = choose(server, verb, options) if chosen else named
    results = [one_done(server, verb, task) for task in tasks]
    if options.json:
        json_rows(results)
    else:
        tell(past, results)
    return 1 if any("error" in result for result in results) else 0


def resume(options: Options) -> int:
    """A job has a number, a node a name."""
    nodes = [word for word in options.words if not word[:1].isdecimal()]
    if not nodes:
        return act("resume", "resumed", options)
    if len(nodes) < len(options.words):
        raise UsageError(f"tide resume: {nodes[0]} is a node and not all are; name either jobs or nodes")
    return int(late("tidegate.cli.nodes:resume")(options))


def choose(server: Server, verb: str, options: Options) -> list[Task]:
    """The jobs that are like that; without --user only those of whoever asks."""
    query = {**filter_of(options), "user": options.user or "me"}
    query["state"] = options.state or STATES.get(verb)
    whole = not options.state or verb in OF_WHOLE_JOBS
    rows = server.call("GET", "/v1/jobs", query)["jobs"]
    if options.name:
        from fnmatch import fnmatchcase

        rows = [row for row in rows if fnmatchcase(row["name"], options.name)]
    found: dict[Task, None] = {}
    for row in rows:
        found.update(dict.fromkeys([(row["id"], -1)] if whole else tasks_of_row(row)))
        if len(found) > TASKS_MAX:
            raise UsageError(f"that chooses more than {TASKS_MAX:,} tasks; name whole jobs, or choose fewer")
    if not found:
        print("tide: no job of yours is like that; tide queue lists them", file=sys.stderr)
    return list(found)


def tasks_of_row(row: "dict[str, Any]") -> list[Task]:
    """With a state asked for, only those tasks of an array that are in it."""
    if row.get("index") is not None:
        return [(row["id"], row["index"])]
    if row.get("indices"):
        return [(row["id"], index) for index in parse_indices(row["indices"])]
    return [(row["id"], -1)]


def one_done(server: Server, verb: str, task: Task) -> "dict[str, Any]":
    job, index = task
    result: dict[str, Any] = {"id": job, "index": index if index >= 0 else None}
    try:
        # A second requeue would end what the first one has just started.
        said = server.call("POST", f"/v1/jobs/{job}/{verb}", None, of_task(index), again=verb != "requeue")
    except RefusedError as error:
        if isinstance(error, BusyError):
            raise
        return result | {"error": error.problem}
    return result | {"done": said["done"]}


def tell(past: str, results: "list[dict[str, Any]]") -> None:
    """Each by name while they are few; what was refused always, up to a number."""
    refused = [result for result in results if "error" in result]
    fine = [result for result in results if "error" not in result]
    if len(fine) > TOLD_MAX:
        print(f"{past} {sum(result['done'] for result in fine):,} of {len(results):,}")
    else:
        for result in fine:
            name = shown(result["id"], result["index"])
            print(f"{past} job {name}" if result["done"] else f"job {name}: it was so already")
    for result in refused[:TOLD_MAX]:
        error = result["error"]
        print(f"tide: {error['what']}; {error['cure']}", file=sys.stderr)
    if len(refused) > TOLD_MAX:
        print(f"tide: and {len(refused) - TOLD_MAX:,} more refused", file=sys.stderr)


def command(
    verb: str,
    past: str,
    about: str,
    examples: str,
    does: "Callable[[Options], int] | None" = None,
    words: str = "[ID...]",
) -> Command:
    run: Callable[[Options], int] = does or (lambda options: act(verb, past, options))
    return Command(
        verb, about, run,
        "instead of naming them",
        flag("--all -a", "every job of yours"),
        Option("--name -n", "PATTERN", "jobs of this name; * and ? stand for anything"),
        *SELECTION, *TALKING,
        words=words, most=-1, examples=examples,
    )  # fmt: skip


COMMANDS = {
    "cancel": command(
        "cancel",
        "cancelled",
        "Ends jobs: what waits is taken away, what runs is asked to end, and after its grace is ended.",
        """
tide cancel 12
tide cancel 12[5] 20-29
tide cancel --name 'sweep-*'
tide cancel --state waiting
tide cancel --all
""",
    ),
    "hold": command(
        "hold",
        "held",
        "Keeps jobs that wait from starting, until tide release. What runs goes on.",
        """
tide hold 12
tide hold --queue night
""",
    ),
    "release": command(
        "release",
        "released",
        "Lets held jobs start again when their turn comes.",
        """
tide release 12
tide release --all
""",
    ),
    "suspend": command(
        "suspend",
        "suspended",
        "Stops what runs of the jobs where it is, until tide resume. It lends its cpus to others, keeps its memory, "
        "GPUs and nodes, and its time limit stands still.",
        """
tide suspend 12
tide suspend 12[5] 20-29
""",
    ),
    "resume": command(
        "resume",
        "resumed",
        "Lets suspended jobs go on, as soon as their cpus are free; or lets nodes take work again (tide drain).",
        """
tide resume 12
tide resume --all
tide resume node3
""",
        resume,
        "[ID...|NODE...]",
    ),
    "requeue": command(
        "requeue",
        "requeued",
        "Ends what runs of the jobs and lets it wait again. One that can save itself (tide submit --checkpoint) is "
        "asked to first, and goes on from there; others start from their beginning.",
        """
tide requeue 12
tide requeue 12[5]
tide requeue --state running --name 'train-*'
""",
    ),
}
