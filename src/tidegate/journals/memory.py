"""Journals without a disk: one that keeps events, and one that hands them on and keeps none."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol

from tidegate.model.events import Event


class MemoryJournal:
    """Keeps everything: for tests and small runs."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def append(self, events: Sequence[Event]) -> None:
        self.events.extend(events)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def read(self, after: int = 0) -> Iterator[Event]:
        return islice(self.events, after, None)


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

    def flush(self) -> None:
        if len(self.pending) >= self.GROUP:
            self.close()

    def close(self) -> None:
        for listener in self.listeners:
            listener.append(self.pending)
            listener.flush()
        self.pending.clear()

    def read(self, after: int = 0) -> Iterator[Event]:
        raise RuntimeError("a tee keeps no events")
