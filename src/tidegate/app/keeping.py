"""What the server keeps on disk: the journal, its history, its snapshots; and when each is seen to."""

import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from tidegate.api.past import Archive
from tidegate.journals.history import History
from tidegate.journals.pruning import Pruner
from tidegate.journals.snapshots import snapshot_numbers
from tidegate.journals.sqlite import SqliteJournal
from tidegate.loop.recovery import keep_snapshot, recovered, snapshot_due, take_snapshot
from tidegate.model.events import Event
from tidegate.ports import JournalError

SETTLE_S = 1.0
PRUNE_EVERY = 60
"""So many times it settles for every time it looks for something old; while there is more, it prunes every time."""


class Keeping:
    """Opens the journal of a home and folds it. `tick` is called about once a second, `close` at the end."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self.path = path
        self.say = say
        self.journal = SqliteJournal(path, history=True)
        done = recovered(self.journal)
        self.world = done.world
        self.journal.see_to_policies(self.world.policy_version, self.world.policy)
        for note in done.notes:
            say(note)
        if self.world.seq:
            began = f"snapshot {done.snapshot:,} and " if done.snapshot else ""
            say(f"the state is that of {began}{done.folded:,} events; {len(self.world.jobs):,} jobs are live")
        self.pruner = Pruner(self.journal)
        self.ticks = 0
        self.more_to_prune = False
        self.maker: subprocess.Popen[bytes] | None = None
        self.tried_at = 0  # the event at which a snapshot was last asked for

    def archive(self) -> Archive:
        return Archive(
            settle=self.journal.settle,
            ended=self.journal.ended,
            history=self.journal.history(),
            open=lambda: History(self.path),
            events=self.events,
        )

    def events(self, after: int, at_most: int) -> list[Event]:
        """On a connection of its own."""
        reader = SqliteJournal(self.path, readonly=True)
        try:
            return list(islice(reader.read(after), at_most))
        finally:
            reader.close()

    @property
    def newest_snapshot(self) -> int:
        return next(iter(snapshot_numbers(self.path, self.journal.line)), 0)

    def tick(self, now: int) -> None:
        """Small things that nobody waits for. Raises JournalError when it cannot be written: then again later."""
        self.ticks += 1
        self.journal.look()
        self.journal.settle()
        if self.more_to_prune or self.ticks % PRUNE_EVERY == 0:
            self.more_to_prune = self.pruner.prune(now)
        self._see_to_snapshots()

    def _see_to_snapshots(self) -> None:
        """By another process, which folds the journal itself: no client waits for it."""
        if self.maker is not None:
            code = self.maker.poll()
            if code is None:
                return
            if code:
                self.say(f"a snapshot could not be made (exit code {code}); a restart takes longer until one is")
            self.maker = None
        if snapshot_due(self.journal.seq, max(self.tried_at, self.newest_snapshot)):
            self.tried_at = self.journal.seq
            command = [sys.executable, "-P", "-m", "tidegate.app.keeping", str(self.path)]
            self.maker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def close(self) -> None:
        if self.maker is not None:
            self.maker.wait()
        try:
            if snapshot_due(self.world.seq, self.newest_snapshot, stopping=True):
                self.journal.settle()
                keep_snapshot(self.journal, self.world)
        except JournalError as error:
            self.say(f"no snapshot at the end: {error}")
        self.journal.close()


def main() -> int:
    """`python -m tidegate.app.keeping JOURNAL`: makes a snapshot beside it."""
    import os

    os.nice(10)
    journal = SqliteJournal(Path(sys.argv[1]), readonly=True)
    try:
        take_snapshot(journal)
    except JournalError as error:
        print(f"{error}", file=sys.stderr)
        return 1
    finally:
        journal.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
