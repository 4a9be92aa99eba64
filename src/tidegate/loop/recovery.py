"""Recovery: the state from the facts alone. A snapshot only saves the fold some of its way."""

from dataclasses import dataclass, field

from tidegate.loop.history import apply_and_record
from tidegate.ports import Journal, JournalError
from tidegate.world.apply import apply
from tidegate.world.snapshot import SnapshotError, dump, load
from tidegate.world.world import World

EVENTS_BETWEEN_SNAPSHOTS = 200_000
"""A restart folds no more than these, and what comes while the next snapshot is made."""
EVENTS_WORTH_ONE = 1000
"""At a clean stop; fewer are folded in no time."""
FLUSH_EVERY = 4096
"""Rows of the history that a long fold finds again are written, not gathered."""


@dataclass(slots=True)
class Recovered:
    world: World
    snapshot: int = 0  # the number of the event it began after
    folded: int = 0  # events after that
    notes: list[str] = field(default_factory=list)  # what was passed over, for whoever runs the server


def recover(journal: Journal) -> World:
    return recovered(journal).world


def recovered(journal: Journal) -> Recovered:
    """The newest snapshot that can be used, and the events after it. Raises JournalError."""
    done = _begun(journal)
    world, recorded = done.world, journal.recorded if journal.keeps_history else journal.seq
    for event in journal.read(world.seq):
        if world.seq < recorded:
            apply(world, event)
            continue
        apply_and_record(world, (event,), journal)  # a crash came between the event and its row
        if world.seq % FLUSH_EVERY == 0:
            journal.flush()
    done.folded = world.seq - done.snapshot
    return done


def _begun(journal: Journal) -> Recovered:
    notes: list[str] = []
    seq = journal.seq
    for number, body in journal.snapshots():
        if number > seq:
            notes.append(f"the snapshot at event {number} is passed over: the journal ends at {seq}")
        elif journal.keeps_history and number > journal.recorded:
            continue  # quite usual: it was made while rows of the history were still to be written
        else:
            try:
                world = load(body)
            except SnapshotError as error:
                notes.append(f"the snapshot at event {number} cannot be read ({error}): taking the one before")
            else:
                if world.seq == number:
                    return Recovered(world, number, notes=notes)
                notes.append(f"the snapshot at event {number} says it is of event {world.seq}: taking the one before")
    return Recovered(World(), notes=notes)


# -- when a snapshot is due, and making one ----------------------------------------------------------------


def snapshot_due(seq: int, last: int, *, stopping: bool = False) -> bool:
    """`last`: the event of the newest snapshot. While the server runs, another process makes it (`take_snapshot`)."""
    return seq - last >= (EVENTS_WORTH_ONE if stopping else EVENTS_BETWEEN_SNAPSHOTS)


def keep_snapshot(journal: Journal, world: World) -> int:
    """Of the state as it is; everything that led to it must be flushed. Returns its number."""
    if journal.seq < world.seq:
        raise JournalError(f"the journal ends at event {journal.seq}, the state is that of {world.seq}: flush first")
    journal.keep_snapshot(world.seq, dump(world))
    return world.seq


def take_snapshot(journal: Journal) -> int:
    """From a reader's view of the journal, so that the writer never waits for it. Returns its number."""
    return keep_snapshot(journal, recover(journal))
