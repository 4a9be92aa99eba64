"""What is let go, and what is not."""

from pathlib import Path

import pytest

from tests.journals.kit import array_of, ending, events_of, job_of
from tidegate.app.keeping import PRUNE_EVERY, Keeping
from tidegate.journals.pruning import GROUPS_MAX, ROWS_MAX, Keep, Pruner
from tidegate.journals.snapshots import snapshot_path
from tidegate.journals.sqlite import SqliteJournal
from tidegate.model.jobs import Outcome
from tidegate.ports import JournalError

DAYS = 86_400_000


@pytest.fixture
def journal(tmp_path: Path) -> SqliteJournal:
    """A hundred events in groups of ten, at 1001 to 1100 ms; their history is written."""
    made = SqliteJournal(tmp_path / "journal.db", history=True)
    for _ in range(10):
        made.append(events_of(10, made.seq + 1))
        made.flush()
    made.record((), 100)
    made.settle()
    return made


def pruned(journal: SqliteJournal, now: int, **keep: int) -> int:
    pruner = Pruner(journal, Keep(**keep))
    slices = 0
    while pruner.prune(now):
        slices += 1
        assert slices < 1000
    return slices


def test_events_go_that_are_old_and_in_two_snapshots(journal: SqliteJournal):
    for seq in (45, 90):
        journal.keep_snapshot(seq, b"state")
    assert pruned(journal, 1035, events_ms=1) == 1
    assert journal.pruned == 30, "older than a millisecond"
    assert pruned(journal, 40 * DAYS) == 1
    assert journal.pruned == 40, "the whole groups that the second snapshot holds"
    assert list(journal.read(40)) == events_of(60, 41)
    with pytest.raises(JournalError, match=r"events up to number 40 were let go by age.*begin from one of those"):
        list(journal.read())
    with pytest.raises(JournalError, match="up to number 40"):
        list(journal.read(39))
    journal.close()
    again = SqliteJournal(journal.path, history=True)
    again.append(events_of(1, 101))
    again.flush()
    assert (again.seq, list(again.read(100))) == (101, events_of(1, 101))


def test_nothing_goes_without_two_snapshots_that_can_be_read(journal: SqliteJournal):
    assert pruned(journal, 40 * DAYS) == 0
    journal.keep_snapshot(90, b"state")
    assert pruned(journal, 40 * DAYS) == 0
    journal.keep_snapshot(95, b"state")
    path = snapshot_path(journal.path, journal.line, 90)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert pruned(journal, 40 * DAYS) == 0
    path.write_bytes(whole)
    assert pruned(journal, 40 * DAYS) == 1
    assert journal.pruned == 90


def test_nothing_goes_whose_history_is_not_written(journal: SqliteJournal):
    journal.db.execute("UPDATE meta SET value = '25' WHERE name = 'recorded'")
    journal.noted = 25
    for seq in (90, 95):
        journal.keep_snapshot(seq, b"state")
    pruned(journal, 40 * DAYS)
    assert journal.pruned == 20


def test_an_empty_journal_goes_on_with_its_numbers(journal: SqliteJournal):
    for seq in (100, 100, 100):
        journal.keep_snapshot(seq, b"state")
    journal.append(events_of(1, 101))
    journal.flush()
    journal.record((), 101)
    journal.settle()
    journal.keep_snapshot(101, b"state")
    pruned(journal, 40 * DAYS)
    assert journal.pruned == 100
    journal.db.execute("DELETE FROM events")
    journal.db.execute("UPDATE meta SET value = '101' WHERE name = 'pruned'")
    journal.close()
    assert SqliteJournal(journal.path).seq == 101


def test_slices_are_small(journal: SqliteJournal):
    for _ in range(2 * GROUPS_MAX):
        journal.append(events_of(1, journal.seq + 1))
        journal.flush()
    journal.record([ending(job_of(number)) for number in range(1, 2 * ROWS_MAX + 2)], journal.seq)
    journal.settle()
    for seq in (journal.seq - 1, journal.seq):
        journal.keep_snapshot(seq, b"state")
    assert pruned(journal, 400 * DAYS) == 3 + 3
    assert journal.history().recent(1) == []


def test_a_server_that_has_more_to_let_go_does_not_wait_for_the_next_time(tmp_path: Path):
    """Else a busy one would never get down to what the rule says."""
    keeping = Keeping(tmp_path / "journal.db", print)
    keeping.journal.record([ending(job_of(number)) for number in range(1, 3 * ROWS_MAX + 1)], 1)
    left = []
    for _ in range(PRUNE_EVERY + 3):
        keeping.tick(400 * DAYS)
        left.append(keeping.journal.db.execute("SELECT count(*) FROM ending").fetchone()[0])
    keeping.close()
    assert left[-5:] == [3 * ROWS_MAX, 2 * ROWS_MAX, ROWS_MAX, 0, 0]


def test_rows_of_the_history_go_by_age_and_by_number(journal: SqliteJournal):
    array = array_of(500, tuple(range(10)))
    rows = [ending(job_of(number), end_ms=number * DAYS) for number in range(1, 51)]
    rows += [ending(array, indices=(index,), end_ms=(51 + index) * DAYS) for index in range(10)]
    journal.record(rows, 101)
    journal.settle()
    history = journal.history()
    pruned(journal, 400 * DAYS)
    assert [row.end_ms // DAYS for row in history.recent(100)] == list(range(60, 34, -1))
    assert (history.job(34), history.endings(34)) == (None, [])
    assert history.job(35) is not None
    pruned(journal, 0, endings_max=4)
    assert [row.indices for row in history.recent(100)] == [(9,), (8,), (7,), (6,)]
    assert history.job(500) == array
    assert history.counts() == {Outcome.COMPLETED: 60}, "what was counted stays counted"
    pruned(journal, 0, endings_max=0)
    assert (history.recent(100), history.job(500)) == ([], None)
    journal.record([ending(array, indices=(3,))], 102)
    journal.settle()
    assert history.job(500) == array
