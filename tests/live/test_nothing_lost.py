"""Nothing lost, nothing twice: real jobs, several submitters, and everything is killed again and again."""

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from tests.engines.kit import carrying, command_line
from tests.kit.live import LiveServer, pause, started, submit_with_keys, until
from tidegate.engines.local.trees import everyone
from tidegate.journals.sqlite import SqliteJournal
from tidegate.model.base import index_of, job_of
from tidegate.model.events import JobStarted

PAUSE_S = (0.05, 1.2)


def counting(starts: Path) -> list[str]:
    """A job that notes its own start; appending a short line is one act."""
    return ["sh", "-c", f'echo "$TIDE_JOB_ID ${{TIDE_ARRAY_INDEX:-0}} $TIDE_ATTEMPT" >> {starts}']


@contextmanager
def submitting(home: Path, array: int, singles: int, **body: Any) -> Iterator[list[Future[list[int]]]]:
    """From four processes single jobs, from one more an array, each with a key; the array's comes last."""
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as submitters:
        yield [
            *(submitters.submit(submit_with_keys, home, f"s{n}", [body] * (singles // 4)) for n in range(4)),
            submitters.submit(submit_with_keys, home, "a", [{**body, "array": f"0-{array - 1}"}]),
        ]


def final_rows(server: LiveServer, submissions: list[Future[list[int]]], array: int) -> list[dict[str, Any]]:
    """How all of them ended, as the last server tells it: every acknowledged job has exactly one final state."""
    if server.process is not None and server.process.poll() is None:
        server.wait_ready()
    jobs = [job for submission in submissions for job in submission.result(timeout=300)]
    assert len(set(jobs)) == len(jobs), "ids are unique"
    client = server.client()
    for job in jobs:
        client.wait(job)
    rows = client.rows(all=1)
    server.stop()
    expected = Counter({(job, 0): 1 for job in jobs[:-1]} | {(jobs[-1], index): 1 for index in range(array)})
    assert Counter((row["id"], row["index"] or 0) for row in rows) == expected
    assert {row["state"] for row in rows} == {"COMPLETED"}
    return rows


def starts_in_journal(home: Path) -> Counter[tuple[int, ...]]:
    journal = SqliteJournal(home / "journal.db", readonly=True)
    try:
        return Counter(
            (job_of(event.task), index_of(event.task), event.attempt)
            for event in journal.read()
            if isinstance(event, JobStarted)
        )
    finally:
        journal.close()


def starts_by_themselves(starts: Path) -> Counter[tuple[int, ...]]:
    return Counter(tuple(map(int, line.split())) for line in started(starts))


def seeded() -> random.Random:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  shown when the test fails: its faults came at these moments
    return random.Random(seed)


@pytest.mark.parametrize(
    ("array", "singles", "kills"),
    [(60, 40, 4), pytest.param(600, 400, 20, marks=pytest.mark.slow)],
    ids=["100 jobs", "1000 jobs"],
)
def test_a_server_killed_at_random_moments_loses_nothing_and_starts_nothing_twice(
    tmp_path: Path, array: int, singles: int, kills: int
) -> None:
    rng, home, starts = seeded(), tmp_path / "home", tmp_path / "starts"
    with LiveServer(home) as server, submitting(home, array, singles, command=counting(starts)) as submissions:
        for number in range(kills):
            pause(rng, *PAUSE_S)
            server.kill()
            server.start(ready=number % 3 > 0)  # sometimes it is killed again while it recovers
        rows = final_rows(server, submissions, array)
    assert len(rows) == array + singles
    assert {row["attempts"] for row in rows} == {1}
    by_themselves = starts_by_themselves(starts)
    assert by_themselves == starts_in_journal(home), "what the jobs counted is what the journal says"
    assert max(by_themselves.values()) == 1


ALONE = """
exec 9>>LOCKS/$TIDE_JOB_ID.${TIDE_ARRAY_INDEX:-0}
flock -n 9 || echo "$TIDE_JOB_ID $TIDE_ARRAY_INDEX" >> TWICE
echo "$TIDE_JOB_ID ${TIDE_ARRAY_INDEX:-0} $TIDE_ATTEMPT" >> STARTS
sleep 0.05 &
sleep 0.PAUSE
"""
"""Holds a lock while anything of it lives, so that a second attempt beside a first is seen."""


class Killer:
    """Ends one thing, or two, or stops the keeper for a while."""

    def __init__(self, server: LiveServer, rng: random.Random) -> None:
        self.server = server
        self.rng = rng
        self.ways = (self.end_server, self.end_keeper, self.end_both, self.end_launcher, self.end_job, self.stop_keeper)

    def strike(self) -> None:
        self.rng.choice(self.ways)()

    def keeper(self) -> int:
        """0 between two of them."""
        with suppress(OSError, ValueError, IndexError):
            pid = self.server.keeper_pid()
            return pid if str(self.server.home).encode() in command_line(pid) else 0
        return 0

    def children(self, *, launcher: bool) -> list[int]:
        keeper = self.keeper()
        return [
            pid for pid, it in everyone().items()
            if keeper and it.parent == keeper and (b"tidegate-launcher" in command_line(pid)) == launcher
        ]  # fmt: skip

    def end(self, *pids: int) -> None:
        for pid in filter(None, pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end_server(self) -> None:
        self.server.kill()
        self.server.start(ready=self.rng.random() < 0.6)

    def end_keeper(self) -> None:
        self.end(self.keeper())

    def end_both(self) -> None:
        self.end_keeper()
        self.end_server()

    def end_launcher(self) -> None:
        self.end(*self.children(launcher=True))

    def end_job(self) -> None:
        jobs = self.children(launcher=False)
        self.end(*jobs[: 1 + self.rng.randrange(3)])

    def stop_keeper(self) -> None:
        keeper = self.keeper()
        if keeper:
            with suppress(ProcessLookupError):
                os.kill(keeper, signal.SIGSTOP)
                pause(self.rng, *PAUSE_S)
                if self.rng.random() < 0.5:
                    self.end_server()
                os.kill(keeper, signal.SIGCONT)


@pytest.mark.parametrize(
    ("array", "singles", "strikes"),
    [(40, 20, 8), pytest.param(500, 100, 60, marks=pytest.mark.slow)],
    ids=["60 jobs", "600 jobs"],
)
def test_whatever_is_killed_every_job_ends_and_no_two_attempts_live_at_a_time(
    tmp_path: Path, array: int, singles: int, strikes: int
) -> None:
    rng, home, starts, locks = seeded(), tmp_path / "home", tmp_path / "starts", tmp_path / "locks"
    locks.mkdir()
    script = ALONE.replace("LOCKS", str(locks)).replace("TWICE", f"{tmp_path}/twice").replace("STARTS", str(starts))
    body = {
        "command": ["bash", "-c", script.replace("PAUSE", f"{rng.randrange(1, 8)}")], "cpus": 0.2, "memory_mib": 20,
        "losses_max": 1000, "retry": {"times": 1000, "on": ["signal"], "backoff_ms": 10, "backoff_max_ms": 100},
    }  # fmt: skip
    options = ("--nodes", "2", "--cpus", "2", "--memory", "4G")
    with LiveServer(home, *options) as server, submitting(home, array, singles, **body) as submissions:
        killer = Killer(server, rng)
        for _ in range(strikes):
            pause(rng, *PAUSE_S)
            killer.strike()
        rows = final_rows(server, submissions, array)
    assert not started(tmp_path / "twice"), "two attempts of a task lived at a time"
    by_themselves, in_journal = starts_by_themselves(starts), starts_in_journal(home)
    assert set(in_journal.values()) == set(by_themselves.values()) == {1}
    assert by_themselves.keys() <= in_journal.keys(), "nothing ran that is not in the journal"
    assert {(row["id"], row["index"] or 0, row["attempts"]) for row in rows} <= in_journal.keys()
    assert carrying(str(tmp_path)) == []


def test_a_killed_keeper_is_told_and_its_jobs_run_again(tmp_path: Path) -> None:
    home, starts, gate = tmp_path / "home", tmp_path / "starts", tmp_path / "gate"
    with LiveServer(home) as server:
        client = server.client()
        job = client.submit("sh", "-c", f"echo $TIDE_ATTEMPT >> {starts}; while [ ! -e {gate} ]; do sleep 0.05; done")
        until(lambda: started(starts))
        os.kill(server.keeper_pid(), signal.SIGKILL)
        until(lambda: len(started(starts)) == 2)
        gate.touch()
        client.wait(job)
        shown = client.show(job)
    assert started(starts) == ["1", "2"]
    assert shown["state"] == "COMPLETED"
    assert shown["attempts"] == 2
    assert [one["state"] for one in shown["history"]] == ["LOST", "COMPLETED"]
