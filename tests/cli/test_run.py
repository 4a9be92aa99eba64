"""`tide run`: output as it comes, the code of the job, and signals, on a real terminal too."""

import json
import os
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import TIDE, Begin, Tide
from tests.kit.fake_server import Asked, FakeServer, Problem, job, row, until, waited
from tidegate.wire import api

WITHIN_S = 20
OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Job:
    """A job of the fake server, from its submission to its end; it ends when cancelled, or when told."""

    def __init__(self, server: FakeServer, folder: Path) -> None:
        self.server = server
        self.out = folder / "job.out"
        self.err = folder / "job.err"
        self.state = "RUNNING"
        self.facts: dict[str, Any] = {}
        self.closing = False
        server.on("submit", api.SubmittedBody(id=12))
        server.on("job", self.job)
        server.on("wait", self.wait)
        server.on("cancel", self.cancel)

    def job(self, _: Asked) -> api.JobBody:
        body = self.server.said("submit")[0].body
        apart = str(self.err) if body.stderr else str(self.out)
        return job(12, self.state, stdout=str(self.out), stderr=apart, **self.facts)

    def wait(self, asked: Asked) -> api.WaitBody:
        if int(asked.query["timeout_ms"]):
            until(lambda: self.ended or self.closing)
        return waited([row(12, self.state, **self.facts)] if self.ended else [], total=1, running=1)

    def cancel(self, _: Asked) -> api.DoneBody:
        self.end("CANCELLED", signal=15)
        return api.DoneBody(done=True)

    @property
    def ended(self) -> bool:
        return self.state not in {"WAITING", "RUNNING"}

    def end(self, state: str, **facts: Any) -> None:
        self.facts = facts
        self.state = state


@pytest.fixture
def running(server: FakeServer, tmp_path: Path) -> Iterator[Job]:
    found = Job(server, tmp_path)
    yield found
    found.closing = True


class Terminal:
    """`tide WORDS` on a terminal of its own."""

    def __init__(self, env: dict[str, str], *words: str, columns: int = 0) -> None:
        self.screen, end = os.openpty()
        termios.tcsetwinsize(end, (24, columns))
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWN_TERMINAL, *TIDE, *words],
            stdin=end, stdout=end, stderr=end, start_new_session=True, env=env,
        )  # fmt: skip
        os.close(end)
        self.shown = b""

    def read_until(self, wanted: str) -> str:
        while wanted.encode() not in self.shown:
            ready, _, _ = select.select([self.screen], [], [], WITHIN_S)
            assert ready, self.shown
            self.shown += self._read()
        return self.shown.decode()

    def _read(self) -> bytes:
        try:
            octets = os.read(self.screen, 4096)
        except OSError:  # the other end is closed
            octets = b""
        assert octets, self.shown
        return octets

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait(WITHIN_S)
        os.close(self.screen)


@pytest.fixture
def terminal(env: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def start(*words: str, **how: Any) -> Terminal:
        made.append(Terminal(env | how.pop("env", {}), *words, **how))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_output_and_errors_stay_apart(running: Job, tide: Tide):
    running.out.write_text("out\n")
    running.err.write_text("err\n")
    running.end("FAILED", exit_code=75)
    done = tide("run", "--cpus", 2, "--", "sh", "-c", "exit 75")
    assert (done.returncode, done.stdout, done.stderr) == (75, "out\n", "err\n")
    body = running.server.said("submit")[0].body
    assert (body.command, body.cpus, body.stderr, body.stdout) == (["sh", "-c", "exit 75"], 2, "-", "")


def test_one_place_for_both_is_one_file(running: Job, begin: Begin):
    running.out.write_text("both\n")
    running.end("COMPLETED", exit_code=0)
    process = begin("run", "true", stderr=subprocess.STDOUT)
    assert process.communicate(timeout=WITHIN_S)[0] == b"both\n"
    assert process.returncode == 0
    assert running.server.said("submit")[0].body.stderr == ""


@pytest.mark.parametrize(
    ("state", "facts", "code", "said"),
    [
        ("FAILED", {"signal": 9}, 137, "tide: job 12 failed (signal 9)\n"),
        ("TIMED_OUT", {"signal": 15, "reason": "limit 2h"}, 143, "tide: job 12 timed out (signal 15, limit 2h)\n"),
        ("OUT_OF_MEMORY", {"signal": 9}, 137, "tide: job 12 out of memory (signal 9)\n"),
        ("CANCELLED", {}, 1, "tide: job 12 cancelled\n"),
        ("FAILED", {"exit_code": 127, "reason": "no x"}, 127, "tide: job 12 failed (exit 127, no x)\n"),
    ],
)
def test_other_ends_are_said(running: Job, tide: Tide, state: str, facts: dict[str, Any], code: int, said: str):
    running.end(state, **facts)
    done = tide("run", "--", "x")
    assert (done.returncode, done.stderr) == (code, said)


def test_output_that_is_closed_goes_nowhere(running: Job, env: dict[str, str]):
    """And not to the server, whose socket would else be file 1."""
    running.out.write_text("GET /v1/nodes HTTP/1.1\r\nHost: x\r\n\r\n")
    running.end("COMPLETED", exit_code=0)
    shell = f"exec {' '.join(TIDE)} run -- x <&- >&-"
    assert subprocess.run(["sh", "-c", shell], env=env, check=False, timeout=WITHIN_S).returncode == 0
    assert {one.route for one in running.server.asked} == {"submit", "job", "wait"}


def test_output_that_cannot_be_written_is_said(running: Job, env: dict[str, str]):
    running.out.write_text("hello")
    running.end("COMPLETED", exit_code=0)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*TIDE, "run", "--", "x"], env=env, check=False, timeout=WITHIN_S, stdout=full,
                              stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert (done.returncode, done.stderr) == (
        1, "tide: the output: No space left on device; see that it is there, yours and has room\n",
    )  # fmt: skip


