"""Commands on a server that the first of them starts: real jobs, a killed server, and nothing left at the end."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import TIDE, Tide
from tests.kit.fake_server import until

ENDED_S = 30


@pytest.fixture
def real(home: Path, tide: Tide) -> Iterator[Tide]:
    """A home without a server; whatever runs there at the end is ended."""
    (home / "journal.db").unlink()
    yield tide
    if tide("status").returncode == 0:
        tide("cancel", "--all")
        tide("wait", *{row["id"] for row in json.loads(tide("queue", "--json").stdout)} or {1})
        assert tide("down").returncode == 0
    until(lambda: not processes_of(home), "the end of every process of this home")


def processes_of(home: Path) -> list[str]:
    """Command lines that name the home: its server and its keeper."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if str(home).encode() in words:
            found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found


def server_of(home: Path) -> int:
    return int((home / "server.lock").read_text())


def test_a_first_run_starts_a_server_and_ends_as_its_job(real: Tide, home: Path):
    done = real("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert done.stderr.endswith("tide: started a server for you (tide status, tide down)\nerr\n")
    assert real("status").returncode == 0
    row = json.loads(real("queue", "--all", "--json").stdout)[0]
    assert (row["state"], row["exit_code"], row["attempts"]) == ("FAILED", 7, 1)
    assert real("logs", 1).stdout == "out\n"
    assert real("logs", 1, "--stderr").stdout == "err\n"
    assert real("down").stdout == f"the server of {home} is down\n"
    assert real("status").returncode == 1


def test_two_that_start_a_server_at_once_share_it(env: dict[str, str], real: Tide):
    both = [subprocess.Popen([*TIDE, "submit", "--", "true"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(2)]  # fmt: skip
    said = sorted(process.communicate(timeout=ENDED_S)[0] for process in both)
    assert said == [b"job 1\n", b"job 2\n"]
    assert real("wait", 1, 2).returncode == 0


def test_what_follows_a_job_outlives_the_server(env: dict[str, str], real: Tide, home: Path, tmp_path: Path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    real("submit", "--", "sh", "-c", f"echo one; read word < {gate}; echo $word; exit 3")
    follows = subprocess.Popen([*TIDE, "logs", "-f", "1"], env=env, stdout=subprocess.PIPE)
    waits = subprocess.Popen([*TIDE, "wait", "1"], env=env, stdout=subprocess.PIPE)
    assert follows.stdout is not None
    assert follows.stdout.readline() == b"one\n"
    os.kill(server_of(home), signal.SIGKILL)
    assert real("queue").returncode == 0  # starts the next one
    gate.write_text("two\n")
    assert follows.communicate(timeout=ENDED_S)[0] == b"two\n"
    assert waits.communicate(timeout=ENDED_S)[0] == b"job 1 failed (exit 3)\n"
    assert (follows.returncode, waits.returncode) == (0, 1)


def test_an_output_for_each_attempt(real: Tide, tmp_path: Path):
    said = real("submit", "--wait", "--retries", 2, "--backoff", "1ms", "--output", "%j-%t", "--",
                "sh", "-c", "echo $TIDE_ATTEMPT; exit $TIDE_ATTEMPT")  # fmt: skip
    assert said.stdout == "job 1\njob 1 failed (exit 3)\n"
    assert sorted(path.name for path in tmp_path.glob("1-*")) == ["1-1", "1-2", "1-3"]
    assert real("logs", 1).stdout == "3\n"
    shown = real("show", 1).stdout
    assert [word in shown for word in ("1-3", "ATTEMPT", "FAILED")] == [True] * 3


def test_an_array_from_its_hold_to_its_end(real: Tide):
    assert real("submit", "--array", "0-3%2", "--hold", "--", "sh", "-c", "exit $TIDE_ARRAY_INDEX").stdout == (
        "job 1 (4 tasks)\n"
    )
    assert "0-3  HELD" in real("show", 1).stdout
    assert "tide logs 1[0]" in real("logs", 1).stderr
    assert real("release", "--all").stdout == "released job 1\n"
    done = real("wait", 1)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "1 of 4 completed")
    rows = json.loads(real("queue", "--all", "--json", "1").stdout)
    assert sorted((row["index"], row["exit_code"]) for row in rows) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert real("cancel", 1).returncode == 1
