"""What the keeper keeps on disk: who claimed which attempt, and the ends that the server has not yet heard.

Both are lines appended to one file, the record; it is begun anew as it grows, and removed when all that was
ordered under it is forgotten. (A file for each claim would be made and removed with each job; a file system that
keeps numbers of removed files from being used again searches through all of those for each new one.)

Nothing is flushed: a machine that goes down takes the jobs with it, and whatever the record then misses is
answered as lost. It is for a keeper that is killed while the machine stays up.
"""

import json
import os
import time
from typing import NamedTuple

Key = tuple[int, int]
"""(task, attempt)"""

RECORD = "record."
NEW_AFTER = 1 << 18
NEW_WHEN_EMPTY_AFTER = 1 << 16
CLAIM_SIZE = 40


class End(NamedTuple):
    """How an attempt ended. What is kept is what is told."""

    task: int
    attempt: int
    outcome: str
    code: int = 0
    signal: int = 0
    used: tuple[int, int, int, int] = (-1, -1, -1, -1)  # cpu_ms, peak_kib, read_kib, written_kib
    why: str = ""

    def line(self) -> str:
        task, attempt, outcome, code, signal, used, why = self
        return (
            f'{{"is":"ended","task":{task},"attempt":{attempt},"outcome":"{outcome}","code":{code},'
            f'"signal":{signal},"used":[{used[0]},{used[1]},{used[2]},{used[3]}],"why":{quoted(why)}}}\n'
        )


def quoted(text: str) -> str:
    return json.dumps(text) if text else '""'


class Claim(NamedTuple):
    key: Key
    pid: int
    up_ms: int  # time since boot when it was made; the process that made it began no later