def test_the_record_as_json(running: Job, tide: Tide):
    running.end("FAILED", exit_code=3)
    done = tide("run", "--json", "--", "x")
    assert (done.returncode, json.loads(done.stderr)["exit_code"]) == (3, 3)


def test_a_refused_submission(server: FakeServer, tide: Tide):
    server.on("submit", Problem(400, "no node has 900 cpus", "ask for at most 8"))
    done = tide("run", "--cpus", "900", "--", "x")
    assert (done.returncode, done.stderr) == (1, "tide: no node has 900 cpus; ask for at most 8\n")


def test_output_comes_while_it_runs_and_while_the_server_is_away(running: Job, begin: Begin):
    process = begin("run", "--", "x")
    assert process.stdout is not None
    running.out.write_text("one\n")
    assert process.stdout.readline() == b"one\n"
    running.server.stop()
    with running.out.open("a") as stream:
        stream.write("two\n")
    assert process.stdout.readline() == b"two\n"
    running.end("COMPLETED", exit_code=0)
    running.server.start()
    output, errors = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, output, errors) == (0, b"", b"")


def test_sigterm_cancels(running: Job, begin: Begin):
    process = begin("run", "--", "x")
    running.server.wait_for(lambda asked: any(one.route == "wait" for one in asked))
    process.send_signal(signal.SIGTERM)
    errors = process.communicate(timeout=WITHIN_S)[1]
    assert process.returncode == 143
    assert b"cancelled job 12; waiting for its end" in errors
    assert len(running.server.said("cancel")) == 1


def test_a_server_that_is_away_hears_of_it_when_it_is_back(running: Job, begin: Begin):
    process = begin("run", "--", "x")
    running.server.wait_for(lambda asked: any(one.route == "wait" for one in asked))
    running.server.stop()
    process.send_signal(signal.SIGTERM)
    running.server.start()
    process.communicate(timeout=WITHIN_S)
    assert (process.returncode, len(running.server.said("cancel"))) == (143, 1)


def test_ctrl_c_asks_once_and_cancels_then(running: Job, terminal: Callable[..., Terminal]):
    screen = terminal("run", "--", "x")
    running.out.write_text("working\n")
    screen.read_until("working")
    screen.type("\x03")
    screen.read_until("again to cancel job 12")
    assert running.server.said("cancel") == []
    with running.out.open("a") as stream:
        stream.write("still working\n")
    screen.read_until("still working")
    screen.type("\x03")
    screen.read_until("cancelled job 12; waiting for its end")
    assert screen.process.wait(WITHIN_S) == 130
    assert len(running.server.said("cancel")) == 1


def test_a_third_ctrl_c_leaves(running: Job, terminal: Callable[..., Terminal]):
    running.server.on("cancel", api.DoneBody(done=True))  # and yet it does not end
    screen = terminal("run", "--", "x")
    running.server.wait_for(lambda asked: any(one.route == "wait" for one in asked))
    for wanted in ("again to cancel job 12", "cancelled job 12", "left; tide show 12"):
        screen.type("\x03")
        screen.read_until(wanted)
    assert screen.process.wait(WITHIN_S) == 1


def test_who_waits_is_told_why(running: Job, terminal: Callable[..., Terminal]):
    running.state = "WAITING"
    running.facts = {"reason": "2 gpus are missing"}
    screen = terminal("run", "--", "x")
    screen.read_until("job 12 waits: 2 gpus are missing")
    running.out.write_text("at last\n")
    running.end("COMPLETED", exit_code=0)
    screen.read_until("at last")
    assert screen.process.wait(WITHIN_S) == 0


def test_a_bar_shows_how_far_it_is(running: Job, terminal: Callable[..., Terminal]):
    screen = terminal("wait", "12")
    screen.read_until("0 of 1 ended, 1 running")
    running.end("COMPLETED")
    screen.read_until("job 12 completed")
    assert screen.process.wait(WITHIN_S) == 0


def test_a_bar_stays_on_its_line(running: Job, terminal: Callable[..., Terminal]):
    screen = terminal("wait", "12", columns=42)
    screen.read_until("[..............................] 0 of 1 …\x1b[K")
    running.end("COMPLETED")
    screen.read_until("job 12 completed")
    assert screen.process.wait(WITHIN_S) == 0


def test_colours_and_width_are_those_of_the_terminal(running: Job, terminal: Callable[..., Terminal]):
    running.server.on("nodes", api.NodesBody(nodes=[api.NodeRow(name="n", pool="p", state="up", capacity={}, free={})]))
    terminal("nodes").read_until("\x1b[32mup\x1b[0m")
    running.server.on("jobs", api.JobsBody(jobs=[]))
    for how, query in (
        ({}, {"width": "80", "colour": "1"}),
        ({"columns": 132}, {"width": "132", "colour": "1"}),
        ({"env": {"NO_COLOR": "1", "COLUMNS": "99"}}, {"width": "99"}),
    ):
        assert terminal("queue", **how).process.wait(WITHIN_S) == 0
        assert running.server.said("jobs")[-1].query == query
