"""What is let go, by a stated rule and in small slices: see docs/durability.md.

Events go when the second newest snapshot holds what they led to, they are older than `events_ms`, and what ended by
them is in the history. Rows of the history go by age or number, oldest first; a job's record with its last row.
"""

from dataclasses import dataclass
from itertools import takewhile

from tidegate.journals import snapshots
from tidegate.journals.failures import explaining
from tidegate.journals.layout import set_meta, transaction
from tidegate.journals.sqlite import SqliteJournal

DAY_MS = 86_400_000
GROUPS_MAX = 100
"""Of events, in one slice."""
ROWS_MAX = 500
"""Of the history, in one slice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Keep:
    """How much of the past is kept."""

    events_ms: int = 30 * DAY_MS
    history_ms: int = 365 * DAY_MS
    endings_max: int = 5_000_000


KEEP = Keep()


class Pruner:
    """For the server to call when it is idle. Each call is one short transaction."""

    def __init__(self, journal: SqliteJournal, keep: Keep = KEEP) -> None:
        self.journal = journal
        self.keep = keep
        self.checked: tuple[int, ...] = ()  # snapshots known to be readable

    def prune(self, now: int) -> bool:
        """True: there may be more to let go."""
        journal = self.journal
        upto = min(self._in_snapshots(), journal.recorded)
        with explaining(journal.path):
            return self._events(now, upto) or self._endings(now)

    def _in_snapshots(self) -> int:
        """The newest event that two snapshots hold, both of which can be read."""
        journal = self.journal
        newest = tuple(snapshots.snapshot_numbers(journal.path, journal.line)[: snapshots.KEPT])
        if len(newest) < snapshots.KEPT:
            return 0
        if newest != self.checked:
            if not all(snapshots.read_snapshot(journal.path, journal.line, seq) for seq in newest):
                return 0
            self.checked = newest
        return newest[-1]

    def _events(self, now: int, upto: int) -> bool:
        db, before = self.journal.db, now - self.keep.events_ms
        oldest = db.execute("SELECT first, last, at FROM events ORDER BY first LIMIT ?", (GROUPS_MAX,))
        old = list(takewhile(lambda row: row[1] <= upto and row[2] < before, oldest.fetchall()))
        if not old:
            return False
        with transaction(db):
            db.execute("DELETE FROM events WHERE first <= ?", (old[-1][0],))
            set_meta(db, "pruned", old[-1][1])
        return True

    def _endings(self, now: int) -> bool:
        db, before = self.journal.db, now - self.keep.history_ms
        newest = db.execute("SELECT coalesce(max(row), 0) FROM ending").fetchone()[0]
        too_many = newest - self.keep.endings_max  # rows are numbered without holes
        oldest = db.execute("SELECT row, job, end_ms FROM ending ORDER BY row LIMIT ?", (ROWS_MAX,))
        old = list(takewhile(lambda row: row[0] <= too_many or row[2] < before, oldest.fetchall()))
        if not old:
            return False
        with transaction(db):
            db.execute("DELETE FROM ending WHERE row <= ?", (old[-1][0],))
            self._jobs({job for _, job, _ in old})
        return True

    def _jobs(self, jobs: set[int]) -> None:
        db = self.journal.db
        for job in sorted(jobs):
            if not db.execute("SELECT 1 FROM ending WHERE job = ? LIMIT 1", (job,)).fetchone():
                db.execute("DELETE FROM job WHERE id = ?", (job,))
                self.journal.arrays.discard(job)
