"""`tide token`: who may come by TCP. The file is the server's to read at the next request."""

import os
import pwd
from pathlib import Path
from typing import Any

from tidegate.api.access import add_token, read_tokens, remove_token, user_name


def add(home: str, name: str, user: str = "") -> str:
    """The token, shown this once. It stands for whoever made it; for another user, with no more than their rights,
    where root made it.
    """
    own = user_name(os.geteuid())
    if user not in {"", own}:
        if os.geteuid() != 0:
            raise ValueError(f"this server runs jobs as {own} only, so its tokens are for {own}; leave out --user")
        if not is_user(user):
            raise ValueError(f"there is no user {user[:40]!r} on this machine; name one that is")
    folder = Path(home)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return add_token(folder / "tokens", name, user or own, admin=user in {"", own})


def is_user(name: str) -> bool:
    """By name, or the number of one that has none."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        return name.isascii() and name.isdigit() and len(name) < 10 and name == user_name(int(name))
    return True


def listed(home: str) -> list[dict[str, Any]]:
    tokens = read_tokens(Path(home) / "tokens")
    return [{"name": name, "user": one["user"], "made_ms": one["made_ms"]} for name, one in sorted(tokens.items())]


def remove(home: str, name: str) -> None:
    if not remove_token(Path(home) / "tokens", name):
        raise ValueError(f"there is no token {name!r}; `tide token list` names them")
