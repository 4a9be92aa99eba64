"""What passes between a job and the keeper: an ask is a file, an answer a line in a named pipe."""

import os
import time
from pathlib import Path
from typing import NamedTuple

ASKED, DONE = "TIDE_CHECKPOINT_ASKED", "TIDE_CHECKPOINT_DONE"
MIB = 1 << 20


answered: dict[str, int] = {}
"""The last ask that this process has answered, by its file: the keeper takes a moment to remove that."""


class Asked(NamedTuple):
    number: int
    ends: bool  # the job is ended when it has saved itself


def open_ask() -> Asked | None:
    path = os.environ.get(ASKED, "")
    if not path:
        return None
    try:
        number, what = Path(path).read_text(encoding="ascii").split()
        ask = Asked(int(number), what == "end")
    except (OSError, ValueError):
        return None  # nobody asks
    return ask if ask.number > answered.get(path, 0) else None


def tell(ask: Asked | None, taken: float | None, size_octets: int) -> bool:
    """`taken`: when the state was, on the monotonic clock; None: when it was asked. False: nobody listens."""
    mib = -(-size_octets // MIB)
    if taken is None:
        line = f"done - - {mib}"
    else:
        line = f"done {ask.number if ask is not None else 0} {round((time.monotonic() - taken) * 1000)} {mib}"
    try:
        pipe = os.open(os.environ.get(DONE, ""), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False  # not in a job, or its keeper is gone
    try:
        os.write(pipe, f"{line}\n".encode())
    except OSError:
        return False  # the pipe is full: it was said often enough
    finally:
        os.close(pipe)
    if ask is not None:  # of which a later one may have taken the place by now: then that is still open
        answered[os.environ.get(ASKED, "")] = ask.number
    return True
