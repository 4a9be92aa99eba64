"""`tide policy show|diff|apply|history|rollback` of a server: what is in force, and what takes its place."""

import os
import sys

from tidegate.cli.failure import FailureError, UsageError
from tidegate.cli.options import Options, count
from tidegate.cli.policy import DIFFERENT
from tidegate.cli.screen import json_rows, json_value, moment, table, width
from tidegate.cli.server import ALWAYS, KNOWN, Server
from tidegate.cli.values import octets_of
from tidegate.wire.look import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PATH = "/v1/policy"
SIZE_MAX = 64 * 1024
NOT_KNOWN = "(not known)"


# -- looking -------------------------------------------------------------------------------------------------


def show(options: Options) -> int:
    found = Server(options, KNOWN).call("GET", PATH, {"version": options.version or None})
    if options.json:
        json_value(found)
        return 0
    by = f" by {found['by']}" if found["by"] else ""
    since = f", applied {moment(found['at_ms'])}{by}" if found["at_ms"] else ""
    note = f": {found['note']}" if found["note"] else ""
    print(f"# version {found['version']}{plain(f'{since}{note}')}")
    print(found["text"], end="")
    return 0


def history(options: Options) -> int:
    found = Server(options, KNOWN).call("GET", f"{PATH}/history", {"limit": options.limit})
    rows = found["versions"]
    if options.json:
        json_rows(rows)
        return 0
    heads = ("VERSION", "WHEN", "BY", "POLICY", "CHANGED", "NOTE")
    cells = [
        (str(row["version"]), moment(row["at_ms"]) or NOT_KNOWN,
         *(plain(str(row[name])) for name in ("by", "name", "changed", "note")))
        for row in rows
    ]  # fmt: skip
    print("\n".join(table(heads, cells, right="VERSION", elastic="CHANGED NOTE", across=width())))
    if found.get("more"):
        print(f"and older ones: tide policy history --limit {2 * options.limit}")
    return 0


def diff(options: Options, word: str) -> int:
    choice = choice_of(word)  # before a server may be started for it
    found = Server(options, KNOWN).call("POST", f"{PATH}/diff", None, choice)
    if options.json:
        json_value(found)
    else:
        print_diff(found)
    return DIFFERENT if found["changes"] and options.exit_code else 0


# -- changing ------------------------------------------------------------------------------------------------


def apply(options: Options, word: str) -> int:
    must_be_answerable(options)
    choice = choice_of(word)  # before a server may be started for it
    return change(Server(options, ALWAYS), options, {**choice, "note": options.note or ""})


def rollback(options: Options, word: str = "") -> int:
    try:
        named = count(word) if word else 0
    except ValueError as error:
        raise UsageError(f"tide policy rollback: {error}; tide policy history lists the versions") from None
    must_be_answerable(options)
    server = Server(options, KNOWN)
    version = named or server.call("GET", PATH)["version"] - 1
    if not version:
        raise FailureError("the policy in force is the first one; there is none to go back to")
    return change(server, options, {"version": version, "note": options.note or f"back to version {version}"})


def must_be_answerable(options: Options) -> None:
    if not (options.yes or options.dry_run) and (options.json or not sys.stdin.isatty()):
        action = options.words[0]
        raise UsageError(f"tide policy {action}: nobody is here to be asked; say --yes, or --dry-run to only look")


def change(server: Server, options: Options, wish: "dict[str, Any]") -> int:
    """Shown first, then put in force over just the version that it was compared with."""
    if options.if_version is not None:
        wish["if_version"] = options.if_version
    tried = server.call("PUT", PATH, None, {**wish, "dry_run": True})
    found = tried["diff"]
    differs = bool(found["changes"])
    if options.json:
        if options.dry_run or not differs:
            json_value(tried)
    elif differs:
        print_diff(found)
    else:
        print(f"unchanged: policy {plain(repr(found['old']))} is in force, version {found['version']}")
    if options.dry_run or not differs:
        return DIFFERENT if differs and options.exit_code else 0
    if not (options.yes or is_confirmed(found["new"])):
        print("nothing was changed", file=sys.stderr)
        return 1
    # Harmless to send twice: what is in force already changes nothing.
    done = server.call("PUT", PATH, None, {"if_version": found["version"], **wish})
    if options.json:
        json_value({**done, "diff": found})
    else:
        print(f"policy {plain(repr(done['name']))} is in force, version {done['version']}")
    return 0


