"""`tide backup` and `tide restore`, in words."""

import os
from pathlib import Path

from tidegate.journals.backup import JOURNAL
from tidegate.journals.backup import backup as copy
from tidegate.journals.backup import restore as put_back
from tidegate.ports import JournalError

__all__ = ["JournalError", "backup", "restore"]

MIB = 1 << 20
PRIVATE_UMASK = 0o077
"""A copy of a journal is as secret as the journal."""


def backup(home: str, file: str) -> str:
    os.umask(PRIVATE_UMASK)
    made = copy(Path(home) / JOURNAL, Path(file))
    return f"{made.path}: {made.seq:,} events, {made.octets / MIB:.1f} MiB, read back and found whole"


def restore(home: str, file: str, *, force: bool = False) -> str:
    os.umask(PRIVATE_UMASK)
    done = put_back(Path(file), Path(home), force=force)
    aside = f"; what was there is kept as {done.aside}" if done.aside is not None else ""
    return f"{home} goes on after event {done.backup.seq:,} of {file}{aside}"
