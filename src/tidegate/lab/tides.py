"""What the tide did in a replay: when it turned and why, and how those fared who started meanwhile."""

from collections.abc import Sequence
from typing import Any

from tidegate.model.base import ARRAY_BITS
from tidegate.model.events import Event, JobDropped, JobEnded, JobStarted, JobSubmitted, TideTurned
from tidegate.model.jobs import Job
from tidegate.model.policy import Tide

TURNS_MAX = 10_000
"""So many turns are told; all are counted."""


class Spell:
    """A pool from one turn to the next."""

    __slots__ = ("began", "came", "started", "state", "waited_ms")

    def __init__(self, state: Tide, began: int) -> None:
        self.state = state
        self.began = began
        self.came = 0  # tasks
        self.started = 0  # for the first time,
        self.waited_ms = 0  # and had waited so long together


class TideLog:
    """A listener on the journal of a replay."""

    def __init__(self) -> None:
        self.turns: list[TideTurned] = []
        self.turned = 0
        self.jobs: dict[int, Job] = {}
        self.left: dict[int, int] = {}  # tasks of an array that have not ended
        self.spells: dict[str, Spell] = {}
        self.sums: dict[Tide, list[int]] = {state: [0, 0, 0, 0] for state in Tide}  # time, came, started, waited
        self.last_ms = 0

    def append(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case JobSubmitted():
                    self._submitted(event)
                case JobStarted():
                    self._started(event)
                case JobEnded():
                    self._ended(event.task >> ARRAY_BITS)
                    self.last_ms = event.at
                case JobDropped():
                    self.jobs.pop(event.job, None)
                    self.left.pop(event.job, None)
                case TideTurned():
                    self.turned += 1
                    if len(self.turns) < TURNS_MAX:
                        self.turns.append(event)
                    self._close(event.pool, event.at)
                    self.spells[event.pool] = Spell(event.after, event.at)
                case _:  # says nothing of tides
                    pass

    def flush(self) -> None:
        pass

    def _submitted(self, event: JobSubmitted) -> None:
        job = self.jobs[event.job.id] = event.job
        tasks = 1
        if job.spec.array is not None:
            tasks = self.left[job.id] = len(job.spec.array.indices)
        spell = self.spells.get(job.pool)
        if spell is None:
            spell = self.spells[job.pool] = Spell(Tide.CALM, event.at)
        spell.came += tasks

    def _started(self, event: JobStarted) -> None:
        if event.attempt == 1:
            job = self.jobs[event.task >> ARRAY_BITS]
            spell = self.spells[job.pool]
            spell.started += 1
            spell.waited_ms += event.at - max(job.submit_ms, job.spec.begin_ms)

    def _ended(self, job: int) -> None:
        left = self.left.get(job, 1) - 1
        if left:
            self.left[job] = left
        else:
            self.jobs.pop(job, None)
            self.left.pop(job, None)

    def _close(self, pool: str, at: int) -> None:
        spell = self.spells.pop(pool, None)
        if spell is not None:
            sums = self.sums[spell.state]
            for place, amount in enumerate((at - spell.began, spell.came, spell.started, spell.waited_ms)):
                sums[place] += amount

    def figures(self) -> dict[str, Any]:
        """At the end of the replay."""
        for pool in list(self.spells):
            self._close(pool, self.last_ms)
        states = {
            state.value: {
                "hours": time_ms / 3_600_000,
                "tasks_came": came,
                "tasks_started": started,
                "wait_mean_s": waited_ms / started / 1000 if started else 0.0,
            }
            for state, (time_ms, came, started, waited_ms) in self.sums.items()
        }
        turns = [
            {"at_s": turn.at / 1000, "pool": turn.pool, "from": turn.before.value, "to": turn.after.value,
             "why": turn.why, "waiting": turn.seen.waiting}
            for turn in self.turns
        ]  # fmt: skip
        return {"turned": self.turned, "states": states, "turns": turns}
