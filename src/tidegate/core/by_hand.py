"""Suspending and resuming by hand: the events are those of preemption, and somebody has to say when it may go on."""

from tidegate.model import commands as cmd
from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS
from tidegate.model.commands import Refused
from tidegate.world.pauses import is_suspended
from tidegate.world.records import Run
from tidegate.world.world import World

ASSUMED_MS = 3_600_000
"""Planning assumes that somebody lets it go on after so long; longer and longer if nobody does."""
Answer = tuple[ev.Event, ...] | Refused


def suspend(world: World, command: cmd.Suspend, now: int) -> Answer:
    if command.job not in world.jobs:
        return no_live(command.job)
    runs = _runs(world, command.job, command.index)
    able = [run for run in runs if run.task not in world.halting]
    if not able:
        what = "is being ended" if runs else "does not run"
        return Refused(f"job {command.job} {what}", "suspend what runs; `tide hold` keeps what waits from starting")
    by = f"suspended by {command.by}" if command.by else "suspended"
    events: list[ev.Event] = []
    for run in able:
        if not is_suspended(world, run.task):
            until = run.expected_end + ASSUMED_MS
            events.append(ev.JobSuspended(now, run.task, run.attempt, by, until, held=True))
        elif not world.pauses[run.task].held:
            events.append(ev.SuspensionChanged(now, run.task, True, by))
    return tuple(events)


def resume(world: World, command: cmd.Resume, now: int) -> Answer:
    """It goes on when its cpus are free and it has its turn; who waits for that already needs nothing more."""
    if command.job not in world.jobs:
        return no_live(command.job)
    stopped = [run.task for run in _runs(world, command.job, command.index) if is_suspended(world, run.task)]
    if not stopped:
        return Refused(f"nothing of job {command.job} is suspended", "look at the queue for what is")
    by = f"resumed by {command.by}" if command.by else "resumed"
    return tuple([ev.SuspensionChanged(now, task, False, by) for task in stopped if world.pauses[task].held])


def no_live(job: int) -> Refused:
    return Refused(f"there is no live job {job}", "look at the queue for live jobs")


def _runs(world: World, job: int, index: int) -> list[Run]:
    runs = world.runs_of(job)
    return runs if index < 0 else [run for run in runs if run.task == job << ARRAY_BITS | index]
