"""The rule: what the loop needs from outside, as protocols, and nothing else.

Live, replay and forecast are the same loop with other implementations of these four.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from tidegate.model.commands import Command, Refused
from tidegate.model.engine import Directive, Report
from tidegate.model.events import Event


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds; never smaller than the last answer."""
        ...

    def wait(self, until: int | None) -> bool:
        """Sleeps until then or until something arrives; False: nothing can ever arrive again."""
        ...


class Journal(Protocol):
    def append(self, events: Sequence[Event]) -> None:
        """Takes the events in order; they are safe only after the next `flush`."""
        ...

    def flush(self) -> None: ...

    def close(self) -> None:
        """Flushes; nothing is appended after it."""
        ...

    def read(self, after: int = 0) -> Iterator[Event]:
        """The events from number `after` + 1 on."""
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
