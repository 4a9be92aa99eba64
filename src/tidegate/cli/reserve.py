"""`tide reserve`: capacity that is kept for somebody, or for maintenance, from one time to another."""

from tidegate.cli.failure import UsageError
from tidegate.cli.options import Command, Option, Options, count, flag
from tidegate.cli.screen import facts, json_value, moment, span, table, width
from tidegate.cli.server import TALKING, Server, quote
from tidegate.cli.share import said
from tidegate.cli.values import cpus, name, resource
from tidegate.cli.values import moment as moment_of
from tidegate.wire.look import plain
from tidegate.wire.units import parse_duration, parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]

ACTIONS = ("create", "list", "release", "show")
PLAIN = (
    ("start", "start_ms"), ("for", "lasts_ms"), ("pool", "pool"), ("node_count", "node_count"), ("cpus", "cpus"),
    ("gpus", "gpus"), ("memory", "memory_mib"), ("count", "count"), ("maintenance", "maintenance"), ("force", "force"),
    ("note", "note"), ("nodes", "nodes"), ("users", "users"), ("queues", "queues"),
)  # fmt: skip
"""Options that the body has under this name, with the same value."""


def reserve(options: Options) -> int:
    action, *names = options.words
    if action not in ACTIONS or len(names) != (action != "list"):
        raise UsageError("tide reserve: write create NAME, list, show NAME or release NAME")
    asked = options.given & {dest for dest, _ in PLAIN} | options.given & {"resource"}
    if action != "create" and asked:
        raise UsageError(f"tide reserve {action} takes no --{min(asked).replace('_', '-')}")
    match action:
        case "create":
            return create(options, names[0])
        case "release":
            return release(options, names[0])
        case "show":
            return show(options, names[0])
        case _:
            return listed(options)


def create(options: Options, called: str) -> int:
    values = options.__dict__
    body = {field: values[dest] for dest, field in PLAIN if dest in options.given} | {"name": name(called)}
    if options.resource:
        body["resources"] = dict(options.resource)
    if "lasts_ms" not in body:
        raise UsageError("tide reserve create: for how long? write --for, such as --for 2h")
    if not body.keys() & {"nodes", "node_count", "cpus", "gpus", "memory_mib", "resources"}:
        raise UsageError("tide reserve create: what? write --nodes n1,n2 or --node-count 2 or --gpus 1 --count 8")
    server = Server(options)
    done = server.call("POST", "/v1/reservations", None, body)["done"]
    row = row_of(server, called)
    if options.json:
        json_value({**row, "done": done})
    else:
        was = "" if done else " (it was so already)"
        print(
            f"{called} keeps {kept(row)} on {where(row)} from {moment(row['start_ms'])} to {moment(row['end_ms'])}{was}"
        )
    return 0


def release(options: Options, called: str) -> int:
    done = Server(options).call("POST", f"/v1/reservations/{quote(called)}/release", None, {})["done"]
    if options.json:
        json_value({"reservation": called, "done": done})
    else:
        print(f"{called} is given back")
    return 0


def row_of(server: Server, called: str) -> "Row":
    rows = server.call("GET", "/v1/reservations")["rows"]
    found = [row for row in rows if row["name"] == called]
    if not found:
        raise UsageError(f"there is no reservation {called[:40]!r}; tide reserve list shows those there are")
    row: Row = found[0]
    return row


def show(options: Options, called: str) -> int:
    row = row_of(Server(options), called)
    if options.json:
        json_value(row)
        return 0
    state = f"open, {row['running']} running" if row["open"] else "to come"
    print("\n".join(facts([
        ("reservation", f"{called} ({state})"),
        ("from", moment(row["start_ms"])),
        ("to", f"{moment(row['end_ms'])} ({span(row['end_ms'] - row['start_ms'])})"),
        ("keeps", kept(row)),
        ("on", f"{where(row)} of pool {row['pool']}"),
        ("for", whom(row)),
        ("by", row["by"]),
        ("note", row["note"]),
    ])))  # fmt: skip
    return 0


def listed(options: Options) -> int:
    rows = Server(options).call("GET", "/v1/reservations")["rows"]
    if options.json:
        json_value(rows)
    elif not rows:
        print("nothing is reserved")
    else:
        made = [(plain(row["name"]), "open" if row["open"] else "to come", moment(row["start_ms"]),
                 span(row["end_ms"] - row["start_ms"]), kept(row), plain(where(row)), plain(whom(row)),
                 str(row["running"])) for row in rows]  # fmt: skip
        heads = ("NAME", "STATE", "FROM", "FOR", "KEEPS", "ON", "WHOM", "RUN")
        print("\n".join(table(heads, made, right="RUN", elastic="NAME KEEPS ON WHOM", across=width())))
    return 0


def kept(row: "Row") -> str:
    many = sum(row["nodes"].values())
    if not row["chunk"]:
        return f"{many} node{'s' * (many != 1)}"
    return said(row["chunk"]) if many == 1 else f"{many} x ({said(row['chunk'])})"


def where(row: "Row") -> str:
    return ",".join(node if many == 1 else f"{node}x{many}" for node, many in row["nodes"].items())


def whom(row: "Row") -> str:
    if row["maintenance"]:
        return "nobody"
    words = [", ".join(row["users"])] if row["users"] else []
    return " in ".join([*words, *(["queue " + ", ".join(row["queues"])] if row["queues"] else [])])


def names(text: str) -> list[str]:
    """`n1,n2`"""
    return [name(part.strip()) for part in text.split(",")]


COMMANDS = {
    "reserve": Command(
        "reserve",
        "Keeps capacity from one time to another for users, for queues, or for nobody. Jobs of those entitled go there "
        "with tide submit --reservation NAME; until it begins others run there that end by then. For administrators, "
        "and for users as far as the policy lets them.",
        reserve,
        "create: what",
        Option("--nodes", "NODE[,...]", "these nodes, whole", names),
        Option("--node-count", "N", "so many whole nodes", count),
        Option("--cpus", "N", "so many processors", cpus),
        Option("--gpus", "N", "so many GPUs", cpus),
        Option("--memory", "SIZE", "so much memory", parse_size),
        Option("--resource", "NAME=N", "so much of any other resource", resource, many=True),
        Option("--count", "N", "so many times the amounts, each on one node (default 1)", count),
        Option("--pool", "NAME", "which nodes; default: as the policy says", name),
        "create: when, and for whom",
        Option("--start", "TIME", "from then on: +2h, 14:30, 2026-11-20T08:00 (default: now)", moment_of),
        Option("--for", "TIME", "how long, such as 2h", parse_duration),
        Option("--users", "USER[,...]", "for them (default, without --queues: for you)", names),
        Option("--queues", "QUEUE[,...]", "for jobs of these queues; with --users both must hold", names),
        flag("--maintenance", "for nobody"),
        flag("--force", "over whatever runs or is promised there; what runs goes on. For administrators"),
        Option("--note", "TEXT", "why, for whoever looks"),
        *TALKING,
        words="create NAME | list | show NAME | release NAME",
        least=1,
        most=2,
        examples="\ntide reserve create course --node-count 2 --start 14:00 --for 3h --queues teaching\n"
        "tide reserve create mine --gpus 1 --cpus 4 --count 4 --for 2h\n"
        "tide reserve create patch --nodes n1,n2 --start +1d --for 4h --maintenance\n"
        "tide submit --reservation mine --gpus 1 --cpus 4 --time 1h -- python demo.py\n"
        "tide reserve list\ntide reserve release mine\n",
    ),
}
