"""Checkpoints are real: a training loop that is ended at random moments ends with the result of one that was not."""

import json
import os
import random
import signal
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit.live import ROOT, LiveServer, pause, until
from tests.kit.s3 import s3_server

TRAINING = """\
import hashlib, itertools, json, os, sys, time
from tidegate import checkpoint

steps, log, result, gate = int(sys.argv[1]), *sys.argv[2:]
state = {"step": 0, "weights": ""}
last = checkpoint.latest()
if last is not None:
    state = json.loads((last / "state.json").read_text())

def save(place):
    (place / "state.json").write_text(json.dumps(state))
    (place / "ballast").write_bytes(os.urandom(1 << 18))

lines = open(log, "a", buffering=1)
lines.write(json.dumps([os.environ.get("TIDE_ATTEMPT", "0"), os.getpid(), state["step"], time.monotonic()]) + "\\n")
for step in checkpoint.loop(itertools.count(state["step"]), save):
    if step >= steps:  # done, and can still be ended until the test has ended it often enough
        if os.path.exists(gate):
            break
        time.sleep(0.004)
        continue
    state["weights"] = hashlib.sha256((state["weights"] + str(step)).encode()).hexdigest()
    state["step"] = step + 1
    time.sleep(0.004)
    lines.write(json.dumps([os.environ.get("TIDE_ATTEMPT", "0"), os.getpid(), state["step"], time.monotonic()]) + "\\n")
open(result, "w").write(json.dumps(state))
"""
INTERVAL_MS, GRACE_MS = 1_000, 20_000
RETRY = {"times": 1000, "on": ["signal"], "backoff_ms": 1, "backoff_max_ms": 5}


class Line(NamedTuple):
    """After a step, and once when an attempt begins."""

    attempt: int
    pid: int
    step: int
    at_s: float


def lines_of(log: Path) -> list[Line]:
    """What is whole of it: a line may be cut by a kill."""
    found = []
    for text in log.read_text().splitlines() if log.exists() else []:
        try:
            attempt, pid, step, at_s = json.loads(text)
        except ValueError:
            continue
        found.append(Line(int(attempt), pid, step, at_s))
    return found


def pid_of(log: Path, attempt: int) -> int:
    """Of an attempt that begins."""
    lines: list[Line] = until(lambda: [line for line in lines_of(log) if line.attempt == attempt])
    return lines[0].pid


def expected(steps: int) -> dict[str, Any]:
    from hashlib import sha256

    weights = ""
    for step in range(steps):
        weights = sha256((weights + str(step)).encode()).hexdigest()
    return {"step": steps, "weights": weights}


def train(server: LiveServer, place: Path, steps: int, env: dict[str, str] | None = None, where: str = "") -> int:
    command = [sys.executable, "-c", TRAINING, str(steps), *(str(place / name) for name in ("log", "result", "gate"))]
    return server.client().submit(
        *command, env={"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"], **(env or {})},
        checkpoint={"every_ms": INTERVAL_MS, "where": where}, retry=RETRY, losses_max=1000, grace_ms=GRACE_MS,
    )  # fmt: skip


def lost_s(log: Path) -> list[float]:
    """For every attempt but the last: how long it worked on what the next one had to do again."""
    by_attempt: dict[int, list[Line]] = {}
    for line in lines_of(log):
        by_attempt.setdefault(line.attempt, []).append(line)
    found = []
    for before, after in pairwise(by_attempt[attempt] for attempt in sorted(by_attempt)):
        resumed = after[0].step
        kept = [line.at_s for line in before if line.step <= resumed]
        found.append(before[-1].at_s - max(kept, default=before[0].at_s))
    return found


@pytest.mark.parametrize(
    ("kills", "steps"),
    [pytest.param(5, 600, id="5 kills"), pytest.param(20, 3000, id="20 kills", marks=pytest.mark.slow)],
)
def test_a_training_loop_ended_at_random_gives_the_same_result(tmp_path: Path, kills: int, steps: int) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  shown when the test fails: its kills came at these moments
    rng = random.Random(seed)
    log = tmp_path / "log"
    with LiveServer(tmp_path / "home") as server:
        job = train(server, tmp_path, steps)
        for number in range(kills):
            pid = pid_of(log, number + 1)
            pause(rng, 0.0, 2.5)
            if number % 7 == 6:
                os.kill(server.keeper_pid(), signal.SIGKILL)  # its successor ends the job, which is lost
            elif number % 4 == 1:
                server.client().ask("POST", f"/v1/jobs/{job}/requeue", {})
            elif number % 4 == 3:
                server.kill()  # the job hears nothing of it, and its keeper remembers
                server.start()
                os.kill(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)
        (tmp_path / "gate").touch()
        done = server.client().wait(job)
        shown = server.client().show(job)
    assert done["failed"] == 0
    assert json.loads((tmp_path / "result").read_text()) == expected(steps)
    assert shown["attempts"] == kills + 1
    lost = lost_s(log)
    print(f"lost at most {max(lost):.2f} s, together {sum(lost):.2f} s")  # noqa: T201
    assert len(lost) == kills
    assert max(lost) <= (INTERVAL_MS + GRACE_MS) / 1000


