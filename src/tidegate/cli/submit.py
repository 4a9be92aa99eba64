"""`tide submit`: a command or a script becomes a job; its number is what is printed."""

import sys

from tidegate.cli.failure import UsageError
from tidegate.cli.job_options import JOB, MANY, body_of, read_script
from tidegate.cli.options import Command, Options, flag
from tidegate.cli.screen import json_value
from tidegate.cli.server import TALKING, Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def submit(options: Options) -> int:
    body = body_of_words(options)
    server = Server(options)
    found = server.call("POST", "/v1/jobs", None, body)
    tell(options, body, found)
    if options.wait:
        from tidegate.cli.wait import wait_for

        sys.stdout.flush()
        return wait_for(server, [(found["id"], -1)], quiet=options.quiet or options.json)
    return 0


def body_of_words(options: Options) -> "dict[str, Any]":
    if options.dashed:
        return body_of(options, command_of(options, "submit"))
    if not options.words:
        raise UsageError("tide submit: what to run is missing; tide submit -- COMMAND, or tide submit SCRIPT")
    path, *arguments = options.words
    script = read_script(path, options)
    if "name" not in options.given and path != "-":
        options.__dict__["name"] = path.rpartition("/")[2][:200]
        options.given.add("name")
    return body_of(options, arguments, script)


def command_of(options: Options, verb: str) -> list[str]:
    if not options.words or not options.words[0]:
        raise UsageError(f"tide {verb}: the command after -- is missing; write tide {verb} -- COMMAND ARGUMENTS")
    return options.words


def tell(options: Options, body: "dict[str, Any]", found: "dict[str, Any]") -> None:
    number, tasks = found["id"], found.get("tasks", 1)
    known = found.get("known", False) and "key" in options.given
    if options.json:
        json_value({"id": number, "tasks": tasks, "known": known})
    elif options.quiet:
        print(number)
    elif known:
        print(f"job {number} (submitted before with the key {body['key']})")
    else:
        print(f"job {number}" + (f" ({tasks:,} task{'s' * (tasks != 1)})" if body.get("array") else ""))


SUBMIT = Command(
    "submit",
    "Submits a job and prints its number. What runs is a command after --, or a script: its text is kept, and "
    "lines at its head such as `#TIDE --cpus 4 --time 2h` give options. What the command line says wins.\n"
    "The job runs where you are, as you, with your environment.",
    submit,
    *JOB,
    *MANY,
    "what comes back",
    flag("--wait -w", "return when it has ended, with 0 when it completed"),
    flag("--quiet", "print the number only"),
    *TALKING,
    words="-- COMMAND... | SCRIPT [ARGUMENTS...]",
    most=-1,
    tail=True,
    examples="""
tide submit -- python train.py --epochs 10
tide submit --cpus 4 --memory 8G --gpus 1 --time 2h train.sh
tide submit --array 0-999%50 -- sh -c 'work "$TIDE_ARRAY_INDEX"'
tide submit --after 12 --name report -- make report
id=$(tide submit --quiet -- make data) && tide submit --after $id -- make plots
tide submit --retries 3 --retry-on exit:75,oom,timeout --backoff 10s -- ./flaky
""",
)
COMMANDS = {"submit": SUBMIT}
