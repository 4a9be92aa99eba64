"""What SQLite says went wrong, as what a person can do about it."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.ports import JournalError, JournalFullError

MIB = 1 << 20

DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
READ_ONLY = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
ROOM_MIB_MIN = 1
"""Writing failed with less than this free: then it is for want of room, whatever the disk called it."""


def explained(path: Path, error: Exception) -> JournalError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of it says which system call
    said = f"{error}".rstrip(".")
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _free_mib(path) < ROOM_MIB_MIN):
        return JournalFullError(
            f"{path}: no room to write ({said}; {_free_mib(path)} MiB free there): make room on that disk, or raise the "
            "quota; nothing that was acknowledged is lost, and what waits to be written is tried again"
        )
    if code in DAMAGED:
        what, cure = "is damaged, or not a journal", "restore a backup (tide restore), or give another file"
    elif code in BUSY:
        what, cure = "is in use by another process that writes", "end that one; one server writes to a journal"
    elif code in READ_ONLY:
        what, cure = (
            "cannot be written",
            "make the file and its directory writable for this user, or choose another home",
        )
    elif code == sqlite3.SQLITE_CANTOPEN or isinstance(error, OSError):
        what, cure = "cannot be opened", f"see that {path.parent} exists and is writable for this user"
    elif code == sqlite3.SQLITE_IOERR:
        what, cure = "cannot be read or written", "look at the disk and the system's log, then start again"
    elif code == sqlite3.SQLITE_CONSTRAINT:
        what, cure = "has events that this process did not write", "end the other writer, then start again"
    else:
        what, cure = "cannot be used as a journal", "give another file, or restore a backup (tide restore)"
    return JournalError(f"{path}: {what} ({said}); {cure}")


def _free_mib(path: Path) -> int:
    try:
        room = os.statvfs(path.parent)
    except OSError:
        return 0
    return room.f_bavail * room.f_frsize // MIB


@contextmanager
def explaining(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise explained(path, error) from error
