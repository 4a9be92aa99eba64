"""The table of policies: a view of the events, whole after a crash, an older release, and pruning."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.journals.kit import events_of
from tests.journals.test_sqlite import write_format_1
from tidegate.journals.backup import backup, restore
from tidegate.journals.pruning import Keep, Pruner
from tidegate.journals.sqlite import SqliteJournal
from tidegate.model.events import PolicyChanged
from tidegate.model.policy import Order, OrderBy, PolicySpec
from tidegate.ports import JournalError

DAYS = 86_400_000


def change(version: int) -> PolicyChanged:
    policy = PolicySpec(f"p{version}", order=Order(OrderBy.SHORTEST, ageing_bound_ms=version))
    return PolicyChanged(1000 + version, version, policy, "ann", f"note {version}")


def opened(path: Path) -> SqliteJournal:
    return SqliteJournal(path, history=True)


def versions(journal: SqliteJournal) -> list[int]:
    return [event.version for event in journal.history().policies(100)]


@pytest.fixture
def journal(tmp_path: Path) -> SqliteJournal:
    """Three changes among other events, each in a flush of its own."""
    made = opened(tmp_path / "journal.db")
    for version in (1, 2, 3):
        made.append([*events_of(3), change(version), *events_of(2)])
        made.flush()
    return made


def test_what_was_in_force_is_told_newest_first(journal: SqliteJournal):
    history = journal.history()
    assert history.policies(100) == [change(3), change(2), change(1)]
    assert history.policies(2) == [change(3), change(2)]
    assert (history.policy(2), history.policy(4)) == (change(2), None)
    journal.close()
    assert versions(opened(journal.path)) == [3, 2, 1]


def test_it_is_written_with_its_event_or_not_at_all(journal: SqliteJournal):
    journal.db.execute("PRAGMA query_only=1")
    journal.append([change(4)])
    with pytest.raises(JournalError):
        journal.flush()
    assert versions(journal) == [3, 2, 1]
    journal.db.execute("PRAGMA query_only=0")
    journal.flush()
    assert versions(journal) == [4, 3, 2, 1]
    assert list(journal.read(journal.seq - 1)) == [change(4)]


def test_what_an_earlier_release_added_is_found_in_the_events(journal: SqliteJournal):
    journal.db.execute("DELETE FROM policy WHERE version > 1")
    journal.see_to_policies(3, change(3).policy)
    assert journal.history().policies(100) == [change(3), change(2), change(1)]
    assert journal.db.execute("SELECT seq FROM policy ORDER BY version").fetchall() == [(4,), (10,), (16,)]
    journal.db.execute("DROP TABLE policy")
    journal.close()
    again = opened(journal.path)
    again.see_to_policies(3, change(3).policy)
    assert versions(again) == [3, 2, 1]


def test_a_file_of_the_first_format_opens(tmp_path: Path):
    path = tmp_path / "journal.db"
    write_format_1(path, 2, change(1), *events_of(2), change(2))
    journal = opened(path)
    journal.see_to_policies(2, change(2).policy)
    assert journal.history().policies(100) == [replace(change(n), by="", note="") for n in (2, 1)]


def test_pruning_lets_none_go(journal: SqliteJournal):
    for seq in (17, 18):
        journal.keep_snapshot(seq, b"state")
    journal.record((), 18)
    journal.settle()
    while Pruner(journal, Keep(events_ms=1)).prune(40 * DAYS):
        pass
    assert journal.pruned > 10
    assert versions(journal) == [3, 2, 1]


def test_what_went_before_there_was_a_table_is_not_known_but_what_is_in_force_is(journal: SqliteJournal):
    test_pruning_lets_none_go(journal)
    journal.db.execute("DELETE FROM policy")
    journal.see_to_policies(3, change(3).policy)
    assert journal.history().policies(100) in (
        [PolicyChanged(0, 3, change(3).policy)],
        [change(3)],
    )
    journal.db.execute("DELETE FROM policy")
    journal.db.execute("DELETE FROM events")
    journal.db.execute("UPDATE meta SET value = '18' WHERE name = 'pruned'")
    journal.see_to_policies(3, change(3).policy)
    assert journal.history().policies(100) == [PolicyChanged(0, 3, change(3).policy)]


def test_a_backup_has_them(journal: SqliteJournal, tmp_path: Path):
    made = backup(journal.path, tmp_path / "backup.db")
    restored = restore(made.path, tmp_path / "new")
    assert restored.backup.seq == journal.seq
    assert versions(opened(tmp_path / "new" / "journal.db")) == [3, 2, 1]
