"""Backups are made beside a running writer, are looked at whole, and put nothing over what was there."""

import fcntl
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.journals.kit import ending, events_of, job_of
from tests.journals.test_sqlite import write_format_1
from tidegate.journals.backup import JOURNAL, KEEPER, KEEPER_LOCK, LOCK, backup, inspect, restore
from tidegate.journals.pruning import Keep, Pruner
from tidegate.journals.sqlite import SqliteJournal
from tidegate.ports import JournalError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def opened(home: Path) -> SqliteJournal:
    return SqliteJournal(home / JOURNAL, history=True)


def written(home: Path, count: int) -> SqliteJournal:
    journal = opened(home)
    first = journal.seq + 1
    journal.append(events_of(count, first))
    journal.record([ending(job_of(number)) for number in range(first, first + count)], journal.seq + count)
    journal.flush()
    journal.settle()
    return journal


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_there_and_back(home: Path, tmp_path: Path):
    journal = written(home, 20)
    for seq in (10, 20):
        journal.keep_snapshot(seq, b"state %d" % seq)
    journal.append(events_of(5, 21))
    journal.flush()
    made = backup(journal.path, tmp_path / "backup.db")
    assert (made.seq, made.at_ms, made.snapshots) == (25, 1025, (20, 10))
    assert names(tmp_path) == {"home", "backup.db"}
    assert inspect(made.path) == made
    assert list(SqliteJournal(made.path, readonly=True).read()) == events_of(25), "a backup is a journal"
    restored = restore(made.path, tmp_path / "new")
    assert (restored.backup.seq, restored.aside) == (25, None)
    again = opened(tmp_path / "new")
    assert list(again.read()) == events_of(25)
    assert list(again.snapshots()) == [(20, b"state 20"), (10, b"state 10")]
    assert len(again.history().recent(100)) == 20
    assert again.line != journal.line
    again.append(events_of(1, 26))
    again.close()


def test_a_backup_of_a_pruned_journal_stands_alone(home: Path, tmp_path: Path):
    journal = written(home, 20)
    journal.append(events_of(10, 21))
    journal.flush()
    for seq in (20, 30):
        journal.keep_snapshot(seq, b"state %d" % seq)
    while Pruner(journal, Keep(events_ms=0)).prune(5000):
        pass
    assert journal.pruned == 20
    backup(journal.path, tmp_path / "backup.db")
    restore(tmp_path / "backup.db", tmp_path / "new")
    again = opened(tmp_path / "new")
    assert (again.seq, again.pruned, list(again.read(20))) == (30, 20, events_of(10, 21))
    assert [seq for seq, _ in again.snapshots()] == [30, 20]


def test_what_is_there_is_put_aside(home: Path, tmp_path: Path):
    journal = written(home, 20)
    journal.keep_snapshot(20, b"state")
    backup(journal.path, tmp_path / "backup.db")
    journal.close()
    assert restore(tmp_path / "backup.db", home).aside == home / "journal.db.old-1", "nothing is newer there"
    written(home, 7).close()
    with pytest.raises(JournalError, match=r"27 events that are not those of the backup; .*--force"):
        restore(tmp_path / "backup.db", home)
    assert list(opened(home).read()) == events_of(27)
    aside = restore(tmp_path / "backup.db", home, force=True).aside
    assert aside == home / "journal.db.old-2"
    assert list(SqliteJournal(aside, readonly=True).read()) == events_of(27)
    assert list(SqliteJournal(home / "journal.db.old-1", readonly=True).read()) == events_of(20)
    again = opened(home)
    assert (list(again.read()), list(again.snapshots())) == (events_of(20), [(20, b"state")])


def test_newer_state_is_not_given_up_unasked(home: Path, tmp_path: Path):
    backup(written(home, 20).path, tmp_path / "backup.db")
    written(home, 1).close()
    with pytest.raises(JournalError, match=r"ends at event 21, the backup at 20; .*--force"):
        restore(tmp_path / "backup.db", home)
    assert "journal.db.old-1" not in names(home)


def test_a_damaged_home_is_replaced_when_forced(home: Path, tmp_path: Path):
    journal = written(home, 20)
    backup(journal.path, tmp_path / "backup.db")
    journal.close()
    journal.path.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(JournalError, match=r"damaged.*cannot be compared.*--force"):
        restore(tmp_path / "backup.db", home)
    aside = restore(tmp_path / "backup.db", home, force=True).aside
    assert aside is not None
    assert aside.read_bytes().startswith(b"not a database")
    assert list(opened(home).read()) == events_of(20)


def test_a_running_server_keeps_its_home(home: Path, tmp_path: Path):
    backup(written(home, 5).path, tmp_path / "backup.db")
    with (home / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(JournalError, match=r"a server runs on this home; stop it first \(tide down\)"):
            restore(tmp_path / "backup.db", home, force=True)


def test_what_the_keeper_knew_goes_aside_and_a_live_one_keeps_its_home(home: Path, tmp_path: Path):
    """Ids after the backup are given again: the end of another job 6 must not be told of the new one."""
    backup(written(home, 5).path, tmp_path / "backup.db")
    (home / KEEPER).mkdir()
    (home / KEEPER / "exits").write_text("of job 6")
    with (home / KEEPER / KEEPER_LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(JournalError, match="its keeper still runs"):
            restore(tmp_path / "backup.db", home, force=True)
    restore(tmp_path / "backup.db", home)
    assert not (home / KEEPER).exists()
    assert (home / "keeper.old-1" / "exits").read_text() == "of job 6"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE events SET crc = 0 WHERE first = 1", "damaged after event 0"),
        ("UPDATE snapshot SET crc = 0", "the snapshot at event 5 is damaged"),
        ("DROP TABLE snapshot", "not made by `tide backup`"),
        ("INSERT OR REPLACE INTO meta VALUES ('pruned', 9)", "damaged after|make the backup again"),
    ],
)
def test_a_damaged_backup_is_refused(home: Path, tmp_path: Path, statement: str, said: str):
    journal = written(home, 5)
    journal.keep_snapshot(5, b"state")
    path = backup(journal.path, tmp_path / "backup.db").path
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)
    with pytest.raises(JournalError, match=said):
        restore(path, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(JournalError, match=r"restore a backup|another backup|not made"):
        inspect(path)


def test_a_backup_is_put_nowhere_where_something_is(home: Path, tmp_path: Path):
    journal = written(home, 5)
    there = tmp_path / "there"
    there.write_text("dear")
    with pytest.raises(JournalError, match="is there already; give another name"):
        backup(journal.path, there)
    with pytest.raises(JournalError, match="make it first"):
        backup(journal.path, tmp_path / "nowhere" / "backup.db")
    with pytest.raises(JournalError, match="no such journal"):
        backup(tmp_path / "none.db", tmp_path / "backup.db")
    assert there.read_text() == "dear"
    assert names(tmp_path) == {"home", "there"}


def test_an_old_journal_has_to_be_opened_once_before(home: Path, tmp_path: Path):
    write_format_1(home / JOURNAL, 5)
    with pytest.raises(JournalError, match="earlier release; start the server on it once"):
        backup(home / JOURNAL, tmp_path / "backup.db")
    opened(home).close()
    assert backup(home / JOURNAL, tmp_path / "backup.db").seq == 5
