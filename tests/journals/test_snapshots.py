"""Snapshot files: whole or not there, two of them, and only of this journal."""

from pathlib import Path

import pytest

from tests.journals.kit import events_of
from tidegate.journals.snapshots import snapshot_files, snapshot_path
from tidegate.journals.sqlite import SqliteJournal


@pytest.fixture
def journal(tmp_path: Path) -> SqliteJournal:
    made = SqliteJournal(tmp_path / "jour[n]al*.db")
    made.append(events_of(30))
    made.flush()
    return made


def test_older_ones_go(journal: SqliteJournal):
    for seq in (5, 10, 15, 20):
        journal.keep_snapshot(seq, bytes([seq]) * 1000)
    assert [seq for seq, _ in journal.snapshots()] == [20, 15]
    assert len(snapshot_files(journal.path)) == 2


def test_one_that_is_damaged_is_there_without_its_octets(journal: SqliteJournal):
    for seq in (10, 20):
        journal.keep_snapshot(seq, b"x" * 1000)
    path = snapshot_path(journal.path, journal.line, 20)
    whole = path.read_bytes()
    damaged = (
        whole[:-1],
        whole + b"x",
        whole.replace(b"x", b"y", 1),
        b"",
        b"x" * 5000,
        whole.replace(b" 20 ", b" 19 "),
    )
    for content in damaged:
        path.write_bytes(content)
        assert list(journal.snapshots()) == [(20, b""), (10, b"x" * 1000)]
    path.write_bytes(whole)
    assert next(journal.snapshots()) == (20, b"x" * 1000)


def test_what_a_killed_writer_of_one_left_is_no_snapshot_and_goes(journal: SqliteJournal):
    journal.keep_snapshot(10, b"state")
    left = Path(f"{snapshot_path(journal.path, journal.line, 20)}.new-4711")
    left.write_bytes(b"half of it")
    assert list(journal.snapshots()) == [(10, b"state")]
    journal.close()
    again = SqliteJournal(journal.path)
    assert not left.exists()
    assert list(again.snapshots()) == [(10, b"state")]


def test_those_of_another_journal_are_not_taken(journal: SqliteJournal):
    journal.keep_snapshot(10, b"state")
    journal.close()
    stranger = SqliteJournal(journal.path, fresh=True)
    assert list(stranger.snapshots()) == []
    assert snapshot_files(journal.path) == []


def test_a_reader_may_make_one(journal: SqliteJournal):
    SqliteJournal(journal.path, readonly=True).keep_snapshot(30, b"state")
    assert list(journal.snapshots()) == [(30, b"state")]
