"""What SQLite says went wrong, as what a person can do about it."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidegate.ports import JournalError, JournalFullError

DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
READ_ONLY = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
PROBE = bytes(1 << 16)


def explained(path: Path, error: Exception) -> JournalError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of it says which system call
    said = f"{error}".rstrip(".")
    if _is_full(path, error, code):
        return JournalFullError(
            f"{path}: no room to write ({said}): make room on that disk, or raise the quota; "
            "nothing acknowledged is lost, and what waits to be written is tried again"
        )
    if code in DAMAGED:
        what, cure = "is damaged, or not a journal", "restore a backup (tide restore), or give another file"
    elif code in BUSY:
        what, cure = "is in use by another process that writes", "end that one; one server writes to a journal"
    elif code in READ_ONLY:
        what, cure = (
            "cannot be written",
            "make the file and its directory writable for this user",
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


def _is_full(path: Path, error: Exception, code: int) -> bool:
    """SQLite knows a full disk, but calls a used-up quota an I/O error; so we look."""
    if isinstance(error, OSError):
        return error.errno in NO_ROOM
    if code != sqlite3.SQLITE_IOERR:
        return code == sqlite3.SQLITE_FULL
    probe = path.with_name(f"{path.name}.room-{os.getpid()}")
    try:
        probe.write_bytes(PROBE)
    except OSError as told:
        return told.errno in NO_ROOM
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return False


@contextmanager
def explaining(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise explained(path, error) from error
