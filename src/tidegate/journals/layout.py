"""The file: its tables, its formats, and how it is opened.

A group is what one flush wrote: events `first` to `last` as one msgpack array, with a checksum, because SQLite would
not notice an octet that rots. Tables of the history are a view of the events; `meta` says up to which number.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4
from zlib import crc32

from tidegate.journals import policies
from tidegate.journals.failures import explained, explaining
from tidegate.ports import JournalError
from tidegate.wire.events import FORMAT, join

SIDE_FILES = ("", "-wal", "-shm")
GROUP_MAX = 4096
"""Events of one row at most, so that a reader holds few at a time."""
CHECKPOINT_PAGES = 1000
"""At 4 KiB a page. A longer log is slower: until it has been filled once, each flush makes a file grow."""

EVENTS = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events (
    first INTEGER PRIMARY KEY, last INTEGER NOT NULL, at INTEGER NOT NULL, crc INTEGER NOT NULL, body BLOB NOT NULL
);
"""
HISTORY = """
CREATE TABLE job (
    id INTEGER PRIMARY KEY, user TEXT NOT NULL, queue TEXT NOT NULL, name TEXT NOT NULL, submit_ms INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE ending (
    row INTEGER PRIMARY KEY, job INTEGER NOT NULL, indices TEXT NOT NULL, attempt INTEGER NOT NULL,
    final INTEGER NOT NULL, outcome TEXT NOT NULL, end_ms INTEGER NOT NULL, start_ms INTEGER, nodes TEXT,
    code INTEGER NOT NULL, signal INTEGER NOT NULL, why TEXT, failed INTEGER NOT NULL, lost INTEGER NOT NULL,
    cpu_ms INTEGER, peak_kib INTEGER, read_kib INTEGER, written_kib INTEGER, user TEXT NOT NULL, queue TEXT NOT NULL
);
CREATE INDEX ending_by_job ON ending (job);
CREATE INDEX ending_by_end ON ending (end_ms);
CREATE INDEX ending_by_user ON ending (user, end_ms);
CREATE INDEX ending_by_queue ON ending (queue, end_ms);
CREATE INDEX ending_gone_wrong ON ending (outcome, end_ms) WHERE outcome <> 'completed';
CREATE TABLE tally (outcome TEXT PRIMARY KEY, tasks INTEGER NOT NULL) WITHOUT ROWID;
"""
INSERT_GROUP = "INSERT INTO events VALUES (?, ?, ?, ?, ?)"


def beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def open_writer(path: Path) -> sqlite3.Connection:
    """The file in today's format; made where there is none."""
    with explaining(path):
        db = sqlite3.connect(path, isolation_level=None)
    try:
        with explaining(path):
            _must_be_wal(path, db.execute("PRAGMA journal_mode=WAL").fetchone()[0])
            db.execute("PRAGMA synchronous=FULL")
            db.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
            if not db.execute("SELECT 1 FROM sqlite_master").fetchone():
                _create(db)
            elif format_of(db, path) < FORMAT:
                _migrate(db, path)
            db.execute(policies.TABLE)
    except BaseException:
        db.close()
        raise
    return db


def _must_be_wal(path: Path, mode: str) -> None:
    if mode != "wal":
        raise JournalError(f"{path}: this file system keeps no write-ahead log; choose a home on a local disk")


def open_reader(path: Path) -> sqlite3.Connection:
    """In any format this release knows. Follows a writer; reads a closed file on a read-only medium too."""
    if not path.exists():
        raise JournalError(f"{path}: there is no such journal; see that the path is right")
    try:
        return _reader(path, "mode=ro")
    except sqlite3.Error as error:
        wal = beside(path, "-wal")
        if error.sqlite_errorcode & 0xFF not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY} or wal.exists():
            raise explained(path, error) from error
    with explaining(path):  # readers of a journal keep a file beside it, and here they cannot
        return _reader(path, "immutable=1")


def _reader(path: Path, options: str) -> sqlite3.Connection:
    db = sqlite3.connect(f"{path.absolute().as_uri()}?{options}", uri=True, isolation_level=None)
    try:
        format_of(db, path)
    except BaseException:
        db.close()
        raise
    return db


