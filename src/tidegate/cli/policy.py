"""`tide policy check|show|list`."""

import sys
from pathlib import Path

from tidegate.cli.failure import FailureError, UsageError
from tidegate.cli.options import Options


def policy(options: Options) -> int:
    from tidegate.app.replay import PolicyError, builtin_names, dump_policy, load_builtin, read_policy

    action, *names = options.words
    if action not in {"check", "show", "list"} or len(names) != (action != "list"):
        raise UsageError("tide policy: write check FILE, show NAME|FILE or list")
    try:
        match action:
            case "list":
                for name in builtin_names():
                    print(f"{name:16} {load_builtin(name).why}")
            case "show":
                print(dump_policy(read_policy(names[0])), end="")
            case _:
                return check(Path(names[0]))
    except PolicyError as error:
        raise FailureError(str(error)) from error
    return 0


def check(path: Path) -> int:
    """Every error and every doubt, each with its line; exit code 1 if there is an error."""
    from tidegate.app.replay import PolicyError, inspect_policy, read_policy

    try:
        spec = read_policy(path)
    except PolicyError as error:
        print(error, file=sys.stderr)
        return 1
    for doubt in inspect_policy(path.read_bytes()).warnings:
        print(f"{path}:{doubt.line}:{doubt.column}: warning: {doubt.path}: {doubt.message}; {doubt.cure}")
    print(f"{path}: policy {spec.name!r} is good")
    return 0
