"""Starts a server for a command that found none."""

import os
import subprocess
import sys
import tempfile
import time
from typing import IO

from tidegate.cli import late
from tidegate.cli.client import GoneError, Place
from tidegate.cli.failure import FailureError

SETTLE_S = 5.0
"""How long a server that is up may take to its first answer."""
GIVEN_WAY_S = 0.5
"""How long one that would not start may have needed to see that another was quicker."""
TOLD_AFTER_S = 10.0
SAID_MAX = 1 << 16


def start_server(place: Place, within_s: float) -> None:
    """Returns when a server answers there: ours, or that of a client that was quicker."""
    refuse_foreign(place.home)
    until = time.monotonic() + within_s
    command = [sys.executable, "-P", "-m", "tidegate.cli.main", "up", "--detach", "--home", place.home]
    with tempfile.TemporaryFile() as said:  # a pipe would stay open as long as the server lives
        try:
            code = run(command, said, within_s)
        except subprocess.TimeoutExpired:
            raise FailureError(f"no server is up in {place.home} after {within_s:.0f} s; {place.look()}") from None
        if answers(place, GIVEN_WAY_S if code else SETTLE_S, until):
            return
        said.seek(0)
        lines = said.read(SAID_MAX).decode(errors="replace").strip().splitlines()
    words = lines[-1].removeprefix("tide: ") if lines else ""
    look = f"; {place.look()}" * os.path.exists(place.log)  # it may not have come to that
    raise FailureError(f"no server runs, and one could not be started: {words or 'it said nothing'}{look}")


def run(command: list[str], said: IO[bytes], within_s: float) -> int:
    """Until it is up or has given way; a person is told when that takes a while."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        return child.wait(min(TOLD_AFTER_S, within_s))
    except subprocess.TimeoutExpired:
        print("tide: a server is starting for you; reading a long journal takes a while", file=sys.stderr)
        return child.wait(within_s)


def answers(place: Place, least_s: float, until: float) -> bool:
    """Whether one answers within `least_s`; or, where somebody holds the lock of the home, when that one is ready."""
    is_served = late("tidegate.app.home:is_served")
    least = time.monotonic() + least_s
    while True:
        try:
            place.connect().close()
        except GoneError:
            now = time.monotonic()
            if now > until or (now > least and not is_served(place.home)):
                return False
            time.sleep(0.05)
        else:
            return True


def refuse_foreign(home: str) -> None:
    """A server is never started in the home of somebody else."""
    try:
        owner = os.stat(home).st_uid
    except OSError:
        return  # not there yet: the server makes it, or says why it cannot
    if owner != os.geteuid():
        raise FailureError(
            f"no server runs in {home}, and it belongs to another user; they, or root, run tide up there"
        )
