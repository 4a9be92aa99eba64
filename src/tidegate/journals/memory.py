"""Journals without a disk: one that keeps events, and one that hands them on and keeps none."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol

from tidegate.model.events import Event
from tidegate.model.history import Ending


class MemoryJournal:
    """Keeps everything: for tests and small runs."""

    def __init__(self, *, history: bool = False) -> None:
        self.events: list[Event] = []
        self.endings: list[Ending] = []
        self.kept: list[tuple[int, bytes]] = []  # snapshots, oldest first
        self.keeps_history = history
        self.recorded = 0

    @property
    def seq(self) -> int:
        return len(self.events)

    def append(self, events: Sequence[Event]) -> None:
        self.events.extend(events)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def read(self, after: int = 0) -> Iterator[Event]:
        return islice(self.events, after, None)

    def record(self, endings: Sequence[Ending], upto: int) -> None:
        self.endings.extend(endings)
        self.recorded = upto

    def snapshots(self) -> Iterator[tuple[int, bytes]]:
        return reversed(self.kept)

    def keep_snapshot(self, seq: int, body: bytes) -> None:
        self.kept = [*self.kept[-1:], (seq, body)]


class Listener(Protocol):
    def append(self, events: Sequence[Event]) -> None: ...

    def flush(self) -> None: ...


class Tee:
    """Hands events on in groups, to each listener in order, and keeps none: for runs that can be run again."""

    GROUP = 1024

    def __init__(self, *listeners: Listener) -> None:
        self.listeners = listeners
        self.pending: list[Event] = []
        self.append = self.pending.extend
        self.handed_on = 0
        self.keeps_history = False
        self.recorded = 0

    @property
    def seq(self) -> int:
        return self.handed_on

    def flush(self) -> None:
        if len(self.pending) >= self.GROUP:
            self.close()

    def close(self) -> None:
        for listener in self.listeners:
            listener.append(self.pending)
            listener.flush()
        self.handed_on += len(self.pending)
        self.pending.clear()

    def read(self, after: int = 0) -> Iterator[Event]:
        raise RuntimeError("a tee keeps no events")

    def record(self, endings: Sequence[Ending], upto: int) -> None:
        raise RuntimeError("a tee keeps no history")

    def snapshots(self) -> Iterator[tuple[int, bytes]]:
        return iter(())

    def keep_snapshot(self, seq: int, body: bytes) -> None:
        raise RuntimeError("a tee keeps no snapshots")
