"""`tide backup`, `tide restore`, `tide token`: done to a home, by whoever owns it."""

import os

from tidegate.cli import late
from tidegate.cli.failure import FailureError, UsageError
from tidegate.cli.options import Command, Option, Options, flag
from tidegate.cli.screen import json_rows, json_value, moment, table
from tidegate.cli.server import home_of
from tidegate.cli.values import name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ABOUT_HOME = (
    "options",
    Option("--home", "DIR", "whose (TIDEGATE_HOME); default: your own"),
    flag("--json", "JSON on standard output, for scripts"),
)


def backup(options: Options) -> int:
    return keep(options, late("tidegate.app.keep:backup"))


def restore(options: Options) -> int:
    put_back = late("tidegate.app.keep:restore")
    return keep(options, lambda home, file: put_back(home, file, force=options.force))


def keep(options: Options, act: "Callable[[str, str], str]") -> int:
    home, file = home_of(options), os.path.abspath(options.words[0])
    try:
        said = act(home, file)
    except (OSError, ValueError, late("tidegate.app.keep:JournalError")) as error:
        raise FailureError(str(error)) from None
    if options.json:
        json_value({"home": home, "file": file, "said": said})
    else:
        print(said)
    return 0


def token(options: Options) -> int:
    action, *names = options.words
    wanted = {"add": 1, "list": 0, "remove": 1}.get(action)
    if wanted is None:
        raise UsageError(f"tide token: {action[:40]!r} is nothing to do; write add NAME, list or remove NAME")
    if len(names) != wanted:
        raise UsageError(f"tide token {action}: write tide token {action}{' NAME' * wanted}")
    home = home_of(options)
    try:
        if action == "list":
            rows = late("tidegate.app.tokens:listed")(home)
        elif action == "add":
            print_token(options, names[0], late("tidegate.app.tokens:add")(home, name(names[0]), options.user))
            return 0
        else:
            late("tidegate.app.tokens:remove")(home, names[0])
            rows = []
    except OSError as error:
        raise FailureError(
            f"the tokens of {home} are not yours to use ({error.strerror}); ask whose server it is, or give --home"
        ) from None
    except ValueError as error:
        raise FailureError(str(error)) from None
    if options.json:
        json_rows(rows)
    elif action == "remove":
        print(f"removed the token of {names[0]}")
    elif rows:
        print(
            "\n".join(
                table(("NAME", "USER", "MADE"), [(row["name"], row["user"], moment(row["made_ms"])) for row in rows])
            )
        )
    else:
        print("no tokens; tide token add NAME makes one")
    return 0


def print_token(options: Options, who: str, secret: str) -> None:
    if options.json:
        json_value({"name": who, "token": secret})
    else:
        print(secret)


COMMANDS = {
    "backup": Command(
        "backup",
        "Writes a copy of the journal to a file, also while the server runs.",
        backup,
        *ABOUT_HOME,
        words="FILE",
        least=1,
        most=1,
        examples="\ntide backup monday.tide\n",
    ),
    "restore": Command(
        "restore",
        "Makes a home go on from a backup. Its server must be down; a journal that is there is kept beside.",
        restore,
        "what it may undo",
        flag("--force", "also where the home has events that the backup has not"),
        *ABOUT_HOME,
        words="FILE",
        least=1,
        most=1,
        examples="\ntide restore --home ~/again monday.tide\n",
    ),
    "token": Command(
        "token",
        "Tokens for clients that come by TCP (tide up --listen). `add` prints one, once: it is stored as a hash.",
        token,
        "who it stands for",
        Option("--user -u", "NAME", "another user than you; only where root's server is", name, default=""),
        *ABOUT_HOME,
        words="add NAME | list | remove NAME",
        least=1,
        most=2,
        examples="\nTIDEGATE_TOKEN=$(tide token add laptop)\ntide token add ada-laptop --user ada\ntide token list\n"
        "tide token remove laptop\n",
    ),
}
