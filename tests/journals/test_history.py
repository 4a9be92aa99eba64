"""The history as tables: what is written is given back, each question within bounds."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.journals.kit import array_of, ending, job_of
from tidegate.journals import history as tables
from tidegate.journals.history import History, indices_of, ranges
from tidegate.journals.sqlite import SqliteJournal
from tidegate.model.history import Ending
from tidegate.model.jobs import Outcome, Used
from tidegate.ports import JournalError


@pytest.fixture
def journal(tmp_path: Path) -> SqliteJournal:
    return SqliteJournal(tmp_path / "journal.db", history=True)


def keep(journal: SqliteJournal, *endings: Ending) -> History:
    journal.record(endings, journal.upto + 1)
    journal.settle()
    return journal.history()


def unnumbered(endings: list[Ending]) -> list[Ending]:
    return [Ending(*(getattr(one, name) for name in Ending.__struct_fields__[:-1])) for one in endings]


FULL = ending(
    job_of(7, tags=(("a", "b"),)), attempt=3, outcome=Outcome.OUT_OF_MEMORY, code=137, signal=9, used=Used(1, 2, 3, 4),
    why="used more than it asked for", failed=2, lost=1, nodes=(("n1", 4), ("n2", 1)),
)  # fmt: skip
BARE = ending(job_of(8), attempt=0, outcome=Outcome.CANCELLED, start_ms=-1, nodes=())


def test_every_field_is_given_back(journal: SqliteJournal):
    history = keep(journal, FULL, BARE)
    assert unnumbered(history.recent(10)) == [BARE, FULL]
    assert unnumbered(history.endings(7)) == [FULL]
    assert history.job(7) == FULL.job
    assert (history.job(9), history.endings(9)) == (None, [])


@given(st.sets(st.integers(0, 60), min_size=1).map(sorted).map(tuple))
def test_indices_are_written_as_ranges(indices: tuple[int, ...]):
    assert indices_of(ranges(indices)) == indices


def test_ranges_are_short():
    assert ranges((0, 1, 2, 7, 9, 10)) == "0-2,7,9-10"
    assert ranges((5,)) == "5"
    assert ranges(tuple(range(1 << 20))) == f"0-{(1 << 20) - 1}"


def test_tasks_of_an_array_are_rows_of_one_job(journal: SqliteJournal):
    array = array_of(3, tuple(range(6)))
    keep(journal, ending(array, indices=(0,)), ending(array, indices=(1,), outcome=Outcome.LOST, final=False))
    history = keep(journal, ending(array, indices=(2, 3, 4), outcome=Outcome.CANCELLED, attempt=0, start_ms=-1))
    rows = history.endings(3)
    assert [(row.indices, row.final) for row in rows] == [((0,), True), ((1,), False), ((2, 3, 4), True)]
    assert {row.job for row in rows} == {array}
    assert journal.db.execute("SELECT count(*) FROM job").fetchone() == (1,)
    assert history.counts() == {Outcome.COMPLETED: 1, Outcome.CANCELLED: 3}
    assert [row.indices for row in history.endings(3, above=rows[0].row)] == [(1,), (2, 3, 4)]
    assert [row.indices for row in history.endings(3, 1)] == [(0,)]


def test_the_record_of_a_job_is_written_once_whatever_fails(journal: SqliteJournal):
    array = array_of(3, (0, 1))
    journal.record([ending(array)], 1)
    journal.db.execute("PRAGMA query_only=1")
    with pytest.raises(JournalError, match="cannot be written"):
        journal.settle()
    journal.db.execute("PRAGMA query_only=0")
    journal.settle()
    assert journal.history().job(3) == array
    journal.close()
    again = SqliteJournal(journal.path, history=True)
    assert keep(again, ending(array, indices=(1,))).endings(3)[-1].indices == (1,)


def many(journal: SqliteJournal) -> History:
    """Of three users, two queues and three outcomes, one a millisecond; every fifth is not final."""
    outcomes = (Outcome.COMPLETED, Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMED_OUT)
    rows = [
        ending(
            job_of(number, user="abc"[number % 3], queue=("slow", "fast")[number % 2]),
            end_ms=number, outcome=outcomes[number % 4], final=number % 5 > 0,
        )
        for number in range(1, 121)
    ]  # fmt: skip
    return keep(journal, *rows)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"final": False},
        {"user": "b"},
        {"queue": "fast"},
        {"state": Outcome.FAILED},
        {"state": Outcome.COMPLETED},
        {"since": 50, "before": 70},
        {"user": "c", "queue": "slow", "state": Outcome.TIMED_OUT, "since": 20},
        {"user": "a", "state": Outcome.COMPLETED, "before": 100},
        {"user": "nobody"},
    ],
)
def test_questions_are_answered_newest_first(journal: SqliteJournal, asked: dict[str, object]):
    history = many(journal)
    everything = history.recent(1000, final=False)
    assert [row.end_ms for row in everything] == list(range(120, 0, -1))

    def wanted(row: Ending) -> bool:
        return (
            (row.final or asked.get("final") is False)
            and row.job.spec.user == asked.get("user", row.job.spec.user)
            and row.job.spec.queue == asked.get("queue", row.job.spec.queue)
            and row.outcome == asked.get("state", row.outcome)
            and asked.get("since", 0) <= row.end_ms < asked.get("before", 1000)  # type: ignore[operator]
        )

    expected = [row for row in everything if wanted(row)]
    assert history.recent(1000, **asked) == expected  # type: ignore[arg-type]
    paged: list[Ending] = []
    while page := history.recent(7, **{**asked, "below": paged[-1].row if paged else None}):  # type: ignore[arg-type]
        paged += page
    assert paged == expected


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        ({}, "ending_by_end"),
        ({"since": 5, "before": 70}, "ending_by_end"),
        ({"below": 50}, "ending_by_end"),
        ({"user": "a", "since": 5}, "ending_by_user"),
        ({"state": Outcome.FAILED}, "ending_gone_wrong"),
    ],
)
def test_what_is_asked_often_is_looked_up(journal: SqliteJournal, asked: dict[str, object], index: str):
    history = many(journal)
    plans: list[str] = []
    ask = history._ask

    def explained(query: str, values: Iterable[Any]) -> list[Any]:
        if " IN (SELECT" in query:
            plans.extend(row[3] for row in ask(f"EXPLAIN QUERY PLAN {query}", values))
        return ask(query, values)

    history._ask = explained  # type: ignore[method-assign]
    history.recent(5, **asked)  # type: ignore[arg-type]
    assert any(f"ending USING INDEX {index}" in step for step in plans), plans
    assert sum("TEMP B-TREE" in step for step in plans) == 1, "only the rows of the answer are sorted"


def test_answers_are_bounded(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch):
    history = many(journal)
    monkeypatch.setattr(tables, "ROWS_MAX", 9)
    assert len(history.recent(1_000_000)) == 9
    monkeypatch.setattr(tables, "LOOKED_AT_MAX", 10)
    assert len(history.recent(1_000_000, queue="fast")) < 9
    assert len(history.endings(5, 1_000_000)) == 1


def test_another_process_may_ask(journal: SqliteJournal):
    many(journal)
    reader = History(journal.path)
    assert len(reader.recent(1000, final=False)) == 120
    keep(journal, BARE)
    assert len(reader.recent(1000, final=False)) == 121
    reader.close()
