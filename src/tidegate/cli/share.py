"""`tide share`, `tide quota`: whose turn it is among queues, and what they may hold beyond their limits."""

import time

from tidegate.cli.failure import FailureError, UsageError
from tidegate.cli.nodes import milli
from tidegate.cli.options import Command, Option, Options
from tidegate.cli.screen import facts, json_value, memory, moment, number, span, table, width
from tidegate.cli.server import TALKING, Server, quote
from tidegate.cli.values import cpus, resource
from tidegate.wire.look import plain
from tidegate.wire.units import parse_duration, parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]

NO_QUEUES = "the policy has no queues: all jobs stand in one line"
TOLD_MAX = 12
"""So many queues at most have their reasons under the table; `tide share QUEUE` tells those of any."""


def share(options: Options) -> int:
    found = Server(options).call("GET", "/v1/share")
    rows = found["rows"]
    if options.words:
        rows = chosen(rows, options.words[0])
    if options.json:
        json_value({**found, "rows": rows})
        return 0
    if not rows:
        print(NO_QUEUES)
        return 0
    heads = ["QUEUE", "TURN", "WEIGHT", "SHARE", "WAIT", "HOLDS", "GUARANTEE", "LIMIT"]
    print("\n".join(table(heads, [cells(row) for row in rows], right="WEIGHT SHARE WAIT",
                          elastic="QUEUE HOLDS GUARANTEE LIMIT", across=width())))  # fmt: skip
    if len(options.words) == 1:
        tell(rows[0], found["half_life_ms"])
    elif len(rows) <= TOLD_MAX:
        print("\n" + "\n".join(facts([(called(row), row["why"]) for row in rows if row["neighbours"] > 1])))
    return 0


def chosen(rows: "list[Row]", queue: str) -> "list[Row]":
    """The queue and all below it."""
    found = [row for row in rows if row["queue"] == queue or row["queue"].startswith(f"{queue}/")]
    if not found:
        raise FailureError(f"there is no queue {queue!r}; tide share lists those there are")
    return found


def cells(row: "Row") -> list[str]:
    return [
        "  " * row["depth"] + short(row), f"{row['place']} of {row['neighbours']}", str(row["weight"]),
        f"{row['share']:.3g}", str(row["waiting"] or "-"),
        said(row["held"]), said(row["guarantee"]), said(row["limit"]) + " +" * bool(row["excess"]),
    ]  # fmt: skip


def short(row: "Row") -> str:
    """As it stands below its parent."""
    if row["user"]:
        return plain(f"@{row['user']}")
    return "(itself)" if row["itself"] else plain(row["queue"].rpartition("/")[2])


def called(row: "Row") -> str:
    return f"{row['user']} of {row['queue']}" if row["user"] else row["queue"] + " itself" * row["itself"]


def said(amounts: "dict[str, int]") -> str:
    """`8 gpus 40 cpus 64G`, the scarcest first."""
    words = []
    for name in sorted(amounts, key=lambda name: {"gpus": 0, "cpus": 2, "memory": 3}.get(name, 1)):
        if name == "memory":
            words.append(memory(amounts[name]))
        else:
            words.append(f"{milli(amounts[name]) if name in {'cpus', 'gpus'} else amounts[name]} {name}")
    return " ".join(words) or "-"


def tell(row: "Row", half_life_ms: int) -> None:
    excess = row["excess"]
    filled = "" if row["filled"] is None else f"{said(row['guarantee'])}, {number(100 * row['filled'])}% of it held"
    decayed = f"{said(row['used'])} (half-life {span(half_life_ms)})" if half_life_ms else ""
    print("\n" + "\n".join(facts([
        ("turn", f"{row['place']} of {row['neighbours']}: {row['why']}"),
        ("share", f"{row['share']:.3g} of its part, weight {row['weight']}"),
        ("holds", said(row["held"])),
        ("used before", decayed),
        ("guarantee", filled),
        ("excess", approved(excess) if excess else ""),
    ])))  # fmt: skip


def approved(excess: "Row") -> str:
    note = f": {excess['note']}" if excess.get("note") else ""
    return f"+{said(excess['amounts'])} until {moment(excess['until_ms'])}, approved by {excess['by']}{note}"


