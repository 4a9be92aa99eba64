"""`tide policy`: what it may be told, and what needs no server: `list`, `check`, a policy by name, two compared."""

import sys

from tidegate.cli import late
from tidegate.cli.failure import FailureError, UsageError
from tidegate.cli.options import Command, Option, Options, count, flag, whole
from tidegate.cli.screen import json_rows, json_value
from tidegate.cli.server import TALKING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tidegate.model.policy import PolicySpec

DIFFERENT = 3
"""The exit code that --exit-code asks for."""
COMMON = frozenset({"home", "json"})
CHANGING = frozenset({"dry_run", "yes", "if_version", "note", "exit_code"})
ACTIONS: dict[str, tuple[str, int, int, frozenset[str]]] = {
    "show": (" [NAME|FILE]", 0, 1, frozenset({"version"})),
    "list": ("", 0, 0, frozenset()),
    "check": (" FILE", 1, 1, frozenset()),
    "diff": (" FILE|NAME", 1, 1, frozenset({"against", "exit_code"})),
    "apply": (" FILE|NAME", 1, 1, CHANGING),
    "history": ("", 0, 0, frozenset({"limit"})),
    "rollback": (" [VERSION]", 0, 1, CHANGING),
}
"""Of each: its words, how few and how many of them, and the options that go with it."""


def policy(options: Options) -> int:
    action, *words = options.words
    if action not in ACTIONS:
        raise UsageError(f"tide policy: {action[:40]!r} is nothing to do; write one of {', '.join(ACTIONS)}")
    wanted, least, most, allowed = ACTIONS[action]
    if not least <= len(words) <= most:
        raise UsageError(f"tide policy {action}: write tide policy {action}{wanted}")
    for name in sorted(options.given - allowed - COMMON):
        with_it = " and ".join(one for one, said in ACTIONS.items() if name in said[3])
        raise UsageError(f"tide policy {action}: --{name.replace('_', '-')} goes with {with_it}")
    if action == "list":
        return named(options)
    if action == "check":
        return check(options, words[0])
    if action == "show" and words:
        if options.version:
            raise UsageError("tide policy show: give a name or --version, not both")
        return show(options, words[0])
    if action == "diff" and options.against:
        return compare(options, options.against, words[0])
    return int(late(f"tidegate.cli.policy_live:{action}")(options, *words))


def read(name_or_path: str) -> "PolicySpec":
    from tidegate.wire.policy_file import PolicyError, read_policy

    try:
        return read_policy(name_or_path)
    except PolicyError as error:
        raise FailureError(str(error)) from error


def named(options: Options) -> int:
    from tidegate.wire.policy_file import builtin_names, load_builtin

    rows = [{"name": name, "why": load_builtin(name).why} for name in builtin_names()]
    if options.json:
        json_rows(rows)
    else:
        print("\n".join(f"{row['name']:16} {row['why']}" for row in rows))
    return 0


def show(options: Options, name: str) -> int:
    from tidegate.wire.policy_file import dump_policy

    spec = read(name)
    if options.json:
        json_value({"name": spec.name, "text": dump_policy(spec)})
    else:
        print(dump_policy(spec), end="")
    return 0


def check(options: Options, path: str) -> int:
    """Every error and every doubt, each with its line; exit code 1 if there is an error."""
    from pathlib import Path

    from tidegate.wire.policy_file import PolicyError, inspect_policy, read_policy

    try:
        spec = read_policy(Path(path))  # what is checked is a file, whatever it is called
    except PolicyError as error:
        if options.json:
            json_value({"file": path, "good": False, "errors": str(error).split("\n"), "warnings": []})
        else:
            print(error, file=sys.stderr)
        return 1
    with open(path, "rb") as stream:
        doubts = inspect_policy(stream.read()).warnings
    if options.json:
        warnings = [f"{path}:{doubt}" for doubt in doubts]
        json_value({"file": path, "good": True, "errors": [], "warnings": warnings})
        return 0
    for doubt in doubts:
        print(f"{path}:{doubt.line}:{doubt.column}: warning: {doubt.path}: {doubt.message}; {doubt.cure}")
    print(f"{path}: policy {spec.name!r} is good")
    return 0


def compare(options: Options, old: str, new: str) -> int:
    """Two files or names, without a server."""
    from tidegate.wire.policy_diff import changes

    before, after = read(old), read(new)
    found = [one._asdict() for one in changes(before, after)]
    diff = {"old": before.name, "new": after.name, "changes": found, "warnings": [], "effect": None, "trouble": ""}
    if options.json:
        json_value(diff)
    else:
        late("tidegate.cli.policy_live:print_diff")(diff)
    return DIFFERENT if found and options.exit_code else 0


COMMANDS = {
    "policy": Command(
        "policy",
        "Who goes first, and how that is changed: from the next cycle on, never for what runs.\n"
        "show [NAME|FILE]: the policy in force as a file, or another one in full.\n"
        "list: the built-in ones. check FILE: what is wrong with it, by line.\n"
        "diff NAME|FILE: what another policy would change, field by field, and for the jobs that wait.\n"
        "apply NAME|FILE: puts it in force; the same again changes nothing.\n"
        "history: what was in force. rollback [VERSION]: back to it; without VERSION to the one before.",
        policy,
        "show, diff, history",
        Option("--version", "N", "show that one, instead of the one in force", count, default=0),
        Option("--against", "FILE|NAME", "compare with that, without a server"),
        Option("--limit", "N", "so many versions (default 50)", count, default=50),
        "apply, rollback",
        flag("--dry-run", "all checks, and what would change; nothing is changed"),
        flag("--yes -y", "do not ask; needed where nobody is there to answer"),
        Option("--if-version", "N", "only if version N is in force", whole),
        Option("--note", "TEXT", "why, for the history"),
        flag("--exit-code", f"diff, --dry-run: exit with {DIFFERENT} where there is a difference"),
        *TALKING,
        words="ACTION [NAME|FILE|VERSION]",
        least=1,
        most=2,
        examples="""
tide policy show > site.yaml
tide policy check site.yaml
tide policy diff site.yaml
tide policy apply site.yaml --yes --note "$CI_COMMIT"
tide policy rollback
""",
    )
}
