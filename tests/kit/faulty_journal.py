"""A journal on a bad disk, and people who remember what they were told.

A flush fails before anything is written, or says that it failed after all was; both leave the events waiting, as
`tidegate.ports.Journal` has it. What was flushed survives a crash, and nothing else does.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import islice

from tidegate.model.events import Event
from tidegate.model.history import Ending
from tidegate.ports import JournalFullError


class DiskError(Exception):
    """The process dies here."""


class FaultyJournal:
    def __init__(self, seed: int, *, failing: int, dying: int) -> None:
        """`failing` and `dying` of a thousand."""
        self.random = random.Random(seed)
        self.failing, self.dying = failing, dying
        self.safe: list[Event] = []
        self.pending: list[Event] = []
        self.rows: list[Ending] = []
        self.backlog: list[Ending] = []
        self.keeps_history = True
        self.recorded = self.upto = 0
        self.kept: list[tuple[int, bytes]] = []
        self.failures = 0

    @property
    def seq(self) -> int:
        return len(self.safe)

    def append(self, events: Sequence[Event]) -> None:
        if self.random.randrange(1000) < self.dying:
            raise DiskError("while appending")
        self.pending.extend(events)

    def flush(self) -> None:
        drawn = self.random.randrange(1000)
        if drawn < self.dying:
            raise DiskError("before the flush")
        if drawn < self.dying + self.failing:
            self.failures += 1
            raise JournalFullError("no room; make some")
        self.safe.extend(self.pending)
        self.pending.clear()
        if self.random.randrange(2):
            self.rows.extend(self.backlog)
            self.backlog.clear()
            self.recorded = self.upto
        if drawn >= 1000 - self.dying:
            raise DiskError("after the flush")

    def close(self) -> None:
        self.flush()

    def read(self, after: int = 0) -> Iterator[Event]:
        return islice(self.safe, after, None)

    def record(self, endings: Sequence[Ending], upto: int) -> None:
        self.backlog.extend(endings)
        self.upto = upto

    def snapshots(self) -> Iterator[tuple[int, bytes]]:
        return reversed(self.kept)

    def keep_snapshot(self, seq: int, body: bytes) -> None:
        self.kept = [*self.kept[-1:], (seq, body)]

    def crash(self) -> None:
        self.pending.clear()
        self.backlog.clear()
        self.upto = self.recorded