# -- quota -------------------------------------------------------------------------------------------------


def quota(options: Options) -> int:
    action, *queues = options.words
    if action not in {"approve", "list", "revoke"} or len(queues) != (action != "list"):
        raise UsageError("tide quota: write approve QUEUE, revoke QUEUE or list")
    if action == "list":
        return listed(options)
    server, (queue,) = Server(options), queues
    body: dict[str, object] = {}
    if action == "approve":
        body = approval(options)
    elif options.given & {"for", "cpus", "memory", "gpus", "resource", "note"}:
        raise UsageError("tide quota revoke takes no amounts: it ends all that was approved")
    done = server.call("POST", f"/v1/queues/{quote(queue)}/{action}", None, body)["done"]
    if options.json:
        json_value({"queue": queue, "done": done})
    elif action == "revoke":
        print(f"{queue} is held to its limit" + ("" if done else " (it was so already)"))
    else:
        print(f"{queue} may hold more until {moment(int(str(body['until_ms'])))}")
    return 0


def approval(options: Options) -> dict[str, object]:
    given = options.__dict__
    lasts_ms = given["for"]
    if not lasts_ms:
        raise UsageError("tide quota approve: for how long? write --for, such as --for 2d")
    body: dict[str, object] = {"until_ms": int(time.time() * 1000) + lasts_ms, "note": options.note}
    amounts = {"cpus": options.cpus, "memory_mib": options.memory, "gpus": options.gpus}
    body.update({name: amount for name, amount in amounts.items() if amount})
    if options.resource:
        body["resources"] = dict(options.resource)
    if len(body) == 2:
        raise UsageError("tide quota approve: how much more? write such as --gpus +4")
    return body


def listed(options: Options) -> int:
    rows = [row for row in Server(options).call("GET", "/v1/share")["rows"] if row["excess"]]
    if options.json:
        json_value([{"queue": row["queue"], **row["excess"]} for row in rows])
    elif not rows:
        print("no queue may hold more than its limit")
    else:
        made = [(plain(row["queue"]), f"+{said(row['excess']['amounts'])}", moment(row["excess"]["until_ms"]),
                 plain(row["excess"]["by"]), plain(row["excess"].get("note", ""))) for row in rows]  # fmt: skip
        print(
            "\n".join(table(("QUEUE", "MORE", "UNTIL", "BY", "NOTE"), made, elastic="QUEUE MORE NOTE", across=width()))
        )
    return 0


def more_cpus(text: str) -> float:
    return cpus(text.removeprefix("+"))


def more_size(text: str) -> int:
    return parse_size(text.removeprefix("+"))


COMMANDS = {
    "share": Command(
        "share",
        "Whose turn it is among queues: what each holds, has held and may hold, its share, and why it stands where it "
        "does. Neighbours stand in the order of their turn; `+` marks a limit that may be exceeded for a time.",
        share,
        *TALKING,
        words="[QUEUE]",
        most=1,
        examples="\ntide share\ntide share lab/vision\ntide share --json\n",
    ),
    "quota": Command(
        "quota",
        "Lets a queue hold more than its limit, for a time. For the approvers of the queue (and of those above it) and "
        "for administrators; every approval is an event. A new one takes the place of the one before; the limits of "
        "the queues above still hold.",
        quota,
        "approve",
        Option("--gpus", "+N", "so many GPUs more", more_cpus),
        Option("--cpus", "+N", "so many processors more", more_cpus),
        Option("--memory", "+SIZE", "so much memory more", more_size),
        Option("--resource", "NAME=N", "so much more of any other resource", resource, many=True),
        Option("--for", "TIME", "how long, such as 2d", parse_duration),
        Option("--note", "TEXT", "why, for whoever looks", default=""),
        *TALKING,
        words="approve QUEUE | list | revoke QUEUE",
        least=1,
        most=2,
        examples="\ntide quota approve lab/vision --gpus +4 --for 2d --note 'deadline on Friday'\n"
        "tide quota list\ntide quota revoke lab/vision\n",
    ),
}
