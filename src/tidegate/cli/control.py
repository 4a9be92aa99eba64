"""`tide up`, `tide down`, `tide status`: the server itself."""

import time

from tidegate.cli import late
from tidegate.cli.client import GoneError, NoServerError
from tidegate.cli.failure import FailureError
from tidegate.cli.options import Command, Option, Options, choice, count, flag, whole
from tidegate.cli.screen import facts, json_value, span
from tidegate.cli.server import NEVER, TALKING, Server, home_of
from tidegate.cli.values import cpus
from tidegate.wire.units import parse_size

DOWN_S = 60.0


def up(options: Options) -> int:
    options.__dict__["home"] = home_of(options)
    return int(late("tidegate.app.serve:serve")(options))


def down(options: Options) -> int:
    server = Server(options, NEVER)
    status = server.call("GET", "/v1/status")
    server.call("POST", "/v1/stop", None, {"keeper": True}, again=False)  # it stays while jobs run
    until = time.monotonic() + DOWN_S
    is_served = late("tidegate.app.home:is_served")
    while answers(server) or (server.place.home and is_served(server.place.home)):
        if time.monotonic() > until:
            raise FailureError(f"the server (process {status['pid']}) was asked to stop and still answers; "
                               f"{server.place.look()}")  # fmt: skip
        time.sleep(0.05)
    running = status["running"]
    goes_on = "1 running job goes on, and tide up finds it again"
    if running > 1:
        goes_on = f"{running:,} running jobs go on, and tide up finds them again"
    if options.json:
        json_value({"down": True, "home": status["home"], "running": running})
    else:
        print(f"the server of {status['home']} is down" + f"; {goes_on}" * bool(running))
    return 0


def answers(server: Server) -> bool:
    try:
        server.place.connect().close()
    except GoneError:
        return False
    return True


def status(options: Options) -> int:
    try:
        server = Server(options, NEVER)
    except NoServerError as error:
        if options.json:
            json_value({"up": False})
        raise FailureError(str(error)) from None
    found = server.call("GET", "/v1/status")
    if options.json:
        json_value({"up": True, **found})
        return 0
    pairs = [
        ("up", f"{span(found['up_ms'])}, process {found['pid']}, as {found['user']}"),
        ("home", found["home"]),
        ("version", f"{found['version']}, {found['kernel']} kernel"),
        ("policy", f"{found['policy']}, version {found['policy_version']}"),
        ("engine", found["engine"]),
        ("jobs", f"{found['running']:,} running, {found['waiting']:,} waiting, {found['ended']:,} ended"),
        ("promises", promised(found.get("promises") or {})),
        ("journal", f"{found['seq']:,} events"),
    ]
    print("\n".join(facts(pairs)))
    for note in found.get("notes", ()):
        print(f"note: {note}")
    return 0


def promised(found: "dict[str, int]") -> str:
    """Of the starts that this server promised; nothing before it has promised any."""
    if not found.get("made"):
        return ""
    late = sum(count for name, count in found.items() if name.startswith("late_by_"))
    text = f"{found['made']:,} promised, {found['kept']:,} started in time, {late:,} late"
    return f"{text}, half of them by up to {span(found['late_p50_ms'])}" if late else text


COMMANDS = {
    "up": Command(
        "up",
        "Runs the server, in the foreground or (--detach) in the background. It finds out what this machine has; no "
        "configuration is needed. Run by a user it is that user's own; run by root it is everybody's on this machine, "
        "and each job runs as who submitted it.",
        up,
        "options",
        Option("--home", "DIR", "where its state lives (TIDEGATE_HOME)"),
        flag("--detach -d", "in the background; returns when it answers"),
        Option("--policy", "NAME|FILE", "for a new home; later tide policy apply (default: tide)", default=""),
        Option("--listen", "HOST:PORT", "TCP too, with tokens (tide token add)", default=""),
        "what it has (default: what this machine has)",
        Option("--nodes", "N", "declare N nodes on this machine, for tests and for learning", count, default=0),
        Option("--cpus", "K", "processors of each of them, or to use of this machine", cpus, default=0),
        Option("--memory", "SIZE", "memory of each of them, or to use of this machine", parse_size, default=0),
        Option("--gpus", "G", "GPUs of each of them, or of this machine", whole),
        Option("--engine", "local|virtual", "virtual: nothing is run, for tests", choice("local", "virtual"),
               default="local"),
        examples="""
tide up --detach
tide up --nodes 4 --cpus 8 --memory 16G --detach
tide up --listen 127.0.0.1:7070
tide up --policy easy
""",
    ),
    "down": Command(
        "down",
        "Stops the server. Running jobs go on; the next tide up finds them again.",
        down,
        *TALKING,
        examples="\ntide down\n",
    ),
    "status": Command(
        "status",
        "How the server is. Starts none: exits with 1 where none runs.",
        status,
        *TALKING,
        examples="\ntide status\ntide status --json\n",
    ),
}  # fmt: skip
