"""Starts a server for a command that found none."""

import os
import subprocess
import sys
import tempfile
import time

from tidegate.cli.client import GoneError, Place
from tidegate.cli.failure import FailureError

OTHERS_S = 10.0
"""How long the server that another client starts at the same time may take, once ours has given way."""


def start_server(place: Place, within_s: float) -> None:
    """Returns when a server answers there: ours, or that of a client that was quicker."""
    refuse_foreign(place.home)
    command = [sys.executable, "-P", "-m", "tidegate.cli.main", "up", "--detach", "--home", place.home]
    with tempfile.TemporaryFile() as said:  # a pipe would stay open as long as the server lives
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=within_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise FailureError(
                f"the server for {place.home} is not up after {within_s:.0f} s; {place.look()}"
            ) from None
        if answers(place, OTHERS_S if done.returncode == 0 else OTHERS_S / 5):
            return
        said.seek(0)
        lines = said.read(1 << 16).decode(errors="replace").strip().splitlines()
    words = lines[-1].removeprefix("tide: ") if lines else ""
    raise FailureError(f"no server runs, and one could not be started: {words or 'it said nothing'}; {place.look()}")


def answers(place: Place, within_s: float) -> bool:
    until = time.monotonic() + within_s
    while True:
        try:
            place.connect().close()
        except GoneError:
            if time.monotonic() > until:
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
