"""What passes between a job and the keeper: an ask is a file, an answer a line in a named pipe."""

import os
import time
from pathlib import Path
from typing import NamedTuple

ASKED, DONE = "TIDE_CHECKPOINT_ASKED", "TIDE_CHECKPOINT_DONE"
MIB = 1 << 20


class Asked(NamedTuple):
    number: int
    ends: bool  # the job is ended when it has saved itself


def open_ask() -> Asked | None:
    path = os.environ.get(ASKED, "")
    if not path:
        return None
    try:
        number, what = Path(path).read_text(encoding="ascii").split()
        return Asked(int(number), what == "end")
    except (OSError, ValueError):
        return None  # nobody asks


def tell(ask: Asked | None, taken: float | None, size_octets: int) -> bool:
    """`taken`: when the state was, on the monotonic clock; None: when it was asked. False: nobody listens."""
    line = "done"
    number = ask.number if ask is not None else 0
    if taken is not None:
        line += f" {number} {round((time.monotonic() - taken) * 1000)} {-(-size_octets // MIB)}"
    try:
        pipe = os.open(os.environ.get(DONE, ""), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False  # not in a job, or its keeper is gone
    try:
        return os.write(pipe, f"{line}\n".encode()) > 0
    except OSError:
        return False  # the pipe is full: it was said often enough
    finally:
        os.close(pipe)
