"""The replay's own ports: a clock that jumps, and an inbox that hands in a trace."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tidegate.core.accept import LIMIT_MAX_MS
from tidegate.lab.workload import Arrival
from tidegate.model.base import ARRAY_BITS
from tidegate.model.commands import Command, Refused, Submit
from tidegate.model.events import Event
from tidegate.model.jobs import Checkpoint


class VirtualClock:
    """Time that passes only when everybody waits for it."""

    def __init__(self, start: int = 0) -> None:
        self.time = start

    def now(self) -> int:
        return self.time

    def wait(self, until: int | None) -> bool:
        if until is None:
            return False
        self.time = max(self.time, until)
        return True


WHEN_INTERRUPTED = Checkpoint(every_ms=LIMIT_MAX_MS)
"""Here saving takes no time and nothing breaks: between interruptions nobody needs to ask."""


def saving(submit: Submit) -> Submit:
    return replace(submit, spec=replace(submit.spec, checkpoint=WHEN_INTERRUPTED))


class TraceInbox:
    """Submits each job of a trace at its time, and remembers how long it is going to run."""

    def __init__(self, arrivals: Iterator[Arrival], *, saves: bool = False) -> None:
        """`saves`: every job can save itself."""
        self.arrivals = arrivals
        self.saves = saves
        self.coming = next(arrivals, None)
        self.run_ms: dict[int, int] = {}
        self.refused: list[tuple[int, Refused]] = []
        self.taken = 0

    def next_at(self) -> int | None:
        return None if self.coming is None else self.coming.at_ms

    def take(self, now: int, at_most: int) -> Sequence[Command]:
        commands: list[Command] = []
        coming = self.coming
        while coming is not None and coming.at_ms <= now and len(commands) < at_most:
            commands.append(saving(coming.submit) if self.saves else coming.submit)
            self.run_ms[coming.submit.job] = coming.run_ms
            coming = next(self.arrivals, None)
        self.coming = coming
        self.taken += len(commands)
        return commands

    def answer(self, command: Command, result: tuple[Event, ...] | Refused) -> None:
        if isinstance(result, Refused):
            job: int = command.job  # type: ignore[union-attr]
            self.run_ms.pop(job, None)
            self.refused.append((job, result))

    def run_time(self, task: int, attempt: int) -> int:
        """What the virtual engine asks. An attempt that is lost runs anew, for as long again."""
        return self.run_ms[task >> ARRAY_BITS]
