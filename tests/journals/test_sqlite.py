"""The file: killed writers, readers beside a writer, damage, and files of an earlier release."""

import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest

from tests.journals.kit import events_of
from tidegate.journals.history import History
from tidegate.journals.layout import GROUP_MAX, quick_check
from tidegate.journals.sqlite import SqliteJournal
from tidegate.model.events import Event
from tidegate.ports import JournalError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def written(path: Path, *sizes: int) -> SqliteJournal:
    """An open journal that was flushed after each of so many events."""
    journal = SqliteJournal(path)
    for size in sizes:
        journal.append(events_of(size, journal.seq + 1))
        journal.flush()
    return journal


def changed(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


# -- killed writers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_what_a_killed_writer_flushed_is_there_without_a_hole(path: Path, seed: int):
    chance = random.Random(seed)
    safe = 0
    for life in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-m", "tests.journals.writer", str(path), str(seed * 10 + life)],
            stdout=subprocess.PIPE, cwd=ROOT, text=True,
        )  # fmt: skip
        assert writer.stdout is not None
        with writer:
            said = [int(writer.stdout.readline()) for _ in range(chance.randint(1, 40))]
            writer.kill()
            said += [int(line) for line in writer.stdout]
        assert said[0] >= safe, "a new writer goes on where the last one was"
        safe = said[-1]
        journal = SqliteJournal(path, history=True)
        assert journal.seq >= safe
        assert list(journal.read()) == events_of(journal.seq)
        rows = journal.db.execute("SELECT count(*), count(DISTINCT job) FROM ending").fetchone()
        assert rows == (journal.recorded, journal.recorded)
        journal.close()
        quick_check(path)


def test_a_log_that_a_killed_writer_left_is_read(path: Path, tmp_path: Path):
    journal = written(path, 10, 20)
    copy = tmp_path / "as-killed.db"
    for ending in ("", "-wal"):
        (tmp_path / f"as-killed.db{ending}").write_bytes(Path(f"{path}{ending}").read_bytes())
    journal.close()
    assert list(SqliteJournal(copy, readonly=True).read()) == events_of(30)
    assert SqliteJournal(copy).seq == 30


def test_a_torn_last_write_is_as_if_it_had_not_been(path: Path, tmp_path: Path):
    journal = written(path, 10, 20)
    log = Path(f"{path}-wal").read_bytes()
    journal.append(events_of(5, 31))
    journal.flush()
    grown = Path(f"{path}-wal").read_bytes()
    assert len(grown) > len(log)
    for torn in (len(log) + 1, len(log) + 1000, len(grown) - 1):
        copy = tmp_path / f"torn-{torn}.db"
        copy.write_bytes(path.read_bytes())
        Path(f"{copy}-wal").write_bytes(grown[:torn])
        again = SqliteJournal(copy)
        assert list(again.read()) == events_of(30)
        again.append(events_of(1, 31))
        again.close()
        assert list(SqliteJournal(copy).read()) == events_of(31)


# -- readers -----------------------------------------------------------------------------------------------


def test_a_reader_follows_while_the_writer_writes(path: Path):
    writer = written(path, 3)
    reader = SqliteJournal(path, readonly=True)
    seen = list(reader.read())
    for size in (1, 700, 5000, 2):
        writer.append(events_of(size, writer.seq + 1))
        assert list(reader.read(len(seen))) == [], "what is not flushed is nobody's"
        writer.flush()
        assert reader.seq == writer.seq
        seen += reader.read(len(seen))
    assert seen == events_of(writer.seq)
    reader.append(events_of(1))
    with pytest.raises(JournalError, match="cannot be written"):
        reader.flush()


def test_many_events_of_one_flush_are_read_in_pieces(path: Path):
    journal = written(path, 3 * GROUP_MAX + 1)
    assert journal.db.execute("SELECT count(*), max(last - first) FROM events").fetchone() == (4, GROUP_MAX - 1)
    assert list(journal.read(GROUP_MAX - 1))[:2] == events_of(2, GROUP_MAX)


# -- damage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE events SET body = substr(body, 1, length(body) - 1) WHERE first = 11", "events 11 to 20 are damaged"),
        ("UPDATE events SET crc = crc + 1 WHERE first = 21", "events 21 to 30 are damaged"),
        ("DELETE FROM events WHERE first = 11", "events 11 to 20 are missing"),
        ("DELETE FROM events WHERE first = 1", "events 1 to 10 are missing"),
    ],
)
def test_damage_is_said_where_it_is(path: Path, statement: str, said: str):
    written(path, 10, 10, 10).close()
    changed(path, statement)
    with pytest.raises(JournalError, match=f"{said}; restore a backup"):
        list(SqliteJournal(path).read())


