"""`tide nodes`, `tide drain`, `tide resume`."""

from tidegate.cli.options import Command, Option, Options
from tidegate.cli.screen import colours, json_value, memory, number, paint, table, width
from tidegate.cli.server import TALKING, Server, quote
from tidegate.wire.look import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BASE = ("cpus", "memory", "gpus")


def nodes(options: Options) -> int:
    found = Server(options).call("GET", "/v1/nodes")
    if options.json:
        json_value(found)
        return 0
    rows = found["nodes"]
    if not rows:
        print("no nodes: nothing can start; tide up --nodes N declares some")
        return 0
    heads = ["NODE", "STATE", "CPUS", "FREE", "MEMORY", "FREE", "GPUS", "FREE", "JOBS"]
    others = any(set(row["capacity"]) - set(BASE) for row in rows)
    heads += ["OTHER"] * others + ["LABELS"] * any(row.get("labels") for row in rows)
    heads += ["WHY"] * any(row.get("why") for row in rows)
    lines = table(heads, [cells(row, heads) for row in rows], right="CPUS FREE MEMORY GPUS JOBS",
                  elastic="NODE OTHER LABELS WHY", across=width())  # fmt: skip
    print(lines[0])
    for row, line in zip(rows, lines[1:], strict=True):
        state = str(row["state"])
        print(line.replace(f" {state}", f" {paint(state, state, coloured=colours())}", 1))
    if found.get("declared"):
        print("\nThese nodes are declared (tide up --nodes): names on this one machine, for tests and for learning.")
    return 0


def cells(row: "dict[str, Any]", heads: list[str]) -> list[str]:
    capacity, free = row["capacity"], row["free"]
    found = [plain(str(row["name"])), str(row["state"])]
    for kind, written in (("cpus", milli), ("memory", memory), ("gpus", milli)):
        found += [written(capacity.get(kind, 0)), written(free.get(kind, 0))] if capacity.get(kind) else ["-", "-"]
    found.append(str(row.get("jobs", 0) or "-"))
    more = {
        "OTHER": ", ".join(
            f"{kind} {free.get(kind, 0)}/{capacity[kind]}" for kind in sorted(capacity) if kind not in BASE
        ),
        "LABELS": ", ".join(f"{key}={value}" for key, value in row.get("labels", {}).items()),
        "WHY": plain(str(row.get("why") or "")),
    }
    return found + [more[head] for head in heads[len(found) :]]


def milli(thousandths: int) -> str:
    return number(thousandths / 1000)


def drain(options: Options) -> int:
    return change(options, "drain", {"why": options.why or ""}, "takes no new work")


def resume(options: Options) -> int:
    return change(options, "resume", {}, "takes work again")


def change(options: Options, verb: str, body: dict[str, str], now: str) -> int:
    server = Server(options)
    results = []
    for node in options.words:
        said = server.call("POST", f"/v1/nodes/{quote(node)}/{verb}", None, body)
        results.append({"node": node, "done": said["done"]})
        if not options.json:
            print(f"{node} {now}" + (" (it was so already)" if not said["done"] else ""))
    if options.json:
        json_value(results[0] if len(results) == 1 else results)
    return 0


COMMANDS = {
    "nodes": Command(
        "nodes",
        "Lists the nodes: what they have, what of it is free, how they are and why.",
        nodes,
        *TALKING,
        examples="\ntide nodes\ntide nodes --json\n",
    ),
    "drain": Command(
        "drain",
        "Lets a node finish what runs there and start nothing new, until tide resume.",
        drain,
        Option("--why", "TEXT", "shown to whoever asks"),
        *TALKING,
        words="NODE...",
        least=1,
        most=-1,
        examples="\ntide drain node3 --why 'new disk on Friday'\n",
    ),
}
