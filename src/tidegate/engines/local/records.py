"""What the keeper keeps on disk: the ends that the server has not yet heard, and who claimed which attempt.

Nothing is flushed: a machine that goes down takes the jobs with it, and whatever these files then miss is
answered as lost. They are for a keeper that is killed while the machine stays up.
"""

import json
import os
from typing import NamedTuple

Key = tuple[int, int]
"""(task, attempt)"""

COMPACT_OVER = 1 << 20
IDLE_OVER = 1 << 16
"""An exits file is begun anew when it is larger than this: what is heard of, and when nothing is unheard."""


class End(NamedTuple):
    """How an attempt ended, as it is told and kept."""

    task: int
    attempt: int
    outcome: str
    code: int = 0
    signal: int = 0
    used: tuple[int, int, int, int] = (-1, -1, -1, -1)  # cpu_ms, peak_kib, read_kib, written_kib
    why: str = ""


class Exits:
    """The ends that are unheard, in memory and appended to a file. A full disk delays the file, never the end."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.unheard: dict[Key, End] = {}
        self.unwritten: list[End] = []
        self.trouble = ""
        self._read()
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.size = os.fstat(self.fd).st_size
        self._end_torn_line()

    def _read(self) -> None:
        """A torn last line is an end that was never told; its claim says what to make of it."""
        try:
            with open(self.path, "rb") as file:
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return
        for line in lines[:-1]:
            try:
                task, attempt, outcome, code, signal, used, why = json.loads(line)
                end = End(int(task), int(attempt), str(outcome), int(code), int(signal), tuple(used), str(why))
            except (ValueError, TypeError):
                continue
            self.unheard[end.task, end.attempt] = end

    def _end_torn_line(self) -> None:
        if self.size and os.pread(self.fd, 1, self.size - 1) != b"\n":
            self._cut(os.pread(self.fd, self.size, 0).rfind(b"\n") + 1)

    def add(self, end: End) -> None:
        self.unheard[end.task, end.attempt] = end
        self.unwritten.append(end)

    def write(self) -> bool:
        """What is new goes to the file. False: it could not, and is to be tried again."""
        if not self.unwritten:
            return True
        text = b"".join(json.dumps(end, separators=(",", ":")).encode() + b"\n" for end in self.unwritten)
        try:
            written = os.write(self.fd, text)
        except OSError as error:
            self.trouble = f"cannot write {self.path}: {error.strerror}"
            return False
        if written < len(text):
            self._cut(self.size)
            self.trouble = f"cannot write {self.path}: no room for a whole record"
            return False
        self.size += written
        self.unwritten.clear()
        self.trouble = ""
        return True

    def _cut(self, size: int) -> None:
        os.ftruncate(self.fd, size)
        self.size = size

    def forget(self, key: Key) -> bool:
        end = self.unheard.pop(key, None)
        if end is not None and self.unwritten and end in self.unwritten:
            self.unwritten.remove(end)
        return end is not None

    def tidy(self, *, idle: bool) -> None:
        """Called when there is time: the file holds what is unheard, and a bounded amount of what is not."""
        if not self.unheard and not self.unwritten:
            if self.size > IDLE_OVER or (idle and self.size):
                self._cut(0)
        elif self.size > COMPACT_OVER and self.size > 512 * len(self.unheard):
            self._compact()

    def _compact(self) -> None:
        aside = self.path + ".new"
        try:
            with open(aside, "wb") as file:
                for end in self.unheard.values():
                    file.write(json.dumps(end, separators=(",", ":")).encode() + b"\n")
            os.rename(aside, self.path)  # noqa: PTH104 - pathlib is not for the keeper
        except OSError:
            return  # the old file is whole; the next time may find room
        os.close(self.fd)
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.size = os.fstat(self.fd).st_size
        self.unwritten.clear()


class Claim(NamedTuple):
    key: Key
    pid: int
    up_ms: int  # time since boot when it was made; the process that made it began no later


class Claims:
    """One symlink an attempt, made by the launcher's child before it becomes the job: `PID UP_MS`."""

    def __init__(self, path: str) -> None:
        self.path = path
        os.makedirs(path, 0o700, exist_ok=True)  # noqa: PTH103 - as above

    def path_of(self, key: Key) -> str:
        return f"{self.path}/{key[0]}.{key[1]}"

    def owner(self, key: Key) -> Claim | None:
        try:
            pid, up_ms = os.readlink(self.path_of(key)).split()  # noqa: PTH115 - as above
            return Claim(key, int(pid), int(up_ms))
        except (OSError, ValueError):
            return None

    def all(self) -> list[Claim]:
        claims = []
        for name in sorted(os.listdir(self.path)):  # noqa: PTH208 - as above
            task, dot, attempt = name.partition(".")
            if dot and task.isdecimal() and attempt.isdecimal():
                key = (int(task), int(attempt))
                claims.append(self.owner(key) or Claim(key, 0, 0))
        return claims

    def drop(self, key: Key) -> None:
        try:
            os.unlink(self.path_of(key))  # noqa: PTH108 - as above
        except OSError:
            pass  # never made, or gone before
