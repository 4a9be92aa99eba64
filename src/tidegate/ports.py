"""The rule: what the loop needs from outside, as protocols, and nothing else.

Live, replay and forecast are the same loop with other implementations of these four.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from tidegate.model.commands import Command, Refused
from tidegate.model.engine import Directive, Report
from tidegate.model.events import Event
from tidegate.model.history import Ending


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds; never smaller than the last answer."""
        ...

    def wait(self, until: int | None) -> bool:
        """Sleeps until then or until something arrives; False: nothing can ever arrive again."""
        ...


class JournalError(Exception):
    """The journal cannot be read or written; the message says what is wrong and what to do."""


class JournalFullError(JournalError):
    """There is no room now: the same `flush`, later, may succeed."""


class Journal(Protocol):
    keeps_history: bool  # whoever applies events calls `record` too

    @property
    def seq(self) -> int:
        """The number of the last event that is safe; the first event is number 1."""
        ...

    def append(self, events: Sequence[Event]) -> None:
        """Takes the events in order; they are safe only after the next `flush`. Never fails."""
        ...

    def flush(self) -> None:
        """All or nothing. After a JournalError nothing was written and nothing forgotten: call it again, or stop."""
        ...

    def close(self) -> None:
        """Flushes; nothing is appended after it."""
        ...

    def read(self, after: int = 0) -> Iterator[Event]:
        """The safe events from number `after` + 1 on."""
        ...

    # -- the history: what of the events is asked for later, as rows --------------------------------------

    @property
    def recorded(self) -> int:
        """What ended by the events up to this number is in the history, safely."""
        ...

    def record(self, endings: Sequence[Ending], upto: int) -> None:
        """All that ended by the events after the last call and up to number `upto`. Never fails."""
        ...

    # -- snapshots: a fold may begin at one ---------------------------------------------------------------

    def snapshots(self) -> Iterator[tuple[int, bytes]]:
        """(number of its last event, the state), newest first; empty octets where it is damaged."""
        ...

    def keep_snapshot(self, seq: int, body: bytes) -> None:
        """Keeps it beside the one before, and lets go of older ones."""
        ...


class Engine(Protocol):
    def deliver(self, directives: Sequence[Directive], now: int) -> None:
        """Must do nothing for an attempt it already has."""
        ...

    def reports(self, now: int) -> Sequence[Report]: ...

    def next_at(self) -> int | None:
        """When the next report is due, where that is known."""
        ...

    # A report counts as heard when `reports` is called again: the turn that took it has flushed by then.


class Inbox(Protocol):
    def take(self, now: int, at_most: int) -> Sequence[Command]: ...

    def answer(self, command: Command, result: "Refused | tuple[Event, ...]") -> None:
        """Called once a command, after its events are safe."""
        ...

    def next_at(self) -> int | None: ...