def is_confirmed(name: str) -> bool:
    sys.stdout.write(f"put policy {plain(repr(name))} in force? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def choice_of(word: str) -> "dict[str, Any]":
    """What a request says of a built-in policy, or of a file; `-` is standard input."""
    from tidegate.wire.policy_file import builtin_names

    if word != "-" and (word in builtin_names() or not (os.path.exists(word) or set(word) & set("/\\."))):
        return {"name": word}
    try:
        octets = octets_of(word, SIZE_MAX + 1)
        text = octets.decode("utf-8-sig")
    except OSError as error:
        raise FailureError(f"{word}: cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise FailureError(f"{word}: not UTF-8; save the file as UTF-8") from None
    if len(octets) > SIZE_MAX or not text.strip():
        wrong = f"larger than {SIZE_MAX // 1024} KiB" if text else "the file is empty"
        raise FailureError(f"{word}: {wrong}; a policy takes a page")
    return {"text": text, "source": "standard input" if word == "-" else word[-200:]}


# -- telling -------------------------------------------------------------------------------------------------


def print_diff(found: "dict[str, Any]") -> None:
    for warning in found["warnings"]:
        print(f"tide: warning: {plain(warning)}", file=sys.stderr)
    version = f" (version {found['version']})" if "version" in found else ""
    old, new = plain(repr(found["old"])), plain(repr(found["new"]))
    changes = found["changes"]
    if not changes:
        print(f"policy {old}{version} says the same")
        return
    print(f"policy {old}{version} → {new}")
    wide = max(len(one["path"]) for one in changes)
    for at, one in enumerate(changes):
        before, after = (plain(side if side is not None else "(none)") for side in (one["old"], one["new"]))
        print(f"  {plain(one['path']):{wide}}  {before} → {after}")
        if one["why"] and [other["why"] for other in changes[at + 1 : at + 2]] != [one["why"]]:
            print(f"  {'':{wide}}  why: {plain(one['why'])}")
    if found["trouble"]:
        print(f"\nwhat it means for the jobs could not be worked out: {plain(found['trouble'])}")
    elif found["effect"] is not None:
        print_effect(found["effect"])


def touched(interrupted: int) -> str:
    """What the other policy does to those that run; -1: it may interrupt nobody."""
    if interrupted > 0:
        return f"{interrupted:,} would be interrupted at once, and others may be later"
    return "not touched" if interrupted < 0 else "none interrupted at once, some may be later"


def print_effect(effect: "dict[str, Any]") -> None:
    waiting, running, looked_at = effect["waiting"], effect["running"], effect["looked_at"]
    line = (
        f"{counted(running, 'task')} running: {touched(effect['interrupted'])}. "
        f"{counted(waiting, 'job')} waiting for room or a turn"
    )
    if not waiting:
        print(f"\n{line}: it changes nothing for any of them.")
        return
    print(f"\n{line}; {looked_at:,} looked at, the first {effect['first']:,} of each pool's line at most.")
    heads = ["QUEUE", "CLASS", "WAITING", "SEEN", "FORWARD", "BACK", "STARTS", "REFUSED"]
    rows = [
        [plain(row["queue"]), plain(row["class"]), *(f"{row[name]:,}" for name in ("waiting", "looked_at", "forward")),
         f"{row['back']:,}", f"{row['starts_before']:,} → {row['starts_after']:,}", f"{row['refused']:,}"]
        for row in effect["rows"]
    ]  # fmt: skip
    across, elastic = width(), "QUEUE CLASS"
    print("\n".join(table(heads, rows, right=" ".join(heads[2:]), elastic=elastic, across=across)))
    if effect["cut"]:
        print("the next cycle is cut by cycle.starts_max, so more than these start soon")
    kept, new, lost, later = (effect[f"promises_{name}"] for name in ("kept", "new", "lost", "later"))
    if kept or new or lost:
        print(f"promised starts: {kept:,} kept ({later:,} of them for later), {new:,} new, {lost:,} lost")
    if effect["refusals"]:
        print("refused if submitted now; what waits already stays:")
        print("\n".join(f"  {plain(one)}" for one in effect["refusals"]))


def counted(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
