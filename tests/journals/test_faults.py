"""A disk that is full, a home that is read-only, a commit that may have come through: said, and nothing lost."""

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journals.kit import ending, events_of, job_of
from tests.kit.disks import small_disk
from tidegate.journals.layout import quick_check
from tidegate.journals.sqlite import HISTORY_AT, SqliteJournal
from tidegate.ports import JournalError, JournalFullError


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", 1) as place:
        yield place


def filled(journal: SqliteJournal) -> int:
    """Writes until there is no room; returns how many events wait now."""
    with pytest.raises(JournalFullError, match="make room on that disk"):
        write_for_ever(journal)
    return len(journal.pending)


def write_for_ever(journal: SqliteJournal) -> None:
    for _ in range(10_000):
        assert not journal.pending
        journal.append(events_of(100, journal.seq + 1))
        journal.flush()


def test_a_full_disk_is_waited_out(small: Path):
    ballast = small / "ballast"
    ballast.write_bytes(bytes(300_000))
    journal = SqliteJournal(small / "journal.db")
    assert filled(journal) == 100
    safe = journal.seq
    for _ in range(3):
        with pytest.raises(JournalFullError):
            journal.flush()
    assert list(SqliteJournal(journal.path, readonly=True).read()) == events_of(safe)
    journal.append(events_of(5, safe + 101))
    ballast.unlink()
    journal.flush()
    assert (journal.seq, journal.pending) == (safe + 105, [])
    journal.close()
    quick_check(journal.path)
    assert list(SqliteJournal(journal.path).read()) == events_of(safe + 105)


def test_a_server_that_gives_up_on_a_full_disk_loses_only_what_it_never_acknowledged(small: Path):
    journal = SqliteJournal(small / "journal.db")
    filled(journal)
    safe = journal.seq
    with pytest.raises(JournalFullError):
        journal.close()
    again = SqliteJournal(journal.path, readonly=True)
    assert list(again.read()) == events_of(safe)


def test_a_full_disk_leaves_the_snapshots_there_were(small: Path):
    journal = SqliteJournal(small / "journal.db")
    journal.append(events_of(1))
    journal.flush()
    journal.keep_snapshot(1, b"small")
    with pytest.raises(JournalFullError, match="no room"):
        journal.keep_snapshot(1, bytes(2_000_000))
    with pytest.raises(JournalFullError, match="no room"):
        journal.keep_snapshot(2, bytes(2_000_000))
    assert list(journal.snapshots()) == [(1, b"small")]
    assert sorted(file.name for file in small.iterdir() if "snapshot" in file.name) == [
        f"journal.db-snapshot-{journal.line[:8]}-1"
    ]


def test_no_room_for_the_history_keeps_both_waiting(tmp_path: Path):
    journal = SqliteJournal(tmp_path / "journal.db", history=True)
    journal.append(events_of(HISTORY_AT))
    journal.record([ending(job_of(number)) for number in range(1, HISTORY_AT + 1)], HISTORY_AT)
    pages = journal.db.execute("PRAGMA page_count").fetchone()[0]
    journal.db.execute(f"PRAGMA max_page_count={pages + 20}")
    with pytest.raises(JournalFullError):
        journal.flush()
    assert (journal.seq, journal.recorded, len(journal.backlog)) == (0, 0, HISTORY_AT)
    journal.db.execute(f"PRAGMA max_page_count={pages + 100_000}")
    journal.flush()
    assert (journal.seq, journal.recorded, journal.backlog) == (HISTORY_AT, HISTORY_AT, [])
    assert len(journal.history().recent(1000)) == HISTORY_AT


# -- what may not be written -------------------------------------------------------------------------------


def test_a_file_that_may_not_be_written_is_said(tmp_path: Path):
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    journal.append(events_of(3))
    journal.close()
    if os.geteuid() == 0:  # whom no mode keeps out; a device that cannot be written does
        subprocess.run(["mount", "--bind", "-o", "ro", str(tmp_path), str(tmp_path)], check=False, capture_output=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", str(tmp_path)], check=False, capture_output=True)
    else:
        tmp_path.chmod(0o500)
        path.chmod(0o400)
    try:
        if os.access(path, os.W_OK):
            pytest.skip("a read-only home not tested: nothing could be made read-only")
        with pytest.raises(JournalError, match=r"make the file and its directory writable|is writable for this user"):
            SqliteJournal(path).append(events_of(1))
        assert list(SqliteJournal(path, readonly=True).read()) == events_of(3)
        with pytest.raises(JournalError, match="is writable for this user"):
            SqliteJournal(tmp_path / "new.db")
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", "--lazy", str(tmp_path)], check=False, capture_output=True)
        else:
            tmp_path.chmod(0o700)


@pytest.mark.parametrize("ending", ["", "-wal"])
def test_a_file_that_was_removed_takes_nothing_more_until_it_is_back(tmp_path: Path, ending: str):
    journal = SqliteJournal(tmp_path / "journal.db", history=True)
    journal.append(events_of(3))
    journal.flush()
    journal.look()
    file, aside = tmp_path / f"journal.db{ending}", tmp_path / "aside"
    file.rename(aside)
    file.write_bytes(b"another")
    with pytest.raises(JournalError, match=r"was removed, or another file is in its place.*put it back"):
        journal.look()
    journal.append(events_of(2, 4))
    with pytest.raises(JournalError, match="put it back"):
        journal.flush()
    aside.rename(file)
    journal.flush()
    journal.close()
    assert list(SqliteJournal(journal.path, readonly=True).read()) == events_of(5)


# -- commits that fail, or seem to -------------------------------------------------------------------------


class Unsteady:
    """A connection whose next commits fail: before they happened, or after."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.failing: list[str] = []

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if self.failing and (
            statement == "COMMIT" or (values and not self.db.in_transaction and "INSERT" in statement)
        ):
            if self.failing.pop() == "after":
                self.db.execute(statement, *values)
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        return self.db.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.db, name)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("ended", [0, HISTORY_AT])
def test_a_failed_commit_is_looked_up_before_it_is_tried_again(tmp_path: Path, when: str, ended: int):
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path, history=True)
    journal.append(events_of(3))
    journal.flush()
    unsteady = Unsteady(journal.db)
    journal.db = unsteady  # type: ignore[assignment]
    for _ in range(3):
        first = journal.seq + 1
        journal.append(events_of(4, first))
        journal.record([ending(job_of(first * 1000 + number)) for number in range(ended)], first + 3)
        unsteady.failing = [when]
        with pytest.raises(JournalError, match="look at the disk"):
            journal.flush()
        assert journal.seq == first - 1
        journal.append(events_of(2, first + 4))
        journal.record([ending(job_of(first * 1000 - 1))] if ended else [], first + 5)
        journal.flush()
        assert journal.seq == first + 5
        journal.append(events_of(1, first + 6))
        journal.record([ending(job_of(first * 1000 - 2))] if ended else [], first + 6)
        unsteady.failing = [when]
        with pytest.raises(JournalError, match="look at the disk"):
            journal.settle()
        journal.flush()
        assert journal.seq == first + 6
    journal.close()
    again = SqliteJournal(path, history=True)
    assert list(again.read()) == events_of(24)
    assert again.recorded == 24
    rows = 3 * (ended + 2) if ended else 0
    assert again.db.execute("SELECT count(*), count(DISTINCT job) FROM ending").fetchone() == (rows, rows)
