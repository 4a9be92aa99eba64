"""How things look to people, in tables of the server and of clients alike. As light as `states`, and why."""

from tidegate.wire import states

COLOURS = {
    states.RUNNING: "32", states.STARTING: "32", states.ENDING: "33", states.SUSPENDED: "33", states.HELD: "2",
    states.CANCELLED: "2",
    states.FAILED: "31", states.OUT_OF_MEMORY: "31", states.TIMED_OUT: "31", states.LOST: "31",
    states.MISSED_DEADLINE: "31", states.DEPENDENCY_FAILED: "31",
    "up": "32", "draining": "33", "drained": "33", "suspected": "33", "down": "31",
}  # fmt: skip


def painted(text: str, word: str) -> str:
    """In the colour that the word has; the text may be padded."""
    code = COLOURS.get(word)
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def cut(text: str, wide: int) -> str:
    return text if len(text) <= wide else text[: wide - 1] + "…"


def plain(text: str) -> str:
    """What others wrote must not move the cursor of this terminal."""
    return text if text.isprintable() else "".join(mark if mark.isprintable() else "?" for mark in text)
