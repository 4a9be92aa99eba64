"""What every journal must do, whatever it is made of."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.journals.kit import ending, events_of, job_of
from tidegate.journals.memory import MemoryJournal
from tidegate.journals.sqlite import SqliteJournal
from tidegate.ports import Journal

Make = Callable[[], Journal]


@pytest.fixture(params=["memory", "sqlite", "sqlite grouped"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Opens the same journal again at each call; the caller closes the one before."""
    path = tmp_path / "journal.db"
    made: list[Journal] = []

    def new() -> Journal:
        if request.param == "memory":
            journal: Journal = made[0] if made else MemoryJournal(history=True)
        else:
            journal = SqliteJournal(path, history=True, grouped=request.param == "sqlite grouped")
        made.append(journal)
        return journal

    yield new
    for journal in made:
        if isinstance(journal, SqliteJournal):
            journal.db.close()


def written(journal: Journal, *sizes: int) -> int:
    done = journal.seq
    for size in sizes:
        journal.append(events_of(size, done + 1))
        journal.flush()
        done += size
    return done


def test_a_new_journal_is_empty(make: Make):
    journal = make()
    assert (journal.seq, journal.recorded, list(journal.read()), list(journal.snapshots())) == (0, 0, [], [])


def test_what_is_closed_is_there_in_order(make: Make):
    journal = make()
    total = written(journal, 1, 2, 3, 700, 0, 5000)
    journal.close()
    journal = make()
    assert journal.seq == total
    assert list(journal.read()) == events_of(total)


@pytest.mark.parametrize("after", [0, 1, 2, 3, 5, 6, 99, 100, 104, 105, 106, 1000])
def test_reading_begins_after_any_number(make: Make, after: int):
    journal = make()
    written(journal, 1, 2, 3, 94, 5)
    journal.close()
    assert list(make().read(after)) == events_of(105)[after:]


def test_events_of_one_append_may_be_of_several_flushes(make: Make):
    journal = make()
    journal.append(events_of(2))
    journal.append(events_of(1, 3))
    journal.flush()
    journal.append([])
    journal.flush()
    journal.append(events_of(4, 4))
    journal.close()
    assert list(make().read()) == events_of(7)


def test_numbers_go_on_after_reopening(make: Make):
    for _ in range(4):
        journal = make()
        written(journal, 3, 2)
        journal.close()
    assert list(make().read()) == events_of(20)


def test_a_journal_may_be_written_while_it_is_read(make: Make):
    journal = make()
    written(journal, *[2] * 100)
    journal.close()
    journal = make()
    reading = journal.read()
    seen = [next(reading) for _ in range(5)]
    written(journal, 10)
    seen.extend(reading)
    assert seen[:200] == events_of(200)


def test_the_history_follows_the_events(make: Make):
    journal = make()
    journal.append(events_of(5))
    journal.record([ending(job_of(1))], 5)
    journal.close()
    assert make().recorded == 5


def test_two_snapshots_are_kept_newest_first(make: Make):
    journal = make()
    written(journal, 9)
    for seq in (3, 6, 9):
        journal.keep_snapshot(seq, b"state %d" % seq)
    assert list(journal.snapshots()) == [(9, b"state 9"), (6, b"state 6")]
    journal.close()
    assert list(make().snapshots()) == [(9, b"state 9"), (6, b"state 6")]
