"""The journal as one SQLite file: groups of numbered events, and beside them the history as tables.

What `flush` writes is safe when it returns: WAL, full synchronous, one transaction. See docs/durability.md.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from tidegate.journals import policies, snapshots
from tidegate.journals.failures import explained, explaining
from tidegate.journals.history import History, write_endings
from tidegate.journals.layout import (
    GROUP_MAX,
    INSERT_GROUP,
    SIDE_FILES,
    Group,
    beside,
    format_of,
    group,
    groups,
    last_event,
    meta,
    open_reader,
    open_writer,
    pruned_upto,
    set_meta,
    transaction,
)
from tidegate.model.events import Event, PolicyChanged
from tidegate.model.history import Ending
from tidegate.model.policy import PolicySpec
from tidegate.ports import JournalError
from tidegate.wire.events import decode_group, encode_group

HISTORY_AT = 256
"""So many endings are written to the history at once: a tenth of what they cost one by one. Until then the events
alone tell of them, and a restart reads them from there."""
READ_GROUPS = 32
ARRAYS_KNOWN_MAX = 10_000


class _Try(NamedTuple):
    """What a transaction adds."""

    events: int
    endings: int
    recorded: int


class SqliteJournal:
    """`grouped` lets `flush` wait until a group is full: for replays, which can simply be run again."""

    def __init__(
        self, path: Path, *, grouped: bool = False, fresh: bool = False, readonly: bool = False, history: bool = False
    ) -> None:
        self.path = path
        self.group = GROUP_MAX if grouped else 1
        self.readonly = readonly
        self.keeps_history = history and not readonly
        self.pending: list[Event] = []
        self.tried: _Try | None = None  # a flush that failed: whether it is there is looked up first
        self.backlog: list[Ending] = []  # not in the tables yet
        self.upto = 0  # all that ended by this event is in the tables or the backlog
        self.arrays: set[int] = set()  # whose record the history has
        if fresh:
            self._remove_old()
        self.db = open_reader(path) if readonly else open_writer(path)
        with explaining(path):
            self.format = format_of(self.db, path)
            self.last = last_event(self.db, self.format)
            self.line = meta(self.db, "line")
            self.noted = self.upto = int(meta(self.db, "recorded") or 0)
        self.inodes = {file: inode_of(file) for file in (path, beside(path, "-wal"))}
        self.is_gone = False
        if not readonly:
            snapshots.remove_unfinished(path)

    def _remove_old(self) -> None:
        with explaining(self.path):
            for ending in SIDE_FILES:
                beside(self.path, ending).unlink(missing_ok=True)
            for file in snapshots.snapshot_files(self.path):
                file.unlink(missing_ok=True)

    # -- writing -----------------------------------------------------------------------------------------

    @property
    def seq(self) -> int:
        if self.readonly:
            with explaining(self.path):
                self.last = last_event(self.db, self.format)
        return self.last

    @property
    def last_at(self) -> int:
        """The time of the last event; 0 where there is none."""
        with explaining(self.path):
            row = self.db.execute("SELECT at FROM events ORDER BY first DESC LIMIT 1").fetchone()
        return row[0] if row else 0

    def append(self, events: Sequence[Event]) -> None:
        self.pending.extend(events)

    def flush(self) -> None:
        if len(self.pending) >= self.group or len(self.backlog) >= HISTORY_AT:
            self._write()

    def look(self) -> None:
        """To be called now and then: a file that was removed still takes what is written, and shows it to nobody.

        From then on nothing is written until it is back.
        """
        gone = [file for file, inode in self.inodes.items() if inode and inode_of(file) != inode]
        self.is_gone = bool(gone)
        if gone:
            raise JournalError(
                f"{gone[0]}: was removed, or another file is in its place, while this process writes to it; "
                "put it back as it was, or stop this process and restore a backup (tide restore)"
            )

    def _write(self, *, history: bool = False) -> None:
        """The events that wait, and the history when it must be or enough has come together, in one transaction."""
        if self.is_gone:
            self.look()
        if self.tried is not None:
            self._settle_the_last_try()
        pending = self.pending
        history = history or len(self.backlog) >= HISTORY_AT
        rows = []
        for at in range(0, len(pending), GROUP_MAX):
            events = pending[at : at + GROUP_MAX]
            rows.append(group(self.last + at + 1, events[-1].at, encode_group(events), len(events)))
        changes = policies.changes_among(pending, self.last + 1) if self.keeps_history else []
        self.tried = _Try(len(pending), len(self.backlog), self.upto) if history else _Try(len(pending), 0, self.noted)
        try:
            if len(rows) == 1 and not history and not changes:
                self.db.execute(INSERT_GROUP, rows[0])  # one statement is a transaction by itself, and the usual case
            else:
                self._write_together(rows, changes, history=history)
        except sqlite3.Error as error:
            raise explained(self.path, error) from error
        self._written(self.tried)

    def _write_together(self, rows: Sequence[Group], changes: Sequence[policies.Numbered], *, history: bool) -> None:
        with transaction(self.db):
            self.db.executemany(INSERT_GROUP, rows)
            policies.write_policies(self.db, changes)
            if history:
                write_endings(self.db, self.backlog, self.arrays)
                set_meta(self.db, "recorded", self.upto)

    def _settle_the_last_try(self) -> None:
        """A commit that failed may have come through all the same, as far as its caller can tell."""
        tried = self.tried
        assert tried is not None
        with explaining(self.path):
            there = (last_event(self.db), int(meta(self.db, "recorded") or 0))
        if there == (self.last + tried.events, tried.recorded):
            self._written(tried)
        elif there != (self.last, self.noted):
            raise JournalError(
                f"{self.path}: it ends at event {there[0]}, and this process wrote up to {self.last}: another one "
                "writes to it; end that one, then start again"
            )

    def _written(self, done: _Try) -> None:
        self.tried = None
        self.last += done.events
        self.noted = done.recorded
        del self.pending[: done.events]
        if done.endings:
            if len(self.arrays) > ARRAYS_KNOWN_MAX:
                self.arrays.clear()
            ended = self.backlog[: done.endings]
            self.arrays.update(ending.job.id for ending in ended if ending.job.spec.array is not None)
            del self.backlog[: done.endings]

    def close(self) -> None:
        """Whatever fails, the file is let go of, and what failed is said."""
        try:
            if not self.readonly:
                if self.pending:
                    self._write()
                self.settle()
        finally:
            self.db.close()

    # -- the history -------------------------------------------------------------------------------------

    @property
    def recorded(self) -> int:
        return self.noted

    def record(self, endings: Sequence[Ending], upto: int) -> None:
        if endings:
            self.backlog.extend(endings)
        self.upto = upto

    def settle(self) -> None:
        """Brings the tables of the history up to date. Before asking them, before a snapshot, and when idle."""
        if self.keeps_history and self.upto != self.noted:
            self._write(history=True)

    def ended(self) -> int:
        """How many tasks ever ended, those that the tables do not have yet included."""
        coming = sum(len(ending.indices) for ending in self.backlog if ending.final)
        return sum(self.history().counts().values()) + coming

    def history(self) -> History:
        """To ask, on this connection; it is closed with the journal."""
        return History(self.path, self.db)

    def see_to_policies(self, version: int, policy: PolicySpec) -> None:
        """Of a file that an earlier release wrote to. `version`: what is in force after the last event.

        What was let go by age is not known any more, but what is in force is.
        """
        with explaining(self.path):
            known, seq = policies.newest(self.db)
        if known >= version:
            return
        began = max(seq, self.pruned)
        found = [(n, event) for n, event in enumerate(self.read(began), began + 1) if type(event) is PolicyChanged]
        if not found or found[-1][1].version < version:
            found.append((self.pruned, PolicyChanged(0, version, policy)))
        with explaining(self.path), transaction(self.db):
            policies.write_policies(self.db, found)

    # -- reading -----------------------------------------------------------------------------------------

    def read(self, after: int = 0) -> Iterator[Event]:
        if self.pruned and after < self.pruned:
            raise JournalError(
                f"{self.path}: events up to number {self.pruned} were let go by age (docs/durability.md); what they "
                "led to is in the snapshots beside the file: begin from one of those"
            )
        at = after
        while True:
            with explaining(self.path):
                rows = groups(self.db, at, READ_GROUPS, self.format)
            for first, last, crc, body in rows:
                events = self._decoded(at, first, last, crc, body)
                yield from events[at + 1 - first :] if first <= at else events
                at = max(at, last)
            if len(rows) < READ_GROUPS:
                return

    def _decoded(self, at: int, first: int, last: int, crc: int, body: bytes) -> list[Event]:
        if first > at + 1:
            wrong = f"events {at + 1} to {first - 1} are missing"
        elif crc32(body) != crc:
            wrong = f"events {first} to {last} are damaged"
        else:
            try:
                events = decode_group(body)
            except msgspec.DecodeError as error:
                wrong = f"events {first} to {last} cannot be read ({error})"
            else:
                if len(events) == last - first + 1:
                    return events
                wrong = f"events {first} to {last} are {len(events)}"
        raise JournalError(f"{self.path}: {wrong}; restore a backup (tide restore)")

    @property
    def pruned(self) -> int:
        """The events up to this number are no longer there; 0: all are."""
        with explaining(self.path):
            return pruned_upto(self.db)

    # -- snapshots ---------------------------------------------------------------------------------------

    def snapshots(self) -> Iterator[tuple[int, bytes]]:
        return snapshots.read_snapshots(self.path, self.line)

    def keep_snapshot(self, seq: int, body: bytes) -> None:
        with explaining(self.path):
            snapshots.write_snapshot(self.path, self.line, seq, body)

    def checkpoint(self) -> None:
        """Moves the write-ahead log into the file; for when nothing else is to do."""
        with explaining(self.path), closing(self.db.execute("PRAGMA wal_checkpoint(PASSIVE)")) as cursor:
            cursor.fetchall()


def inode_of(path: Path) -> int:
    """0: there is none."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0