def test_a_requeued_job_goes_on_where_it_was(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "gate").touch()
    with LiveServer(tmp_path / "home") as server:
        client = server.client()
        job = train(server, tmp_path, 300)
        until(lambda: len(lines_of(log)) > 50)
        client.ask("POST", f"/v1/jobs/{job}/checkpoint", {})
        state = until(lambda: (shown := client.show(job)["checkpoint"])["saved_ms"] and shown)
        assert state["where"] == str(tmp_path / "home" / "checkpoints" / "0" / str(job))
        assert state["kept_ms"] > 0
        client.ask("POST", f"/v1/jobs/{job}/requeue", {})
        pid_of(log, 2)
        assert client.show(job)["checkpoint"]["restarts"] == 1
        client.wait(job)
        assert client.show(job)["state"] == "COMPLETED"
    assert json.loads((tmp_path / "result").read_text()) == expected(300)
    first = [line for line in lines_of(log) if line.attempt == 1]
    second = [line for line in lines_of(log) if line.attempt == 2]
    assert second[0].step == first[-1].step > 50, "it was asked before it was ended, and nothing was done twice"


def test_a_requeued_job_goes_on_from_a_bucket(tmp_path: Path) -> None:
    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    log, where = tmp_path / "log", "s3://bucket/live/%j"
    with s3_server() as access, LiveServer(tmp_path / "home") as server:
        client = server.client()
        job = train(server, tmp_path, 300, access, where)
        until(lambda: len(lines_of(log)) > 50)
        client.ask("POST", f"/v1/jobs/{job}/requeue", {})
        pid_of(log, 2)
        assert client.show(job)["checkpoint"]["where"] == f"s3://bucket/live/{job}"
        (tmp_path / "gate").touch()
        client.wait(job)
        assert client.show(job)["state"] == "COMPLETED"
    assert json.loads((tmp_path / "result").read_text()) == expected(300)
    first = [line for line in lines_of(log) if line.attempt == 1]
    second = [line for line in lines_of(log) if line.attempt == 2]
    assert second[0].step == first[-1].step > 50


SHELL = """\
#!/bin/sh
echo 0 >state
last=$(tide checkpoint latest) && cp "$last"/state .
step=$(cat state)
while [ "$step" -lt 40 ] || [ ! -e "$1" ]; do
    if [ "$step" -lt 40 ]; then
        step=$((step + 1))
        echo "$TIDE_ATTEMPT $step" >>log
        echo "$step" >state
    fi
    sleep 0.02
    if [ -e "$TIDE_CHECKPOINT_ASKED" ]; then
        dir=$(tide checkpoint stage) && cp state "$dir" && tide checkpoint done "$dir"
    fi
done
exit "$2"
"""


@pytest.mark.parametrize("code", [0, 3])
def test_a_shell_script_does_it_with_tide_alone(tmp_path: Path, code: int) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    (tmp_path / "tide").write_text(f'#!/bin/sh\nexec {sys.executable} -m tidegate.cli.main "$@"\n')
    (tmp_path / "tide").chmod(0o755)
    env = {"PYTHONPATH": str(ROOT / "src"), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    saves = tmp_path / "home" / "checkpoints" / "0" / "1"
    with LiveServer(tmp_path / "home") as server:
        client = server.client()
        job = client.submit(
            str(gate), str(code), script=SHELL, cwd=str(tmp_path), env=env, checkpoint={}, grace_ms=60_000
        )  # fmt: skip
        until(lambda: "1 5\n" in (log.read_text() if log.exists() else ""))
        client.ask("POST", f"/v1/jobs/{job}/requeue", {})
        until(lambda: client.show(job)["attempts"] == 2 and "2 " in log.read_text())
        assert [path.name for path in saves.iterdir()] == ["00000001"]
        assert client.show(job)["checkpoint"]["size_mib"] == 0
        gate.touch()
        client.wait(job)
        assert client.show(job)["exit_code"] == code
        until(lambda: saves.exists() == (code != 0))
    steps = [int(line.split()[1]) for line in log.read_text().splitlines()]
    assert steps == list(range(1, 41)), "it went on where it was asked, over two attempts"
