"""`tide token`: who may come by TCP. The file is the server's to read at the next request."""

from pathlib import Path
from typing import Any

from tidegate.api.access import add_token, read_tokens, remove_token, user_name


def add(home: str, name: str) -> str:
    """The token, shown this once. It stands for whoever made it."""
    import os

    folder = Path(home)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    uid = os.geteuid()
    return add_token(folder / "tokens", name, user_name(uid), admin=True)


def listed(home: str) -> list[dict[str, Any]]:
    tokens = read_tokens(Path(home) / "tokens")
    return [{"name": name, "user": one["user"], "made_ms": one["made_ms"]} for name, one in sorted(tokens.items())]


def remove(home: str, name: str) -> None:
    if not remove_token(Path(home) / "tokens", name):
        raise ValueError(f"there is no token {name!r}; `tide token list` names them")
