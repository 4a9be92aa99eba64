"""`tide demo` on a terminal of 80 columns: its story fits, and Ctrl-C at any moment leaves nothing behind."""

import fcntl
import os
import pty
import random
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

COLUMNS = 80
PATIENCE_S = 90
CTRL_C = b"\x03"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """A demo on a pseudo terminal, with temporary files of its own."""

    def __init__(self, place: Path, *words: str) -> None:
        self.place = place
        self.said = ""
        self.pid, self.fd = pty.fork()
        if not self.pid:
            environment = {**os.environ, "TMPDIR": str(place), "TERM": "xterm"}
            environment.pop("COLUMNS", None)
            os.execve(sys.executable, [sys.executable, "-m", "tidegate.cli.main", "demo", *words], environment)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))

    def until(self, text: str = "", seconds: float = PATIENCE_S) -> bool:
        """Reads on. False: it has ended, or the time is over."""
        end = time.monotonic() + seconds
        while not text or text not in self.said:
            if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                return False
            try:
                part = os.read(self.fd, 65536)
            except OSError:  # the other end is closed
                part = b""
            if not part:
                return False
            self.said += CONTROL.sub("", part.decode(errors="replace"))
        return True

    def press(self, keys: bytes) -> None:
        with suppress(OSError):  # it has ended by itself
            os.write(self.fd, keys)

    def code(self) -> int:
        """How it ended; whatever it said is read by then."""
        assert not self.until()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def left(self) -> list[str]:
        """Files, and processes that name them."""
        commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        mine = [command.decode(errors="replace") for command in commands if str(self.place).encode() in command]
        return [*map(str, self.place.iterdir()), *mine]


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    screen = Screen(tmp_path)
    yield screen
    os.close(screen.fd)


@pytest.mark.slow
def test_it_ends_with_who_waited_how_long_and_why(screen: Screen):
    began = time.monotonic()
    assert screen.code() == 0, screen.said
    assert time.monotonic() - began < 60
    table = screen.said[screen.said.index("Who waited how long, and why") :]
    assert max(map(len, table.splitlines())) < COLUMNS
    for part in ("background work", "a job that prepares", "tasks that depend on it", "a critical job"):
        row = re.search(rf"{part} +(\d+) +([\d.]+) s +([\d.]+) s\r\n +\S", table)
        assert row, f"{part}: its number, its waits, and the reason below:\n{table}"
    assert "126 real processes" in table
    assert screen.left() == []


@pytest.mark.slow
def test_the_story_of_100_models_behind_one_large_job(tmp_path: Path):
    began, screen = time.monotonic(), Screen(tmp_path, "--story")
    assert screen.code() == 0, screen.said
    assert time.monotonic() - began < 120
    table = screen.said[screen.said.index("How long after it was submitted") :]
    assert max(map(len, table.splitlines())) < COLUMNS
    fell = re.search(r"Mean completion fell by (\d+)% on the same nodes; 204 real processes", table)
    assert fell, table
    assert int(fell[1]) >= 60
    assert screen.left() == []
    os.close(screen.fd)


MOMENTS = ["", "A server of its own", "running", "8 running", "0/1"]
"""At once, as soon as there is a server, with jobs; each and a random time after."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_leaves_nothing(screen: Screen, moment: str):
    if moment:
        assert screen.until(moment), screen.said
    wait_s = random.uniform(0, 0.6)
    screen.until("Who waited", seconds=wait_s)
    screen.press(CTRL_C)
    assert screen.until("nterrupt"), screen.said
    screen.press(CTRL_C)  # a second one must not cut the cleaning short
    assert screen.code() in {130, -signal.SIGINT}, f"after {wait_s:.3f} s: {screen.said}"
    assert screen.left() == [], f"after {wait_s:.3f} s"
