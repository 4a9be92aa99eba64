"""The history as tables: one row an ending, one row a job that has any, and how many tasks ever ended how."""

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from tidegate.journals import policies
from tidegate.journals.failures import explaining
from tidegate.journals.layout import format_of, open_reader
from tidegate.model.events import PolicyChanged
from tidegate.model.history import Ending
from tidegate.model.jobs import Job, Outcome, Used
from tidegate.ports import JournalError

ROWS_MAX = 10_000
"""One query gives at most so many rows."""
LOOKED_AT_MAX = 20_000
"""And looks at no more rows than that, newest first, where no index answers what was asked for."""

_encode = msgspec.msgpack.Encoder().encode
_decode_job = msgspec.msgpack.Decoder(Job).decode
_encode_nodes = msgspec.json.Encoder().encode
_decode_nodes = msgspec.json.Decoder(tuple[tuple[str, int], ...]).decode

INSERT_JOB = "INSERT OR IGNORE INTO job VALUES (?, ?, ?, ?, ?, ?)"
INSERT_ENDING = f"INSERT INTO ending VALUES (NULL{', ?' * 19})"
TALLY = "INSERT INTO tally VALUES (?, ?) ON CONFLICT (outcome) DO UPDATE SET tasks = tasks + excluded.tasks"
COLUMNS = (
    "row, job, indices, attempt, final, outcome, end_ms, start_ms, nodes, code, signal, why, failed, lost,"
    " cpu_ms, peak_kib, read_kib, written_kib"
)
UNKNOWN = -1


# -- writing, within the journal's transaction -------------------------------------------------------------


def write_endings(db: sqlite3.Connection, endings: Sequence[Ending], known: Collection[int]) -> None:
    """`known`: arrays whose record is there already. It may be large, so it is written once, not once a task."""
    jobs = {ending.job.id: ending.job for ending in endings if ending.job.id not in known}
    db.executemany(
        INSERT_JOB,
        [(job.id, job.spec.user, job.spec.queue, job.spec.name, job.submit_ms, _encode(job)) for job in jobs.values()],
    )
    db.executemany(INSERT_ENDING, map(_row, endings))
    tally: Counter[Outcome] = Counter()
    for ending in endings:
        if ending.final:
            tally[ending.outcome] += len(ending.indices)
    db.executemany(TALLY, [(str(outcome), tasks) for outcome, tasks in tally.items()])


def _row(ending: Ending) -> tuple[Any, ...]:
    """Unknown is NULL: an octet in the file."""
    job, used = ending.job, ending.used
    return (
        job.id,
        ranges(ending.indices),
        ending.attempt,
        1 if ending.final else 0,  # what is not exactly an int or a str takes a slow way through the driver
        str(ending.outcome),
        ending.end_ms,
        None if ending.start_ms == UNKNOWN else ending.start_ms,
        _encode_nodes(ending.nodes).decode() if ending.nodes else None,
        ending.code,
        ending.signal,
        ending.why or None,
        ending.failed,
        ending.lost,
        None if used.cpu_ms == UNKNOWN else used.cpu_ms,
        None if used.peak_kib == UNKNOWN else used.peak_kib,
        None if used.read_kib == UNKNOWN else used.read_kib,
        None if used.written_kib == UNKNOWN else used.written_kib,
        job.spec.user,
        job.spec.queue,
    )


def ranges(indices: Sequence[int]) -> str:
    """`0-2,7`: how a million tasks of one array fit into a row."""
    if len(indices) == 1:
        return str(indices[0])
    parts, first = [], 0
    for at, (one, other) in enumerate(pairwise((*indices, -1))):
        if other != one + 1:
            parts.append(f"{indices[first]}-{one}" if first < at else f"{one}")
            first = at + 1
    return ",".join(parts)


def indices_of(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)


# -- asking ------------------------------------------------------------------------------------------------


