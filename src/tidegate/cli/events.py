"""`tide events`: the facts, as they become facts."""

import sys
import time

from tidegate.cli.client import ANSWER_S, GoneError, server_events
from tidegate.cli.failure import FailureError
from tidegate.cli.ids import shown
from tidegate.cli.options import Command, Option, Options, flag, whole
from tidegate.cli.quick_json import dumps, loads
from tidegate.cli.server import KNOWN, TALKING, Server, target_of
from tidegate.cli.watch import AGAIN_FIRST_S, AGAIN_MAX_S, PATIENCE_S
from tidegate.wire.look import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

LAST = 50
SILENT_S = 45.0
"""The server says something at least every 15 s, if only that it lives."""
QUIET_MAX = 2
"""So many signs of life without an event between them: there is none to come soon."""
ARRAY_BITS = 20
ARRAY_MASK = (1 << ARRAY_BITS) - 1
LINE_MAX = 200


def events(options: Options) -> int:
    server = Server(options, KNOWN)
    newest = server.call("GET", "/v1/status")["seq"]
    after = options.after if options.after is not None else max(0, newest - (0 if options.follow else LAST))
    until = None if options.follow else newest
    if until is not None and after >= until:
        print(f"tide: nothing after {after}; the newest is {newest} (tide events -f waits for more)", file=sys.stderr)
        return 0
    for event in stream(server, after, until):
        sys.stdout.write((dumps(event) if options.json else told(event)) + "\n")
        sys.stdout.flush()
    return 0


def stream(server: Server, after: int, until: int | None) -> "Iterator[dict[str, Any]]":
    """From `after` on, up to `until` or without end; a server that restarts is waited for, and none is missed."""
    away_since, again_s = 0.0, AGAIN_FIRST_S
    quiet = 0
    while True:
        try:
            server.client.timeout_s = SILENT_S
            answer = server.open(target_of("/v1/events", {"after": after}), "text/event-stream")
            for _, data in server_events(answer):
                away_since, again_s = 0.0, AGAIN_FIRST_S
                quiet = 0 if data else quiet + 1
                if quiet >= QUIET_MAX and until is not None:
                    return  # what is left of those before is no longer kept
                if not data:
                    continue
                event = loads(data.encode())
                after = event["seq"]
                if until is not None and after > until:
                    return
                yield event
                if after == until:
                    return
        except GoneError as error:
            away_since = away_since or time.monotonic()
            if time.monotonic() - away_since > PATIENCE_S:
                raise FailureError(f"{error}; gave up after {PATIENCE_S:.0f} s") from None
        finally:
            server.client.close()
            server.client.timeout_s = ANSWER_S
        time.sleep(again_s)
        again_s = min(again_s * 1.5, AGAIN_MAX_S)


def told(event: "dict[str, Any]") -> str:
    """`41  12:30:01  JobStarted  job 12[5]  nodes n1`: one line, short enough to read."""
    fields = dict(event["event"])
    fields.pop("type", None)
    at = fields.pop("at", None)
    clock = time.strftime("%H:%M:%S", time.localtime(at / 1000)) if isinstance(at, int) else ""
    parts = [f"{event['seq']:>8}", clock, f"{event['type']:<18}"]
    if event["type"] == "PolicyChanged":
        return plain("  ".join([*parts, policy_told(fields)]))
    task = fields.pop("task", None)
    if isinstance(task, int):
        parts.append(f"job {shown(task >> ARRAY_BITS, (task & ARRAY_MASK) or None)}")
    parts += [f"{name} {short(value)}" for name, value in fields.items() if value is not None and value != ""]
    return plain("  ".join(parts))


def policy_told(fields: "dict[str, Any]") -> str:
    """In words; `tide policy history` says what it changed."""
    by = f" by {fields['by']}" if fields.get("by") else ""
    note = f": {fields['note']}" if fields.get("note") else ""
    return short(f"policy {fields['policy']['name']!r} is in force, version {fields['version']}{by}{note}")


def short(value: object) -> str:
    text = value if isinstance(value, str) else dumps(value)
    return text if len(text) <= LINE_MAX else text[: LINE_MAX - 1] + "…"


COMMANDS = {
    "events": Command(
        "events",
        "Writes the events of the journal: everything that has happened, in order. Without --after the last "
        f"{LAST}; with -f what happens from now on, also across a restart of the server.",
        events,
        "which events",
        flag("--follow -f", "go on as they happen"),
        Option("--after", "N", "those after number N", whole),
        *TALKING,
        examples="\ntide events -f\ntide events --after 1200 --json\n",
    )
}
