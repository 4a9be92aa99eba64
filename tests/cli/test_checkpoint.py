"""`tide submit --checkpoint` and `tide checkpoint`: what is asked of the server, and what a job says."""

import json
import os
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Tide
from tests.kit.fake_server import FakeServer, Problem, job
from tidegate.wire import api


def saved(**more: object) -> api.SavedBody:
    now = int(time.time() * 1000)
    known = {
        "where": "there/12", "signal": 0, "asked": 3, "open_since_ms": None, "next_ms": None, "saved_ms": now - 90_000,
        "size_mib": 2048, "kept_ms": 3_600_000, "restarts": 2,
    }  # fmt: skip
    return api.SavedBody(**(known | more))  # type: ignore[arg-type]


def body_of(server: FakeServer) -> api.SubmitBody:
    body = server.said("submit")[-1].body
    assert isinstance(body, api.SubmitBody)
    return body


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--checkpoint"], api.CheckpointBody()),
        (["--checkpoint=USR2"], api.CheckpointBody(signal="USR2")),
        (["--checkpoint-every", "10m", "--checkpoint-size", "2G"], api.CheckpointBody(every_ms=600_000, size_mib=2048)),
        (["--checkpoint-dir", "s3://bucket/run-%j"], api.CheckpointBody(where="s3://bucket/run-%j")),
        ([], None),
    ],
)
def test_submit_says_how_it_saves_itself(
    server: FakeServer, tide: Tide, words: list[str], expected: api.CheckpointBody | None
) -> None:
    server.on("submit", api.SubmittedBody(id=1))
    assert tide("submit", *words, "--", "true").returncode == 0
    body = body_of(server)
    assert (body.checkpoint, body.starts_over) == (expected, False)


def test_a_directory_is_made_whole_and_a_script_may_say_it(server: FakeServer, tide: Tide, tmp_path: Path) -> None:
    server.on("submit", api.SubmittedBody(id=1))
    (tmp_path / "train.sh").write_text("#!/bin/sh\n#TIDE --checkpoint=12 --checkpoint-dir saves/%j\ntrue\n")
    assert tide("submit", "train.sh").returncode == 0
    assert body_of(server).checkpoint == api.CheckpointBody(signal="12", where=str(tmp_path / "saves/%j"))


def test_one_that_cannot_says_so_and_not_both(server: FakeServer, tide: Tide) -> None:
    server.on("submit", api.SubmittedBody(id=1))
    assert tide("submit", "--no-checkpoint", "--", "true").returncode == 0
    assert (body_of(server).starts_over, body_of(server).checkpoint) == (True, None)
    done = tide("submit", "--no-checkpoint", "--checkpoint", "--", "true")
    assert (done.returncode, "keep one" in done.stderr) == (2, True)
    done = tide("submit", "--checkpoint-dir", "saves/%t", "--", "true")
    assert (done.returncode, "leave it out" in done.stderr) == (2, True)
    done = tide("submit", "--checkpoint-every", "0", "--", "true")
    assert (done.returncode, "30d" in done.stderr) == (2, True)


def test_ask_asks_now(server: FakeServer, tide: Tide) -> None:
    server.on("checkpoint", lambda asked: api.DoneBody(done=asked.body.index != 5))
    done = tide("checkpoint", "ask", "12", "13[5]")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "asked job 12")
    assert "job 13[5]: it is asked already" in done.stdout
    assert [one.where for one in server.said("checkpoint")] == [{"job": "12"}, {"job": "13"}]
    server.on("checkpoint", Problem(409, "nothing of job 12 runs", "ask it while it does"))
    done = tide("checkpoint", "ask", "12")
    assert (done.returncode, "nothing of job 12 runs" in done.stderr) == (1, True)


def test_status_and_show_tell_how_old_what_was_saved_is(server: FakeServer, tide: Tide) -> None:
    server.on("job", job(12, checkpoint=saved(open_since_ms=int(time.time() * 1000) - 30_000)))
    text = tide("checkpoint", "status", "12").stdout
    assert "1m30s ago, 2G" in text
    assert "3 times, not answered for 30" in text
    assert "saved" in tide("show", "12").stdout
    text = tide("checkpoint", "status", TIDE_JOB_ID="12").stdout
    assert "there/12" in text
    shown = json.loads(tide("checkpoint", "status", "12", "--json").stdout)
    assert shown[0]["checkpoint"]["restarts"] == 2
    server.on("job", job(12))
    assert "did not say" in tide("checkpoint", "status", "12").stdout


def test_a_job_says_done_and_finds_what_it_published(tide: Tide, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "done")
    pipe = os.open(tmp_path / "done", os.O_RDWR | os.O_NONBLOCK)
    inside = {"TIDE_CHECKPOINT_DIR": str(tmp_path / "saves"), "TIDE_CHECKPOINT_DONE": str(tmp_path / "done")}
    assert tide("checkpoint", "latest", **inside).returncode == 1
    assert tide("checkpoint", "done", **inside).returncode == 0
    assert os.read(pipe, 100) == b"done - - 0\n"
    (tmp_path / "staged").mkdir()
    (tmp_path / "staged" / "state").write_text("7")
    done = tide("checkpoint", "done", "staged", **inside)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/saves/00000001\n")
    assert os.read(pipe, 100) == b"done - - 1\n"
    assert tide("checkpoint", "latest", **inside).stdout == done.stdout
    staged = Path(tide("checkpoint", "stage", **inside).stdout.strip())
    (staged / "state").write_text("8")
    done = tide("checkpoint", "done", str(staged), **inside)
    assert (done.stdout, staged.exists()) == (f"{tmp_path}/saves/00000002\n", False)
    os.close(pipe)
    done = tide("checkpoint", "done", **inside)
    assert (done.returncode, "nobody listens" in done.stderr) == (1, True)


def test_outside_of_a_job_there_is_nothing_to_say(tide: Tide) -> None:
    done = tide("checkpoint", "done")
    assert (done.returncode, "--checkpoint" in done.stderr) == (1, True)
    done = tide("checkpoint", "done", "here")
    assert (done.returncode, "TIDE_CHECKPOINT_DIR" in done.stderr) == (1, True)
    assert tide("checkpoint", "save").returncode == 2
    assert tide("checkpoint", "ask").returncode == 2
