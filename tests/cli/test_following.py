"""`logs`, `wait` and `events`: what grows is shown as it grows, also across a restart of the server."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import TIDE, Begin, Tide
from tests.kit.fake_server import Asked, FakeServer, Problem, Raw, job, row, until, waited
from tidegate.cli.client import Client, Place
from tidegate.cli.server import NEVER, Server
from tidegate.cli.wait import wait_for
from tidegate.wire import api


class Life:
    """A job that ends when the test says so: `wait` answers then, or at once when nothing new can come."""

    def __init__(self, server: FakeServer, ended: api.JobRow) -> None:
        self.ended = ended
        self.over = threading.Event()
        self.closing = threading.Event()
        server.on("wait", self.wait)

    def wait(self, asked: Asked) -> api.WaitBody:
        if int(asked.query["timeout_ms"]):
            until(lambda: self.over.is_set() or self.closing.is_set())
        return waited([self.ended] if self.over.is_set() else [], total=1, running=1)


@pytest.fixture
def life(server: FakeServer) -> Iterator[Life]:
    found = Life(server, row(12, "COMPLETED"))
    yield found
    found.closing.set()


def read_until(process: "subprocess.Popen[bytes]", wanted: bytes) -> bytes:
    """What it wrote, up to these octets."""
    assert process.stdout is not None
    found = b""
    while not found.endswith(wanted):
        octet = process.stdout.read(1)
        assert octet, (found, process.stderr and process.stderr.read())
        found += octet
    return found


def test_logs_reads_the_file_itself(server: FakeServer, tide: Tide, tmp_path: Path):
    out, err = tmp_path / "12.out", tmp_path / "12.err"
    out.write_bytes(b"words \xff\n")
    err.write_bytes(b"trouble\n")
    server.on("job", job(12, stdout=str(out), stderr=str(err)))
    assert tide("logs", 12, "--stderr").stdout == "trouble\n"
    found = json.loads(tide("logs", 12, "--json").stdout)
    assert found == {"id": 12, "index": None, "stream": "stdout", "path": str(out), "text": "words \ufffd\n"}
    assert not server.said("log")
    server.on("job", job(12, stdout=str(out), stderr=str(out)))
    assert "both to one place" in tide("logs", 12, "--stderr").stderr


def test_logs_of_a_file_that_is_not_ours_come_from_the_server(server: FakeServer, tide: Tide, tmp_path: Path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)  # as unreadable as anything is to root
    server.on("job", job(12, stdout=str(loop)))
    server.on(
        "log", lambda asked: Raw([b"from ", b"there\n"], chunked=True) if asked.query["offset"] == "0" else Raw([])
    )
    assert tide("logs", "12[5]").stdout == "from there\n"
    assert server.said("log")[0].query == {"stream": "stdout", "offset": "0", "index": "5"}
    server.on("log", Problem(403, "job 12 is of bob", "ask bob"))
    done = tide("logs", 12)
    assert (done.returncode, done.stderr) == (1, "tide: job 12 is of bob; ask bob\n")


def test_logs_says_when_there_is_nothing_yet(server: FakeServer, tide: Tide, tmp_path: Path):
    server.on("job", job(12, "WAITING", stdout=str(tmp_path / "none")))
    done = tide("logs", 12)
    assert (done.returncode, done.stdout, "has not started" in done.stderr) == (0, "", True)
    server.on("job", job(12, "FAILED", exit_code=126, reason="cannot open it", stdout=str(tmp_path / "none")))
    done = tide("logs", 12)
    assert done.stderr == "tide: nothing was written; job 12 failed (exit 126, cannot open it)\n"
    server.on("job", job(12, "RUNNING", stdout=str(tmp_path / "none")))
    assert tide("logs", 12).stderr == "tide: nothing is written yet; tide logs -f 12 waits for it\n"
    started, rest = row(12, index=2), row(12, "WAITING", indices="3-9", tasks=7)
    for tasks, first in (([started, rest], 2), ([rest], 3), ([], 3)):
        server.on("job", job(12, "RUNNING", indices="3-9", tasks=7, array=tasks))
        done = tide("logs", 12)
        assert (done.returncode, f"tide logs 12[{first}]" in done.stderr) == (1, True)
    server.on("job", Problem(404, "there is no job 12", "tide queue --all lists them"))
    done = tide("logs", 12)
    assert (done.returncode, done.stderr) == (1, "tide: there is no job 12; tide queue --all lists them\n")


def test_logs_follows_across_a_restart(server: FakeServer, life: Life, begin: Begin, tmp_path: Path):
    out = tmp_path / "12.out"
    server.on("job", job(12, stdout=str(out)))
    process = begin("logs", "-f", 12)
    with out.open("ab", buffering=0) as stream:
        stream.write(b"one\n")
        assert read_until(process, b"one\n") == b"one\n"
        server.stop()
        stream.write(b"two\n")
        assert read_until(process, b"two\n") == b"two\n"
        server.start()
        stream.write(b"three\n")
        assert read_until(process, b"three\n") == b"three\n"
        stream.write(b"the end, without a newline")
        life.over.set()
    output, errors = process.communicate(timeout=20)
    assert (process.returncode, output, errors) == (0, b"the end, without a newline", b"")


def test_a_file_begun_anew_is_read_from_its_start(server: FakeServer, life: Life, begin: Begin, tmp_path: Path):
    out = tmp_path / "12.out"
    out.write_bytes(b"first attempt\n")
    server.on("job", job(12, stdout=str(out)))
    process = begin("logs", "-f", 12)
    read_until(process, b"first attempt\n")
    out.write_bytes(b"second\n")
    assert read_until(process, b"second\n") == b"second\n"
    life.over.set()
    assert process.communicate(timeout=20)[0] == b""


def test_the_next_attempt_may_write_elsewhere(server: FakeServer, life: Life, begin: Begin, tmp_path: Path):
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_bytes(b"first\n")
    server.on("job", job(12, stdout=str(first)))
    process = begin("logs", "-f", 12)
    read_until(process, b"first\n")
    server.on("job", job(12, "COMPLETED", stdout=str(second)))
    second.write_bytes(b"second\n")
    life.over.set()
    assert process.communicate(timeout=20)[0] == b"second\n"


def test_what_another_machine_has_is_followed_by_asking(server: FakeServer, life: Life, begin: Begin, tmp_path: Path):
    text = b"one\n"

    def log(asked: Asked) -> Raw:
        return Raw([text[int(asked.query["offset"]) :]])

    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    server.on("job", job(12, stdout=str(loop)))
    server.on("log", log)
    process = begin("logs", "-f", 12)
    read_until(process, b"one\n")
    text += b"two\n"
    assert read_until(process, b"two\n") == b"two\n"
    text += b"end"
    life.over.set()
    assert process.communicate(timeout=20)[0] == b"end"


def test_what_went_into_a_pipe_is_not_read(server: FakeServer, tide: Tide, tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    server.on("job", job(12, "COMPLETED", stdout=str(tmp_path / "pipe")))
    done = tide("logs", 12)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"tide: {tmp_path}/pipe keeps nothing to read\n")


def test_wait_tells_how_jobs_ended(server: FakeServer, tide: Tide):
    server.on("wait", waited([row(12, "COMPLETED"), row(13, "FAILED", signal=9), row(14, "TIMED_OUT", index=3)]))
    done = tide("wait", 12, 13, "14[3]")
    assert done.returncode == 1
    assert done.stdout.splitlines() == ["job 13 failed (signal 9)", "job 14[3] timed out", "1 of 3 completed"]
    assert server.asked[0].query == {"job": "12,13,14_3", "timeout_ms": "0"}
    server.on("wait", waited([row(12, "COMPLETED")]))
    done = tide("wait", 12)
    assert (done.returncode, done.stdout) == (0, "job 12 completed\n")
    assert json.loads(tide("wait", 12, "--json").stdout)["failed"] == 0
    assert tide("wait", 12, "--quiet").stdout == ""


def test_wait_for_thousands_asks_in_parts(server: FakeServer, tide: Tide):
    def answer(asked: Asked) -> api.WaitBody:
        many = len(asked.query["job"].split(","))
        return api.WaitBody(total=many, ended=many, running=0, failed=0, rows=[])

    server.on("wait", answer)
    assert tide("wait", "1-2500").stdout == "2,500 of 2,500 completed\n"
    assert [len(one.query["job"].split(",")) for one in server.asked] == [1000, 1000, 500]


def test_wait_goes_on_across_a_restart(server: FakeServer, life: Life, begin: Begin):
    process = begin("wait", 12)
    server.wait_for(lambda asked: len(asked) == 2)
    server.stop()
    server.start()
    server.wait_for(lambda asked: len(asked) == 3)
    life.over.set()
    output, errors = process.communicate(timeout=20)
    assert (process.returncode, output, errors) == (0, b"job 12 completed\n", b"")
    assert [one.query.get("ended") for one in server.asked] == [None, "0", "0"]


@pytest.mark.usefixtures("life")
def test_wait_gives_up_when_told_to(server: FakeServer, tide: Tide):
    done = tide("wait", 12, "--timeout", "300ms")
    assert (done.returncode, "0 of 1 ended, 1 running when time was up; the jobs go on" in done.stderr) == (1, True)
    assert server.asked


def test_a_server_that_hangs_is_asked_anew(server: FakeServer, monkeypatch: pytest.MonkeyPatch):
    hangs = threading.Event()
    answers = iter([waited([], total=1), None, waited([row(12, "COMPLETED")])])
    server.on("wait", lambda _: next(answers) or hangs.wait(20))
    monkeypatch.setattr("tidegate.cli.watch.ASK_MS", 100)
    monkeypatch.setattr("tidegate.cli.watch.ANSWER_S", 0)
    place = Server.__new__(Server)
    place.start, place.client = NEVER, Client(Place(home=str(server.home)))
    try:
        assert wait_for(place, [(12, -1)], quiet=True) == 0
    finally:
        hangs.set()


def test_wait_of_a_job_that_is_not_there(server: FakeServer, tide: Tide):
    server.on("wait", Problem(404, "there is no job 12", "tide queue --all lists them"))
    done = tide("wait", 12)
    assert (done.returncode, done.stderr) == (1, "tide: there is no job 12; tide queue --all lists them\n")


def event(number: int) -> bytes:
    fact = {"type": "JobStarted", "at": 1000 * number, "task": 12 << 20 | number, "nodes": [["n1", 1]]}
    return b"id: %d\ndata: %b\n\n" % (number, json.dumps({"seq": number, "type": "JobStarted", "event": fact}).encode())


def status(number: int) -> api.StatusBody:
    return api.StatusBody(
        version="0", pid=1, home="h", user="u", up_ms=1, waiting=0, running=0, ended=0, seq=number, policy="tide",
        policy_version=1, engine="local", kernel="pure",
    )  # fmt: skip


def test_events_up_to_now(server: FakeServer, tide: Tide):
    server.on("status", status(3))
    server.on("events", lambda asked: Raw((event(at) for at in range(int(asked.query["after"]) + 1, 9)), chunked=True))
    done = tide("events")
    assert [line.split()[:5] for line in done.stdout.splitlines()] == [
        [str(at), f"00:00:0{at}", "JobStarted", "job", f"12[{at}]"] for at in (1, 2, 3)
    ]  # fmt: skip
    assert [json.loads(line)["seq"] for line in tide("events", "--after", "2", "--json").stdout.splitlines()] == [3]
    done = tide("events", "--after", 3)
    assert (done.returncode, done.stdout, "nothing after 3" in done.stderr) == (0, "", True)


def test_events_that_are_no_longer_kept_are_not_waited_for(server: FakeServer, tide: Tide):
    server.on("status", status(9))
    server.on("events", Raw([event(2), b": alive\n\n", b": alive\n\n"], chunked=True))
    assert len(tide("events").stdout.splitlines()) == 1


def test_events_follow_without_missing_any(server: FakeServer, begin: Begin):
    server.on("status", status(7))
    server.on(
        "events", lambda asked: Raw([b": alive\n\n", event(int(asked.query["after"]) + 1)], chunked=True, cut=True)
    )
    process = begin("events", "-f", "--json")
    lines = [json.loads(read_until(process, b"\n"))["seq"] for _ in range(3)]
    assert lines == [8, 9, 10]
    process.send_signal(2)
    assert process.wait(timeout=20) == 130


def test_the_reader_of_the_output_may_leave(server: FakeServer, env: dict[str, str]):
    server.on("jobs", Raw([b"x" * 79 + b"\n"] * 20_000, chunked=True))
    read, write = os.pipe()
    process = subprocess.Popen([*TIDE, "queue"], stdout=write, stderr=subprocess.PIPE, env=env)
    os.close(write)
    os.read(read, 100)
    os.close(read)
    assert process.communicate(timeout=20)[1] == b""
    assert process.returncode == 0
