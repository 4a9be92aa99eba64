"""What became of promises: the first start that each job was promised, against when it started, and why later.

Why is told from what happened between two cycles, as far as that says: a run outlived its estimate, nodes came or
went, or neither, and then others went ahead within what `backfill.slip` allows, or had their turn before.
"""

from array import array
from collections.abc import Callable

from tidegate.model.base import ARRAY_BITS
from tidegate.model.events import (
    AttemptLost,
    CycleRan,
    EstimateRaised,
    Event,
    JobDropped,
    JobEnded,
    JobStarted,
    NodeChanged,
    NodeSuspected,
    NodeTried,
    PolicyChanged,
    Promise,
)

OVERRUN, NODES, BACKFILL, TURN = "overrun", "nodes", "backfill", "turn"
CAUSES = (OVERRUN, NODES, BACKFILL, TURN)
LATE_KEPT_MAX = 1 << 20
"""So many late starts are remembered, to say how late they were; later ones are counted."""


class Told:
    """What a task was promised."""

    __slots__ = ("allowed_ms", "best", "first", "last", "late", "slipped")

    def __init__(self, start_by: int, allowed_ms: int) -> None:
        self.first = self.best = self.last = start_by  # `best`: what backfilling may delay from, as in the world
        self.allowed_ms = allowed_ms
        self.slipped = 0  # the most that others who went ahead delayed it by
        self.late: dict[str, int] = {}  # by cause


class Promises:
    """Is told every event, in order. `run_ms`: how long planning assumes a task to run."""

    def __init__(self, run_ms: Callable[[int], int], late_kept_max: int = LATE_KEPT_MAX) -> None:
        self.run_ms = run_ms
        self.told: dict[int, Told] = {}  # by task
        self.percent = 0
        self.cause = ""  # of what the next cycle will move
        self.made = self.kept = 0
        self.late_ms = array("q")  # of those that were not kept
        self.late_kept_max = late_kept_max
        self.late_by = dict.fromkeys(CAUSES, 0)  # how many each cause delayed most
        self.backfill_percent_max = 0  # of a job's run time, by which backfilling delayed it

    def note(self, event: Event) -> None:
        match event:
            case CycleRan():
                for promise in event.promised:
                    self._promised(promise)
                self.cause = ""
            case JobStarted():
                if event.task in self.told:
                    self._started(event)
            case JobEnded():
                if self.told:
                    self.told.pop(event.task, None)
            case EstimateRaised():
                self.cause = OVERRUN
            case NodeChanged() | NodeSuspected() | NodeTried() | AttemptLost():
                self.cause = self.cause or NODES
            case JobDropped():
                for task in [task for task in self.told if task >> ARRAY_BITS == event.job]:
                    del self.told[task]
            case PolicyChanged():
                self.percent = event.policy.backfill.slip_percent
            case _:
                pass

    def _promised(self, promise: Promise) -> None:
        told = self.told.get(promise.task)
        if told is None:
            self.made += 1
            self.told[promise.task] = Told(promise.start_by, self.run_ms(promise.task) * self.percent // 100)
            return
        self._moved(told, promise.start_by)

    def _moved(self, told: Told, start: int) -> None:
        later = start - told.last
        if later > 0:
            within = start <= told.best + told.allowed_ms
            cause = self.cause or (BACKFILL if within else TURN)
            told.late[cause] = told.late.get(cause, 0) + later
            if cause == BACKFILL:
                told.slipped = max(told.slipped, start - told.best)
            if not within:
                told.best = start
        told.best, told.last = min(told.best, start), start

    def _started(self, event: JobStarted) -> None:
        told = self.told.pop(event.task)
        self._moved(told, event.at)
        percent = told.slipped * 100 // max(1, self.run_ms(event.task))
        self.backfill_percent_max = max(self.backfill_percent_max, percent)
        late = event.at - told.first
        if late <= 0:
            self.kept += 1
            return
        if len(self.late_ms) < self.late_kept_max:
            self.late_ms.append(late)
        self.late_by[max(CAUSES, key=lambda cause: told.late.get(cause, 0))] += 1

    def late_percentile(self, part: int) -> int:
        """Of those that started late, so many percent did by so much; 0: none did."""
        late = sorted(self.late_ms)
        return late[-(-len(late) * part // 100) - 1] if late else 0
