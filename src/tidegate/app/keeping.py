"""What the server keeps on disk: the journal, its history, its snapshots; and when each is seen to."""

from collections.abc import Callable
from pathlib import Path

from tidegate.api.past import Archive
from tidegate.journals.history import History
from tidegate.journals.pruning import Pruner
from tidegate.journals.sqlite import SqliteJournal
from tidegate.loop.loop import recover
from tidegate.world.world import World


class Keeping:
    """Opens the journal of a home and folds it."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self.path = path
        self.say = say
        self.journal = SqliteJournal(path, history=True)
        self.world: World = recover(self.journal)
        self.notes: list[str] = []
        self.pruner = Pruner(self.journal)

    def archive(self) -> Archive:
        return Archive(settle=self.journal.settle, history=self.journal.history(), open=lambda: History(self.path))
