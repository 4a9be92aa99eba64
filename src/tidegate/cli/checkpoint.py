"""`tide checkpoint`: what a job says of its saving, and what others ask of it."""

import os
import time

from tidegate.cli import late
from tidegate.cli.failure import FailureError, UsageError
from tidegate.cli.ids import Task, of_task, shown, tasks_of
from tidegate.cli.options import Command, Options
from tidegate.cli.screen import facts, json_rows
from tidegate.cli.server import KNOWN, TALKING, RefusedError, Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PACKAGE = "tidegate.checkpoint"
HEARD_S_MAX, LOOK_S = 2.0, 0.01


def checkpoint(options: Options) -> int:
    verb, *words = options.words
    does = VERBS.get(verb)
    if does is None:
        raise UsageError(f"tide checkpoint: {verb[:40]!r} is none of {', '.join(VERBS)}")
    return does(options, words)


def done(options: Options, words: list[str]) -> int:
    """From inside: it has saved itself; with a directory, that is published first."""
    del options
    if len(words) > 1:
        raise UsageError(f"tide checkpoint done: {words[1][:60]!r} is one word too many; name one directory, or none")
    before = call("asked")
    if words:
        print(call("publish", words[0]))
    elif not os.environ.get("TIDE_CHECKPOINT_DONE"):
        raise FailureError("this is no job that was submitted with --checkpoint, so nobody waits to hear it")
    if not call("done", call("size_of", words[0]) if words else 0) and not words:
        raise FailureError("nobody listens: the keeper of this job is gone")
    if before is not None:
        wait_until_heard(os.environ["TIDE_CHECKPOINT_ASKED"], before.number)
    return 0


def wait_until_heard(path: str, number: int) -> None:
    """So that a script that polls does not find the ask that it has just answered, and save once more."""
    end = time.monotonic() + HEARD_S_MAX
    while time.monotonic() < end:
        try:
            with open(path, encoding="ascii") as file:
                if not file.read().startswith(f"{number} "):
                    return
        except OSError:
            return
        time.sleep(LOOK_S)


def stage(options: Options, words: list[str]) -> int:
    """From inside: a new directory to save into, of which `done` makes a checkpoint without a copy."""
    del options
    refuse("stage", words)
    print(call("stage"))
    return 0


def latest(options: Options, words: list[str]) -> int:
    """From inside: the directory of the last whole one."""
    del options
    refuse("latest", words)
    found = call("latest")
    if found is not None:
        print(found)
    return 0 if found is not None else 1


def call(name: str, *arguments: "str | int") -> "Any":
    try:
        return late(f"{PACKAGE}:{name}")(*arguments)
    except late(f"{PACKAGE}:NoCheckpointError") as error:
        raise FailureError(str(error)) from None


def refuse(verb: str, words: list[str]) -> None:
    if words:
        raise UsageError(f"tide checkpoint {verb}: {words[0][:60]!r} is one word too many; write it alone")


def ask(options: Options, words: list[str]) -> int:
    tasks = named("ask", words)
    server = Server(options, KNOWN)
    results = [one_asked(server, task) for task in tasks]
    if options.json:
        json_rows(results)
        return 1 if any("error" in result for result in results) else 0
    refused = [result for result in results if "error" in result]
    for result in results:
        if "error" not in result:
            name = shown(result["id"], result["index"])
            print(f"asked job {name}" if result["done"] else f"job {name}: it is asked already, and has not answered")
    if refused:
        raise FailureError("; ".join(f"{one['error']['what']}: {one['error']['cure']}" for one in refused))
    return 0


def one_asked(server: Server, task: Task) -> "dict[str, Any]":
    job, index = task
    result: dict[str, Any] = {"id": job, "index": index if index >= 0 else None}
    try:
        result |= server.call("POST", f"/v1/jobs/{job}/checkpoint", None, of_task(index))
    except RefusedError as error:
        if error.status == 503:
            raise
        result["error"] = error.problem
    return result


def status(options: Options, words: list[str]) -> int:
    from tidegate.cli.show import saving

    tasks = named("status", words or own())
    server = Server(options, KNOWN)
    found = [server.call("GET", f"/v1/jobs/{job}", of_task(index)) for job, index in tasks]
    if options.json:
        json_rows([{"id": job["id"], "index": job["index"], "checkpoint": job["checkpoint"]} for job in found])
        return 0
    for job in found:
        pairs = saving(job) or [("checkpoint", "it did not say that it can save itself")]
        print("\n".join([f"job {shown(job['id'], job.get('index'))}  {job['state']}", *facts(pairs)]))
    return 0


def own() -> list[str]:
    """The job that we are in."""
    job, index = os.environ.get("TIDE_JOB_ID", ""), os.environ.get("TIDE_ARRAY_INDEX", "")
    return [f"{job}_{index}" if index else job] if job else []


def named(verb: str, words: list[str]) -> list[Task]:
    if not words:
        raise UsageError(f"tide checkpoint {verb}: name jobs, such as tide checkpoint {verb} 12 13[5]")
    return tasks_of(f"checkpoint {verb}", words)


VERBS: "dict[str, Callable[[Options, list[str]], int]]" = {
    "stage": stage,
    "done": done,
    "latest": latest,
    "ask": ask,
    "status": status,
}

COMMANDS = {
    "checkpoint": Command(
        "checkpoint",
        "In a job that was submitted with --checkpoint:\n"
        "stage prints a new directory to save into. done says that the job has saved itself; with DIR, what is in "
        "there becomes its last checkpoint first, whole or not at all (what stage gave; of another directory a "
        "copy). latest prints the directory of the last whole checkpoint, or exits with 1 where there is none.\n"
        "From outside: ask asks running jobs to save themselves now; status tells how old what they saved last is.",
        checkpoint,
        *TALKING,
        words="stage|done [DIR]|latest|ask ID...|status ID...",
        least=1,
        most=-1,
        examples="""
tide checkpoint ask 12
tide checkpoint status 12 13[5]
dir=$(tide checkpoint stage) && cp state "$dir" && tide checkpoint done "$dir"
last=$(tide checkpoint latest) && cp "$last"/state .
""",
    )
}
