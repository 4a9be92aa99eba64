"""What an event ends, as a row of the history. Asked before the event is applied: the world still has it all."""

from collections.abc import Iterable

from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS, index_of
from tidegate.model.history import Ending
from tidegate.model.jobs import NOTHING_KNOWN, Outcome, Used
from tidegate.ports import Journal
from tidegate.world.apply import apply
from tidegate.world.arrays import turns
from tidegate.world.world import World

ENDED_BADLY = (Outcome.FAILED, Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT)


def apply_and_record(world: World, events: Iterable[ev.Event], journal: Journal) -> None:
    """Each ending is asked for just before its event is applied, since one event of a turn may follow from another."""
    endings = []
    for event in events:
        ending = ending_of(world, event)
        if ending is not None:
            endings.append(ending)
        apply(world, event)
    journal.record(endings, world.seq)


def ending_of(world: World, event: ev.Event) -> Ending | None:
    match event:
        case ev.JobEnded():
            return _ended(world, event)
        case ev.AttemptFailed():
            ended = (event.outcome, event.code, event.signal, event.used)
            return _again(world, event, ended, failed=1, lost=0)
        case ev.AttemptLost():
            return _again(world, event, (Outcome.LOST, 0, 0, NOTHING_KNOWN), failed=0, lost=int(event.counts))
        case ev.JobDropped():
            return _dropped(world, event)
        case _:
            return None


def _ended(world: World, event: ev.JobEnded) -> Ending:
    task = event.task
    run = world.runs.get(task)
    attempt, failed, lost = _tries(world, task)
    if run is not None:
        attempt = event.attempt
        failed += event.outcome in ENDED_BADLY
        lost += event.outcome is Outcome.LOST
    return Ending(
        world.jobs[task >> ARRAY_BITS], (index_of(task),), attempt, True, event.outcome, event.at,
        -1 if run is None else run.start_ms, () if run is None else run.nodes,
        event.code, event.signal, event.used, event.why, failed, lost,
    )  # fmt: skip


def _again(
    world: World,
    event: ev.AttemptFailed | ev.AttemptLost,
    ended: tuple[Outcome, int, int, Used],
    *,
    failed: int,
    lost: int,
) -> Ending:
    task = event.task
    run = world.runs[task]
    outcome, code, signal, used = ended
    _, failed_before, lost_before = _tries(world, task)
    return Ending(
        world.jobs[task >> ARRAY_BITS], (index_of(task),), event.attempt, False, outcome, event.at,
        run.start_ms, run.nodes, code, signal, used, event.why, failed_before + failed, lost_before + lost,
    )  # fmt: skip


def _dropped(world: World, event: ev.JobDropped) -> Ending:
    """Whatever of the job waits, in one row."""
    job = world.jobs[event.job]
    array = job.spec.array
    if array is None:
        attempt, failed, lost = _tries(world, job.id << ARRAY_BITS)
        return Ending(job, (0,), attempt, True, event.outcome, event.at, why=event.why, failed=failed, lost=lost)
    state = world.arrays[job.id]
    waiting = tuple(sorted((*turns(state, array.indices), *state.resting)))
    return Ending(job, waiting, 0, True, event.outcome, event.at, why=event.why)


def _tries(world: World, task: int) -> tuple[int, int, int]:
    """(the last attempt, how many failed, how many were lost) of those that are over."""
    known = world.tries.get(task)
    return (0, 0, 0) if known is None else (known.attempt, known.failed, known.lost)