def format_of(db: sqlite3.Connection, path: Path) -> int:
    row = None
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
        row = db.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
    if row is None or not row[0].isdigit() or row[0] == "0":
        raise JournalError(f"{path}: an SQLite file, but not a journal of Tidegate; give another file")
    if int(row[0]) > FORMAT:
        raise JournalError(
            f"{path}: journal format {row[0]}, and this release reads up to {FORMAT}; use the release that wrote it"
        )
    return int(row[0])


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing. Rolling back what SQLite has rolled back already is no error."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def meta(db: sqlite3.Connection, name: str) -> str:
    row = db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return row[0] if row else ""


def set_meta(db: sqlite3.Connection, name: str, value: object) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, str(value)))


def run_all(db: sqlite3.Connection, statements: str) -> None:
    """Within the transaction there is; `executescript` would commit it first."""
    for statement in statements.split(";"):
        if statement.strip():
            db.execute(statement)


def _create(db: sqlite3.Connection) -> None:
    with transaction(db):
        run_all(db, EVENTS + HISTORY)
        set_meta(db, "format", FORMAT)
        new_line(db)


def new_line(db: sqlite3.Connection) -> None:
    """A name for this run of events, so that a snapshot of another is not taken for one of these."""
    set_meta(db, "line", uuid4().hex)


Group = tuple[int, int, int, int, bytes]
"""A row of `events`."""


def group(first: int, at: int, body: bytes, count: int) -> Group:
    return first, first + count - 1, at, crc32(body), body


# -- format 1: each event in a row of its own, no history --------------------------------------------------

OLD_ROWS = "SELECT seq, at, body FROM event WHERE seq > ? ORDER BY seq LIMIT ?"


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    """From format 1, in one transaction: a crash leaves the old file as it was."""
    with transaction(db):
        db.execute("ALTER TABLE meta RENAME TO old_meta")
        run_all(db, EVENTS + HISTORY)
        done = 0
        while rows := db.execute(OLD_ROWS, (done, GROUP_MAX)).fetchall():
            if rows[0][0] != done + 1 or rows[-1][0] != done + len(rows):
                raise JournalError(f"{path}: events after number {done} are missing; restore a backup (tide restore)")
            body = join([row[2] for row in rows])
            db.execute(INSERT_GROUP, group(done + 1, rows[-1][1], body, len(rows)))
            done += len(rows)
        run_all(db, "DROP TABLE event; DROP TABLE old_meta")
        set_meta(db, "format", FORMAT)
        new_line(db)


def groups(db: sqlite3.Connection, after: int, at_most: int, form: int = FORMAT) -> list[tuple[int, int, int, bytes]]:
    """(first, last, checksum, body) of the groups that hold what comes after that number; a few at a time, so that
    no reader keeps the writer's log from being emptied."""
    if form == 1:
        rows = db.execute(OLD_ROWS, (after, at_most)).fetchall()
        return [(seq, seq, crc32(body), body) for seq, body in ((seq, join([old])) for seq, _, old in rows)]
    found: list[tuple[int, int, int, bytes]] = db.execute(
        "SELECT first, last, crc, body FROM events"
        " WHERE first >= (SELECT coalesce(max(first), 0) FROM events WHERE first <= ?) AND last > ?"
        " ORDER BY first LIMIT ?",
        (after + 1, after, at_most),
    ).fetchall()
    return found


def last_event(db: sqlite3.Connection, form: int = FORMAT) -> int:
    if form == 1:
        seq: int = db.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()[0]
        return seq
    row = db.execute("SELECT last FROM events ORDER BY first DESC LIMIT 1").fetchone()
    return row[0] if row else pruned_upto(db)


def pruned_upto(db: sqlite3.Connection) -> int:
    """The events up to this number were let go by the rule in docs/durability.md."""
    return int(meta(db, "pruned") or 0)


def quick_check(path: Path) -> None:
    """Every page of the file; raises JournalError with the first thing that is wrong."""
    with explaining(path), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        said = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if said != "ok":
        raise JournalError(f"{path}: the file is damaged ({said}); restore a backup (tide restore)")
