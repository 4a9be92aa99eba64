"""Backup and restore. A backup is one file: a journal like any other, with the snapshots inside.

It is made while the server runs, from one read transaction. A restore puts what was there aside, never over.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from tidegate.journals import snapshots
from tidegate.journals.failures import explaining
from tidegate.journals.layout import (
    SIDE_FILES,
    beside,
    format_of,
    groups,
    last_event,
    meta,
    new_line,
    open_reader,
    open_writer,
    pruned_upto,
    quick_check,
    transaction,
)
from tidegate.ports import JournalError

JOURNAL = "journal.db"
LOCK = "server.lock"
KEEPER = "keeper"
KEEPER_LOCK = "lock"
KEEPER_RUNS = (
    "its keeper still runs, with jobs or for a minute after the last; let them end, or cancel them, then try again"
)
GROUPS_AT_ONCE = 64
ASIDE_MAX = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Backup:
    """What a file holds, after every octet of it was looked at."""

    path: Path
    seq: int  # its last event
    at_ms: int  # of that event; 0 of an empty journal
    snapshots: tuple[int, ...]  # newest first
    octets: int


def backup(journal: Path, target: Path) -> Backup:
    """A copy of the journal as it is now. Raises JournalError and leaves nothing when it cannot be made or read."""
    if target.exists():
        raise JournalError(f"{target}: is there already; give another name, or remove it first")
    if not target.parent.is_dir():
        raise JournalError(f"{target}: there is no directory {target.parent}; make it first")
    new = beside(target, f".new-{os.getpid()}")
    try:
        _copy(journal, new)
        found = inspect(new)
        with explaining(target):
            with new.open("rb") as stream:
                os.fsync(stream.fileno())
            new.rename(target)
            snapshots.sync_folder(target.parent)
    finally:
        for ending in (*SIDE_FILES, "-journal"):
            beside(new, ending).unlink(missing_ok=True)
    return Backup(path=target, seq=found.seq, at_ms=found.at_ms, snapshots=found.snapshots, octets=found.octets)


def _copy(journal: Path, target: Path) -> None:
    """Snapshots first: so the events that follow them are in the copy."""
    with closing(open_reader(journal)) as db:
        if format_of(db, journal) == 1:
            raise JournalError(
                f"{journal}: written by an earlier release; start the server on it once, or copy the file"
            )
        line = meta(db, "line")
        kept = [(seq, body) for seq, body in snapshots.read_snapshots(journal, line) if body]
        with explaining(target):
            db.execute("VACUUM INTO ?", (str(target),))
    with explaining(target), closing(sqlite3.connect(target, isolation_level=None)) as copy, transaction(copy):
        copy.execute("CREATE TABLE snapshot (seq INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL)")
        copy.executemany("INSERT INTO snapshot VALUES (?, ?, ?)", [(seq, crc32(body), body) for seq, body in kept])


def inspect(path: Path) -> Backup:
    """Reads all of a backup; raises JournalError with the first thing that is wrong."""
    with closing(open_reader(path)) as db:
        quick_check(path)
        with explaining(path):
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'snapshot'").fetchone():
                raise JournalError(f"{path}: a journal, but not made by `tide backup`; copy it by hand if you mean it")
            last, at = _checked_events(db, path)
            rows, pruned = (
                db.execute("SELECT seq, crc, body FROM snapshot ORDER BY seq DESC").fetchall(),
                pruned_upto(db),
            )
    for seq, crc, body in rows:
        if crc32(body) != crc:
            raise JournalError(f"{path}: the snapshot at event {seq} is damaged; use another backup")
    kept = tuple(seq for seq, _, _ in rows)
    if pruned > max(kept, default=0):
        raise JournalError(f"{path}: old events went while it was made; make the backup again")
    return Backup(path=path, seq=last, at_ms=at, snapshots=kept, octets=path.stat().st_size)


def _checked_events(db: sqlite3.Connection, path: Path) -> tuple[int, int]:
    """Number and time of the last event, when none before it is missing or damaged."""
    done = pruned_upto(db)
    while rows := groups(db, done, GROUPS_AT_ONCE):
        for first, last, crc, body in rows:
            if first != done + 1 or crc32(body) != crc:
                raise JournalError(f"{path}: damaged after event {done}; use another backup")
            done = last
    at = db.execute("SELECT at FROM events ORDER BY first DESC LIMIT 1").fetchone()
    return done, at[0] if at else 0


# -- restore -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Restored:
    backup: Backup
    aside: Path | None  # the journal that was there before


def restore(source: Path, home: Path, *, force: bool = False) -> Restored:
    """The home goes on from the backup. Refused while a server or a keeper runs there, and, unless forced, where the
    home has events that the backup has not. Raises JournalError; the home is then as it was.

    What the keeper knows is put aside as well: the ids after the backup are given again, to other jobs, and it would
    tell of those that had them first.
    """
    found = inspect(source)
    with explaining(home):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    journal = home / JOURNAL
    with (
        _alone(home / LOCK, f"{home}: a server runs on this home; stop it first (tide down)"),
        _alone(home / KEEPER / KEEPER_LOCK, f"{home}: {KEEPER_RUNS}"),
    ):
        if journal.exists() and not force:
            _must_not_be_newer(journal, source, found)
        new = beside(journal, f".restoring-{os.getpid()}")
        try:
            with explaining(journal):
                _unpack(source, new, journal)
                aside = _put_aside(journal)
                if (home / KEEPER).exists():
                    (home / KEEPER).rename(_free_name(home / KEEPER))
                new.replace(journal)
                snapshots.sync_folder(home)
        finally:
            for ending in SIDE_FILES:
                beside(new, ending).unlink(missing_ok=True)
    return Restored(backup=found, aside=aside)


@contextmanager
def _alone(file: Path, otherwise: str) -> Iterator[None]:
    """Holds the lock that whoever runs there would hold. Where they never ran there is none, nor a place for it."""
    if not file.parent.exists():
        yield
        return
    with explaining(file), file.open("a+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalError(otherwise) from error
        yield


def _must_not_be_newer(journal: Path, source: Path, found: Backup) -> None:
    cure = "to go back to the backup all the same, force it (--force): what is there is kept beside"
    try:
        with closing(open_reader(journal)) as here, closing(open_reader(source)) as there, explaining(journal):
            same = meta(here, "line") == meta(there, "line")
            last = last_event(here, format_of(here, journal))
    except JournalError as error:
        raise JournalError(f"{error}; it cannot be compared with the backup: {cure}") from error
    if last and not same:
        raise JournalError(f"{journal}: has {last} events that are not those of the backup; {cure}")
    if last > found.seq:
        raise JournalError(f"{journal}: ends at event {last}, the backup at {found.seq}; {cure}")


def _unpack(source: Path, new: Path, journal: Path) -> None:
    """The backup as a line of its own, its snapshots under the name that the journal is about to have."""
    with closing(open_reader(source)) as db:
        db.execute("VACUUM INTO ?", (str(new),))
    with closing(open_writer(new)) as db:
        kept = db.execute("SELECT seq, body FROM snapshot ORDER BY seq").fetchall()
        with transaction(db):
            db.execute("DROP TABLE snapshot")
            new_line(db)
        line = meta(db, "line")
        db.execute("VACUUM")
    for seq, body in kept:
        snapshots.write_snapshot(journal, line, seq, body)


def _put_aside(journal: Path) -> Path | None:
    """A second name for it, the first that is free; the caller takes the first name away, so that at no moment a
    server would find no journal and begin an empty one."""
    if not journal.exists():
        return None
    with suppress(JournalError, sqlite3.Error), closing(open_writer(journal)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # so that the file is all of it, unless it is damaged
    aside = _free_name(journal)
    aside.hardlink_to(journal)
    for ending in ("-wal", "-shm"):
        if beside(journal, ending).exists():
            beside(journal, ending).rename(beside(aside, ending))
    return aside


def _free_name(path: Path) -> Path:
    for number in range(1, ASIDE_MAX):
        aside = beside(path, f".old-{number}")
        if not aside.exists():
            return aside
    raise JournalError(f"{path.parent}: {ASIDE_MAX} old ones are kept here; remove some")