class History:
    """What has ended, newest first. Give the journal's connection, or none: then it has one of its own, to read.

    A journal writes its history some endings at a time: `SqliteJournal.settle` before asking shows the latest.
    """

    def __init__(self, path: Path, db: sqlite3.Connection | None = None) -> None:
        self.path = path
        self.db = open_reader(path) if db is None else db
        if format_of(self.db, path) == 1:
            raise JournalError(f"{path}: written by an earlier release, without a history; start the server on it once")

    def job(self, job: int) -> Job | None:
        rows = self._ask("SELECT body FROM job WHERE id = ?", (job,))
        return _decode_job(rows[0][0]) if rows else None

    def endings(self, job: int, limit: int = ROWS_MAX, *, above: int = 0) -> list[Ending]:
        """Of one job, oldest first; those after row `above`."""
        query = f"SELECT {COLUMNS} FROM ending WHERE job = ? AND row > ? ORDER BY row LIMIT ?"
        return self._endings(self._ask(query, (job, above, min(limit, ROWS_MAX))))

    def recent(
        self,
        limit: int,
        *,
        user: str | None = None,
        queue: str | None = None,
        state: Outcome | None = None,
        since: int | None = None,
        before: int | None = None,
        below: int | None = None,
        final: bool = True,
    ) -> list[Ending]:
        """Newest first. `since` <= end < `before`, in ms. `below`: rows under that number; for the next page give
        both `before` (the last row's end, plus 1) and `below`. `final`: only how tasks ended for good.

        One index answers, and what it gives is sifted by the other conditions: at most LOOKED_AT_MAX rows of it.
        """
        keys: list[tuple[str, Any]] = [("user = ?", user), ("queue = ?", queue)]
        if state is Outcome.COMPLETED:
            keys.append(("outcome = ?", state))  # as most are, so looking is quicker than an index
        elif state is not None:
            keys.insert(0, (f"outcome <> '{Outcome.COMPLETED}' AND outcome = ?", state))  # as the index says it
        keys = [key for key in keys if key[1] is not None]
        first = keys[:1] if keys and keys[0][1] is not Outcome.COMPLETED else []
        inner, values = _tests([*first, ("end_ms >= ?", since), ("end_ms < ?", before), ("+row < ?", below)])
        outer, more = _tests([*keys[len(first) :], ("final = ?", final or None)])
        looked_at = (
            f"SELECT row, user, queue, final, outcome FROM ending WHERE {inner} ORDER BY end_ms DESC, row DESC LIMIT ?"
        )
        query = (
            f"SELECT {COLUMNS} FROM ending WHERE row IN (SELECT row FROM ({looked_at}) WHERE {outer} LIMIT ?)"
            " ORDER BY end_ms DESC, row DESC"
        )
        return self._endings(self._ask(query, (*values, LOOKED_AT_MAX, *more, min(limit, ROWS_MAX))))

    def failed(self, job: int) -> int:
        """How many of its tasks ended for good and did not complete."""
        query = f"SELECT indices FROM ending WHERE job = ? AND final AND outcome <> '{Outcome.COMPLETED}'"
        return sum(len(indices_of(indices)) for (indices,) in self._ask(query, (job,)))

    def counts(self) -> dict[Outcome, int]:
        """How many tasks ever ended how, those whose rows are gone included."""
        return {Outcome(outcome): tasks for outcome, tasks in self._ask("SELECT outcome, tasks FROM tally", ())}

    def policy(self, version: int) -> PolicyChanged | None:
        """As it was put in force; None: it is not known (any more). At time 0: only what it says is known."""
        with explaining(self.path):
            return policies.read_policy(self.db, version)

    def policies(self, at_most: int) -> list[PolicyChanged]:
        """Newest first."""
        with explaining(self.path):
            return policies.read_policies(self.db, min(at_most, ROWS_MAX))

    def close(self) -> None:
        self.db.close()

    def _ask(self, query: str, values: Iterable[Any]) -> list[Any]:
        with explaining(self.path), closing(self.db.execute(query, tuple(values))) as cursor:
            return cursor.fetchall()

    def _endings(self, rows: list[Any]) -> list[Ending]:
        jobs: dict[int, Job] = {}
        for job in {row[1] for row in rows}:
            found = self.job(job)
            assert found is not None, "a job goes after the last of its endings"
            jobs[job] = found
        return [_ending(row, jobs[row[1]]) for row in rows]


def _tests(wanted: Iterable[tuple[str, Any]]) -> tuple[str, list[Any]]:
    """The condition, and its values."""
    given = [(test, value) for test, value in wanted if value is not None]
    return " AND ".join(test for test, _ in given) or "1", [value for _, value in given]


def _ending(row: tuple[Any, ...], job: Job) -> Ending:
    number, _, indices, attempt, final, outcome, end, start, nodes, code, signal, why, failed, lost, *used = row
    return Ending(
        job,
        indices_of(indices),
        attempt,
        bool(final),
        Outcome(outcome),
        end,
        UNKNOWN if start is None else start,
        _decode_nodes(nodes) if nodes else (),
        code,
        signal,
        Used(*(UNKNOWN if amount is None else amount for amount in used)),
        why or "",
        failed,
        lost,
        number,
    )
