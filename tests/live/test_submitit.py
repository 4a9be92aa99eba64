"""A program made for Slurm works as it is: submitit saves on SIGUSR2 and exits, and goes on in the next attempt."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.live import ROOT, LiveServer, started, until

pytest.importorskip("submitit")

TRAINER = """\
import os, sys, time
from pathlib import Path
from submitit.core.utils import DelayedSubmission

class Trainer:
    def __init__(self):
        self.step = 0

    def __call__(self, log, gate):
        with open(log, "a", buffering=1) as lines:
            while self.step < 40 or not os.path.exists(gate):
                time.sleep(0.005)
                if self.step < 40:
                    self.step += 1
                    lines.write(f"{os.environ['TIDE_ATTEMPT']} {self.step}\\n")
        return self.step

    def checkpoint(self, log, gate):
        return DelayedSubmission(self, log, gate)

if __name__ == "__main__":
    from trainer import Trainer  # as the job will find it

    folder, log, gate = sys.argv[1:]
    submission = DelayedSubmission(Trainer(), log, gate)
    submission.set_timeout(60, 3)
    submission.dump(Path(folder) / "7_submitted.pkl")
"""
NEVER_MS = 30 * 24 * 3_600_000


def wait_for_attempt(log: Path, attempt: str) -> None:
    until(lambda: any(line.startswith(attempt) for line in started(log)))


def test_submitit_saves_and_goes_on_at_a_requeue(tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    (tmp_path / "trainer.py").write_text(TRAINER)
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}", "PATH": os.environ["PATH"]}
    subprocess.run(
        [sys.executable, "trainer.py", str(tmp_path), str(log), str(gate)], cwd=tmp_path, env=env, check=True
    )
    with LiveServer(tmp_path / "home") as server:
        client = server.client()
        job = client.submit(
            sys.executable, "-m", "submitit.core._submit", str(tmp_path), grace_ms=120_000,
            env={**env, "SUBMITIT_EXECUTOR": "local", "SUBMITIT_LOCAL_JOB_ID": "7"},
            checkpoint={"signal": "USR2", "every_ms": NEVER_MS},
        )  # fmt: skip
        for attempt in ("1", "2"):
            wait_for_attempt(log, attempt)
            client.ask("POST", f"/v1/jobs/{job}/requeue", {})
        until(lambda: client.show(job)["attempts"] == 3)
        gate.touch()
        client.wait(job)
        assert client.show(job)["state"] == "COMPLETED"
    steps = [int(line.split()[1]) for line in started(log)]
    assert steps == list(range(1, 41)), "each step was done once, over three attempts"