def test_an_event_of_a_kind_nobody_knows_is_said(path: Path):
    journal = written(path, 10)
    body = msgspec.msgpack.encode([{"type": "JobBlessed", "at": 1}])
    journal.db.execute("INSERT INTO events VALUES (11, 11, 1, ?, ?)", (crc32(body), body))
    with pytest.raises(JournalError, match=r"events 11 to 11 cannot be read .*JobBlessed"):
        list(journal.read())


def test_a_file_cut_short_is_damaged(path: Path):
    written(path, 20_000).close()
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size // 2)
    with pytest.raises(JournalError, match="damaged"):
        quick_check(path)
    with pytest.raises(JournalError, match=r"(damaged|missing)"):
        list(SqliteJournal(path).read())


def test_a_file_of_another_kind_is_refused_and_left_alone(path: Path, tmp_path: Path):
    text = tmp_path / "thesis.txt"
    text.write_text("years of work\n" * 200)
    other = tmp_path / "bookmarks.db"
    changed(other, "CREATE TABLE bookmark (url TEXT)")
    newer = tmp_path / "newer.db"
    written(newer, 1).close()
    changed(newer, "UPDATE meta SET value = '9' WHERE name = 'format'")
    wanted = ((text, "not a journal"), (other, "not a journal of Tidegate"), (newer, "format 9.*reads up to 2"))
    for file, said in wanted:
        before = file.read_bytes()
        for readonly in (False, True):
            with pytest.raises(JournalError, match=said):
                SqliteJournal(file, readonly=readonly)
        if file is not newer and file is not other:  # opening those sets the mode in their header
            assert file.read_bytes() == before
    with pytest.raises(JournalError, match="there is no such journal"):
        SqliteJournal(path, readonly=True)
    with pytest.raises(JournalError, match=r"cannot be opened.*see that .* exists"):
        SqliteJournal(tmp_path / "no-such-directory" / "journal.db")


def test_a_second_writer_is_found_out(path: Path):
    first, second = written(path, 3), written(path)
    for journal in (first, second):
        journal.append(events_of(1, 4))
    first.flush()
    with pytest.raises(JournalError, match=r"did not write.*end the other writer"):
        second.flush()
    first.append(events_of(1, 5))
    first.flush()
    with pytest.raises(JournalError, match="another one writes to it"):
        second.flush()
    assert list(first.read()) == events_of(5)


# -- files of an earlier release ---------------------------------------------------------------------------


def write_format_1(path: Path, count: int, *more: Event) -> None:
    """As release 0.1 wrote it, byte for byte: a row an event, bodies in msgpack with the type in `type`."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.executescript(
            "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);"
            "CREATE TABLE event (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, body BLOB NOT NULL);"
        )
        db.execute("INSERT INTO meta VALUES ('format', '1')")
        rows = [(seq, event.at, old_body(event)) for seq, event in enumerate((*events_of(count), *more), 1)]
        db.execute("BEGIN")
        db.executemany("INSERT INTO event VALUES (?, ?, ?)", rows)
        db.execute("COMMIT")


def old_body(event: object) -> bytes:
    """Without the fields that came later."""
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(event))
    for name in ("by", "note", "signal", "used", "blames", "until", "counts", "again"):
        fields.pop(name, None)
    if "job" in fields and isinstance(fields["job"], dict):
        fields["job"]["spec"].pop("work")
    return msgspec.msgpack.encode(fields)


def as_old(events: list[Any]) -> list[Any]:
    return [msgspec.msgpack.decode(old_body(event), type=type(event)) for event in events]


@pytest.mark.parametrize("count", [0, 1, 10, 2 * GROUP_MAX, 2 * GROUP_MAX + 5])
def test_a_journal_of_the_previous_release_opens(path: Path, count: int):
    write_format_1(path, count)
    reader = SqliteJournal(path, readonly=True)
    assert (reader.seq, list(reader.read(count // 2))) == (count, as_old(events_of(count))[count // 2 :])
    with pytest.raises(JournalError, match=r"earlier release.*start the server on it once"):
        History(path)
    reader.close()
    journal = SqliteJournal(path, history=True)
    journal.append(events_of(3, count + 1))
    journal.close()
    again = SqliteJournal(path, readonly=True)
    assert list(again.read()) == as_old(events_of(count)) + events_of(3, count + 1)
    assert History(path).counts() == {}


def test_an_old_journal_with_a_hole_is_left_as_it_is(path: Path):
    write_format_1(path, 10)
    changed(path, "DELETE FROM event WHERE seq = 4")
    for _ in range(2):
        with pytest.raises(JournalError, match="events after number 0 are missing; restore a backup"):
            SqliteJournal(path)