class Records:
    """All ends that are unheard, in memory as on disk. A full disk delays the file, never the end."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.unheard: dict[Key, End] = {}
        self.unwritten: list[tuple[int, End]] = []
        self.number_of: dict[Key, int] = {}  # under which record it was ordered
        self.open_keys: dict[int, set[Key]] = {}  # what of a record is not forgotten
        self.trouble = ""
        self.torn = False
        self.claims = self._read()
        self.number = max(self.open_keys, default=0)
        self.size = 0
        self.fd = -1
        self._begin()

    # -- reading, once -----------------------------------------------------------------------------------

    def _read(self) -> list[Claim]:
        """The ends of earlier keepers, and the claims of theirs that have no end."""
        claims: dict[Key, Claim] = {}
        for name in sorted(os.listdir(self.place)):
            number = name.removeprefix(RECORD)
            if name == number or not number.isdecimal():
                continue
            keys = self.open_keys[int(number)] = set()
            for read in lines_of(f"{self.place}/{name}"):
                if isinstance(read, Claim):
                    key = read.key
                    claims[key] = read
                else:
                    key = read[:2]
                    self.unheard[key] = read
                keys.add(key)
                self.number_of[key] = int(number)
        return [claim for key, claim in claims.items() if key not in self.unheard]

    def claimant(self, key: Key) -> int:
        """The process that has claimed it under a record of ours, or 0."""
        number = self.number_of.get(key)
        if number is None:
            return 0
        mine = [read for read in lines_of(self.path(number)) if isinstance(read, Claim) and read.key == key]
        return mine[-1].pid if mine else 0

    def path(self, number: int) -> str:
        return f"{self.place}/{RECORD}{number}"

    # -- writing -----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """A new record. What is ordered from now on belongs to it."""
        number = self.number + 1
        fd = os.open(self.path(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o600)
        if self.fd >= 0:
            os.close(self.fd)
        self.fd, self.number, self.size, self.torn = fd, number, 0, False
        self.open_keys[number] = set()
        for old in [old for old, keys in self.open_keys.items() if not keys and old != number]:
            self._remove(old)

    def _remove(self, number: int) -> None:
        del self.open_keys[number]
        try:
            os.unlink(self.path(number))
        except OSError:
            pass  # a successor would only repeat what was heard

    def order(self, key: Key) -> str:
        """The path at which the attempt is to be claimed."""
        self.number_of[key] = self.number
        self.open_keys[self.number].add(key)
        self.size += CLAIM_SIZE
        return self.path(self.number)

    def is_gone(self) -> bool:
        return not os.access(self.path(self.number), os.F_OK)

    def renew(self, running: dict[Key, int]) -> None:
        """The record was removed: a successor is told anew of `running`, with their processes, and of all ends."""
        self._begin()
        for key in (*running, *self.unheard):
            self.open_keys[self.number_of.get(key, self.number)].discard(key)
            self.order(key)
        up_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        claims = "".join(f"c {task} {attempt} {pid} {up_ms}\n" for (task, attempt), pid in running.items())
        self._append(self.number, claims.encode())
        self.unwritten = [(self.number, end) for end in self.unheard.values()]

    def add(self, end: End) -> None:
        key = end[:2]
        if key not in self.number_of:
            self.order(key)
        self.unheard[key] = end
        self.unwritten.append((self.number_of[key], end))

    def write(self) -> bool:
        """What is new goes to disk. False: it could not, and is to be tried again."""
        while self.unwritten:
            number = self.unwritten[0][0]
            lines = [end.line() for other, end in self.unwritten if other == number]
            if not self._append(number, "".join(lines).encode()):
                return False
            if len(lines) == len(self.unwritten):
                self.unwritten.clear()
            else:
                self.unwritten = [(other, end) for other, end in self.unwritten if other != number]
        self.trouble = ""
        return True

    def _append(self, number: int, text: bytes) -> bool:
        """A line that was torn is closed by the next one: others append to the same file."""
        text = b"\n" + text if self.torn else text
        fd = self.fd
        try:
            if number != self.number:
                fd = os.open(self.path(number), os.O_WRONLY | os.O_APPEND)
            written = os.write(fd, text)
        except OSError as error:
            self.trouble = f"cannot write {self.path(number)}: {error.strerror}"
            return False
        finally:
            if fd not in {self.fd, -1}:
                os.close(fd)
        self.torn = written < len(text)
        if self.torn:
            self.trouble = f"cannot write {self.path(number)}: no room left"
            return False
        self.size += written
        return True

    def forget(self, key: Key) -> None:
        """The server has it in its journal; or nothing was ever started."""
        self.unheard.pop(key, None)
        if self.unwritten:
            self.unwritten = [(number, end) for number, end in self.unwritten if end[:2] != key]
        number = self.number_of.pop(key, None)
        if number is not None:
            keys = self.open_keys[number]
            keys.discard(key)
            if not keys and number != self.number:
                self._remove(number)

    def tidy(self, *, idle: bool = False) -> None:
        """Begins a new record where this one has grown, or holds nothing that is not forgotten."""
        empty = not self.open_keys[self.number]
        if self.size > NEW_AFTER or (empty and self.size > (0 if idle else NEW_WHEN_EMPTY_AFTER)):
            try:
                self._begin()
            except OSError as error:
                self.trouble = f"cannot begin {self.path(self.number + 1)}: {error.strerror}"


def lines_of(path: str) -> list[Claim | End]:
    """Of one record. A torn line is skipped: what it would have told was told to nobody."""
    found: list[Claim | End] = []
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return found
    for line in lines:
        try:
            if line.startswith(b"c "):
                task, attempt, pid, up_ms = map(int, line[2:].split())
                found.append(Claim((task, attempt), pid, up_ms))
            elif line:
                end = json.loads(line)
                cpu_ms, peak_kib, read_kib, written_kib = end.pop("used")
                del end["is"]
                found.append(End(used=(cpu_ms, peak_kib, read_kib, written_kib), **end))
        except (ValueError, TypeError, LookupError, AttributeError):
            continue
    return found
