"""Steps: what `srun` ran in an allocation. Not scheduling, so not in the journal: a small database of their own."""

import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS steps (
    job INTEGER, task INTEGER, attempt INTEGER, number INTEGER, name TEXT, tasks INTEGER, cpus INTEGER, nodes TEXT,
    start_ms INTEGER, end_ms INTEGER, code INTEGER, signal INTEGER, cpu_ms INTEGER, peak_kib INTEGER,
    PRIMARY KEY (task, attempt, number)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_job ON steps (job);
"""
FIELDS = "job, task, attempt, number, name, tasks, cpus, nodes, start_ms, end_ms, code, signal, cpu_ms, peak_kib"
JOBS_ASKED_MAX = 500
KEPT_S = 400 * 86_400
"""Older ones go when a server starts."""


@dataclass(slots=True)
class Step:
    """One, by the key of its task. `end_ms` 0: it runs, as far as is known."""

    job: int
    task: int
    attempt: int
    number: int
    name: str
    tasks: int
    cpus: int
    nodes: str  # as Slurm writes a list of them
    start_ms: int
    end_ms: int = 0
    code: int = 0
    signal: int = 0
    cpu_ms: int = -1
    peak_kib: int = -1


class Steps:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.db = opened(file)
        self.db.executescript(SCHEMA)
        self.db.execute("DELETE FROM steps WHERE start_ms < ?", ((time.time() - KEPT_S) * 1000,))

    def begin(self, step: Step) -> Step:
        """Numbered as the next of its attempt."""
        found = self.db.execute(
            "SELECT max(number) FROM steps WHERE task = ? AND attempt = ?", (step.task, step.attempt)
        ).fetchone()
        step.number = 0 if found[0] is None else found[0] + 1
        values = tuple(getattr(step, name) for name in FIELDS.split(", "))
        self.db.execute(f"INSERT INTO steps ({FIELDS}) VALUES ({','.join('?' * len(values))})", values)
        return step

    def end(self, task: int, attempt: int, number: int, now: int, ended: tuple[int, int, int, int]) -> None:
        """`ended`: exit code, signal, processor time and peak of memory."""
        self.db.execute(
            "UPDATE steps SET end_ms = ?, code = ?, signal = ?, cpu_ms = ?, peak_kib = ? "
            "WHERE task = ? AND attempt = ? AND number = ? AND end_ms = 0",
            (now, *ended, task, attempt, number),
        )

    def of_jobs(self, jobs: Iterable[int]) -> dict[int, list[Step]]:
        return read_steps(self.db, jobs)

    def close(self) -> None:
        self.db.close()


def opened(file: Path) -> sqlite3.Connection:
    """What a crash loses of it is a line in a table: nothing waits for the disk."""
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = OFF")
    return db


def read_steps(db: sqlite3.Connection, jobs: Iterable[int]) -> dict[int, list[Step]]:
    """By task, in their order."""
    asked, found = sorted(set(jobs)), dict[int, list[Step]]()
    for at in range(0, len(asked), JOBS_ASKED_MAX):
        some = asked[at : at + JOBS_ASKED_MAX]
        marks = ",".join("?" * len(some))
        for row in db.execute(
            f"SELECT {FIELDS} FROM steps WHERE job IN ({marks}) ORDER BY task, attempt, number", some
        ):
            step = Step(*row)
            found.setdefault(step.task, []).append(step)
    return found


def apart(file: Path) -> sqlite3.Connection:
    """A connection for another thread, to read."""
    return opened(file)
