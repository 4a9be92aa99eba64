"""The rule: thin and quick to start. What is heavy is imported by the command that needs it, through `app`."""

TYPE_CHECKING = False  # `typing` takes as long to import as the interpreter to start; type checkers know this name
if TYPE_CHECKING:
    from typing import Any


def late(target: str) -> "Any":
    """`module:name`, imported now: only the command that is run is loaded, and only what it needs."""
    module, _, name = target.partition(":")
    return getattr(__import__(module, fromlist=[name]), name)
