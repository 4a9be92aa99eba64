"""The journal as one SQLite file: a table of numbered events, written in groups."""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tidegate.model.events import Event
from tidegate.wire.events import FORMAT, decode, encode

GROUP_MAX = 4096
SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS event (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, body BLOB NOT NULL);
"""


class JournalError(Exception):
    """The file is not a journal this release can read; the message says what to do."""


class SqliteJournal:
    """`grouped` lets `flush` wait until a group is full: for replays, which can simply be run again."""

    def __init__(self, path: Path, *, grouped: bool = False, fresh: bool = False, readonly: bool = False) -> None:
        self.path = path
        self.group = GROUP_MAX if grouped else 1
        self.pending: list[Event] = []
        try:
            if fresh:
                for ending in ("", "-wal", "-shm"):
                    Path(f"{path}{ending}").unlink(missing_ok=True)
            if readonly:
                self.db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
            else:
                self.db = sqlite3.connect(path, isolation_level=None)
                self.db.execute("PRAGMA journal_mode=WAL")
                self.db.execute("PRAGMA synchronous=FULL")
                self.db.executescript(SCHEMA)
            self._check_format(readonly=readonly)
        except (sqlite3.Error, OSError) as error:
            raise JournalError(f"{path}: cannot open as a journal ({error}); give another file") from error
        self.seq: int = self.db.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()[0]

    def _check_format(self, *, readonly: bool) -> None:
        row = self.db.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
        if row is None and not readonly:
            self.db.execute("INSERT INTO meta VALUES ('format', ?)", (str(FORMAT),))
        elif row is None or row[0] != str(FORMAT):
            raise JournalError(
                f"{self.path}: journal format {row and row[0]}, and this release reads {FORMAT}; "
                "use the release that wrote it"
            )

    def append(self, events: Sequence[Event]) -> None:
        self.pending.extend(events)

    def flush(self) -> None:
        if len(self.pending) >= self.group:
            self._write()

    def _write(self) -> None:
        start = self.seq + 1
        rows = [(seq, event.at, encode(event)) for seq, event in enumerate(self.pending, start)]
        self.db.execute("BEGIN IMMEDIATE")
        self.db.executemany("INSERT INTO event VALUES (?, ?, ?)", rows)
        self.db.execute("COMMIT")
        self.seq += len(rows)
        self.pending.clear()

    def read(self, after: int = 0) -> Iterator[Event]:
        for seq, body in self.db.execute("SELECT seq, body FROM event WHERE seq > ? ORDER BY seq", (after,)):
            try:
                yield decode(body)
            except msgspec.DecodeError as error:
                raise JournalError(f"{self.path}: event {seq} cannot be read ({error}); restore a backup") from error

    def close(self) -> None:
        if self.pending:
            self._write()
        self.db.close()
