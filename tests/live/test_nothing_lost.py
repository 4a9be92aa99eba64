"""Nothing lost, nothing twice: real jobs, several submitters, and a server that is killed again and again."""

import os
import random
import signal
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.kit.live import LiveServer, pause, started, submit_with_keys, until
from tidegate.journals.sqlite import SqliteJournal
from tidegate.model.base import index_of, job_of
from tidegate.model.events import JobStarted

PAUSE_S = (0.05, 1.2)


def counting(starts: Path) -> list[str]:
    """A job that notes its own start; appending a short line is one act."""
    return ["sh", "-c", f'echo "$TIDE_JOB_ID ${{TIDE_ARRAY_INDEX:-0}} $TIDE_ATTEMPT" >> {starts}']


@pytest.mark.parametrize(
    ("array", "singles", "kills"),
    [(60, 40, 4), pytest.param(600, 400, 20, marks=pytest.mark.slow)],
    ids=["100 jobs", "1000 jobs"],
)
def test_a_server_killed_at_random_moments_loses_nothing_and_starts_nothing_twice(
    tmp_path: Path, array: int, singles: int, kills: int
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  shown when the test fails: its faults came at these moments
    rng = random.Random(seed)
    home, starts = tmp_path / "home", tmp_path / "starts"
    with LiveServer(home) as server, ProcessPoolExecutor(4, mp_context=get_context("spawn")) as submitters:
        command = counting(starts)
        submissions = [
            submitters.submit(submit_with_keys, home, f"s{n}", [{"command": command}] * (singles // 4))
            for n in range(4)
        ]
        submissions.append(
            submitters.submit(submit_with_keys, home, "a", [{"command": command, "array": f"0-{array - 1}"}])
        )
        for number in range(kills):
            pause(rng, *PAUSE_S)
            server.kill()
            server.start(ready=number % 3 > 0)  # sometimes it is killed again while it recovers
        if server.process is not None and server.process.poll() is None:
            server.wait_ready()
        jobs = [job for submission in submissions for job in submission.result(timeout=300)]
        assert len(set(jobs)) == len(jobs) == singles + 1, "ids are unique"
        client = server.client()
        for job in jobs:
            client.wait(job)
        rows = client.rows(all=1)
        server.stop()

    expected = Counter({(job, 0): 1 for job in jobs[:-1]} | {(jobs[-1], index): 1 for index in range(array)})
    final = Counter((row["id"], row["index"] or 0) for row in rows)
    assert final == expected, "every acknowledged job has exactly one final state"
    assert {row["state"] for row in rows} == {"COMPLETED"}
    assert {row["attempts"] for row in rows} == {1}
    journal = SqliteJournal(home / "journal.db", readonly=True)
    in_journal = Counter(
        (job_of(event.task), index_of(event.task), event.attempt)
        for event in journal.read()
        if isinstance(event, JobStarted)
    )
    journal.close()
    by_themselves = Counter(tuple(map(int, line.split())) for line in started(starts))
    assert by_themselves == in_journal, "what the jobs counted is what the journal says, one start an attempt"
    assert max(by_themselves.values()) == 1


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
