"""What each command asks of the server, and what it makes of the answer."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Tide
from tests.kit.fake_server import FakeServer, Problem, Raw, job, row, waited
from tidegate.wire import api

NODE = api.NodeRow(
    name="n1", pool="main", state="up",
    capacity={"cpus": 8000, "memory": 16384, "gpus": 2000, "licences": 3},
    free={"cpus": 1500, "memory": 512, "gpus": 0, "licences": 1}, labels={"disk": "ssd"}, jobs=3,
)  # fmt: skip
STATUS = api.StatusBody(
    version="0.1.0", pid=7, home="there", user="ann", up_ms=90_061_000, waiting=2, running=1, ended=1234, seq=99,
    policy="tide", policy_version=3, engine="local", kernel="pure", notes=["no cgroups: memory is not held to"],
    promises={"made": 9, "kept": 7, "late_p50_ms": 5000, "late_by_overrun": 1, "late_by_turn": 1},
)  # fmt: skip


def submitted(server: FakeServer) -> api.SubmitBody:
    body = server.said("submit")[-1].body
    assert isinstance(body, api.SubmitBody)
    return body


def test_submit_sends_what_was_said(server: FakeServer, tide: Tide, tmp_path: Path):
    server.on("submit", api.SubmittedBody(id=12, tasks=10))
    done = tide(
        "submit", "--cpus", "1.5", "-m", "1.5G", "--gpus=1", "--gpu-model", "A100", "--nodes", 2, "-t", "1d12h",
        "--class", "critical", "--queue", "night", "--pool", "big", "--name", "train", "--array", "0-9%2",
        "--after", "3,4:any", "--after", "5:fail", "--begin", "2030-01-02T03:04Z", "--tag", "team=blue",
        "--retries", 3, "--retry-on", "exit:75,signal:9", "--retry-on", "oom", "--backoff", "10s", "--losses", 0,
        "--output", "logs/%j.out", "--error", "-", "--append", "--stdin", "in.txt", "--notify", "echo done",
        "--hold", "--grace", "5s", "--where", "disk=ssd,nvme", "--resource", "licences=2", "--expected", "2h",
        "--", "python", "train.py", "--cpus", "9",
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "job 12 (10 tasks)\n", "")
    body = submitted(server)
    assert body.command == ["python", "train.py", "--cpus", "9"]
    assert (body.cpus, body.memory_mib, body.gpus, body.gpu_model, body.nodes) == (1.5, 1536, 1, "A100", 2)
    assert (body.time_ms, body.expected_ms, body.grace_ms) == (129_600_000, 7_200_000, 5000)
    assert (body.klass, body.queue, body.pool, body.name, body.array) == ("critical", "night", "big", "train", "0-9%2")
    assert [(one.job, one.kind) for one in body.after] == [(3, "ok"), (4, "any"), (5, "fail")]
    assert body.begin_ms == 1_893_553_440_000
    assert (body.tags, body.where, body.resources) == ({"team": "blue"}, {"disk": ["ssd", "nvme"]}, {"licences": 2})
    assert body.retry == api.RetryBody(times=3, on=["exit:75", "signal:9", "oom"], backoff_ms=10_000)
    assert (body.losses_max, body.held, body.append, body.notify) == (0, True, True, "echo done")
    assert (body.cwd, body.stdin) == (str(tmp_path), str(tmp_path / "in.txt"))
    assert (body.stdout, body.stderr) == (str(tmp_path / "logs/%j.out"), "-")


def test_a_job_gets_the_environment_less_what_belongs_here(server: FakeServer, tide: Tide):
    server.on("submit", api.SubmittedBody(id=1))
    more = {"COLOUR": "grün", "TIDE_JOB_ID": "4", "TIDEGATE_TOKEN": "s", "OLDPWD": "/", "TERM": "vt100"}
    assert tide("submit", "--env", "A=1=2", "--env", "COLOUR", "--", "true", **more).returncode == 0
    env = submitted(server).env
    assert (env["COLOUR"], env["A"], env["TERM"]) == ("grün", "1=2", "vt100")
    assert not {"TIDE_JOB_ID", "TIDEGATE_TOKEN", "TIDEGATE_HOME", "OLDPWD", "PWD", "_"} & env.keys()
    assert tide("submit", "--export", "none", "-e", "A=1", "--", "true", **more).returncode == 0
    env = submitted(server).env
    assert env.keys() <= {"HOME", "LOGNAME", "SHELL", "USER", "PATH", "A"}
    assert env["A"] == "1"


def test_what_is_no_text_is_left_out_of_the_environment_and_said(server: FakeServer, tide: Tide):
    server.on("submit", api.SubmittedBody(id=1))
    done = tide("submit", "--", "true", ODD=os.fsdecode(b"\xff"))
    assert (done.returncode, "'ODD'" in done.stderr) == (0, True)
    assert "ODD" not in submitted(server).env
    done = tide("submit", "--", "echo", os.fsdecode(b"\xff"))
    assert (done.returncode, "no UTF-8" in done.stderr) == (2, True)


def test_every_submission_can_be_repeated(server: FakeServer, tide: Tide):
    server.on("submit", lambda asked: api.SubmittedBody(id=1, known=asked.body.key == "again"))
    tide("submit", "--", "true")
    tide("submit", "--", "true")
    first, second = (asked.body.key for asked in server.said("submit"))
    assert first.startswith("auto-")
    assert first != second
    assert "submitted before" in tide("submit", "--key", "again", "--", "true").stdout


def test_a_script_gives_options_and_the_command_line_wins(server: FakeServer, tide: Tide, tmp_path: Path):
    server.on("submit", api.SubmittedBody(id=5))
    script = tmp_path / "work.sh"
    text = (
        "#!/bin/sh\n#TIDE --cpus 4 --time 2h # enough\n# words\n\n"
        "#TIDE --name 'two words' --tag a=1\ntrue\n#TIDE --gpus 9\n"
    )
    script.write_text(text)
    done = tide("submit", "--cpus", 2, "--tag", "b=2", "--quiet", script, "--cpus", "7")
    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")
    body = submitted(server)
    assert (body.script, body.command) == (text, ["--cpus", "7"])
    assert (body.cpus, body.time_ms, body.name, body.gpus) == (2, 7_200_000, "two words", 0)
    assert body.tags == {"a": "1", "b": "2"}
    script.write_text("#!/bin/sh\ntrue\n")
    tide("submit", script)
    assert submitted(server).name == "work.sh"
    tide("submit", "-", said="#!/bin/sh\n#TIDE --gpus 3\ntrue\n")
    assert (submitted(server).name, submitted(server).gpus) == ("", 3)


@pytest.mark.parametrize(
    ("octets", "said"),
    [
        (b"true\n", "#!/bin/sh"),
        (b"#!/bin/sh\n\xff", "not UTF-8"),
        (b"\x7fELF\0", "tide submit --"),
        (b"#!/bin/sh\n#TIDE --cpu 4\n", "line 2"),
        (b"#!/bin/sh\n\n#TIDE --name 'half\n", "line 3"),
        (b"#!/bin/sh\n#TIDE 4\n", "'4' is no option"),
        (b"#!/bin/sh\n#TIDE --time 4\n", "4s, 4m or 4h"),
    ],
)
def test_a_script_that_will_not_do_is_refused(tide: Tide, tmp_path: Path, octets: bytes, said: str):
    (tmp_path / "s").write_bytes(octets)
    done = tide("submit", "s")
    assert done.returncode in {1, 2}
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_submit_waits_when_told_to(server: FakeServer, tide: Tide):
    server.on("submit", api.SubmittedBody(id=5))
    server.on("wait", waited([row(5, "FAILED", exit_code=3)]))
    done = tide("submit", "--wait", "--", "false")
    assert (done.returncode, done.stdout) == (1, "job 5\njob 5 failed (exit 3)\n")


def test_queue_writes_what_the_server_writes(server: FakeServer, tide: Tide):
    server.on("jobs", Raw([b"ID  NAME\n", "12  grün\n".encode()], chunked=True))
    done = tide("queue", "--user", "me", "--state", "failed", "--queue", "a b&c")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ID  NAME\n12  grün\n", "")
    asked = server.asked[-1]
    assert asked.headers["accept"] == "text/plain"
    assert asked.query == {"all": "1", "user": "me", "state": "FAILED", "queue": "a b&c", "width": "1000"}


@pytest.mark.parametrize(
    ("words", "said"), [((), "tide submit"), (("--all",), "no jobs yet"), (("--user", "x"), "no job")]
)
def test_an_empty_queue_says_something_helpful(server: FakeServer, tide: Tide, words: tuple[str, ...], said: str):
    server.on("jobs", Raw([]))
    done = tide("queue", *words)
    assert (done.returncode, done.stdout) == (0, "")
    assert said in done.stderr


def test_queue_as_json_is_a_list_of_full_rows(server: FakeServer, tide: Tide):
    server.on("jobs", api.JobsBody(jobs=[row(1), row(2, "FAILED", exit_code=3, attempts=2)], more=True))
    done = tide("queue", "--all", "--json", "7-9", "12[5]")
    found = json.loads(done.stdout)
    assert [one["state"] for one in found] == ["RUNNING", "FAILED"]
    assert all({"id", "state", "name", "user", "queue", "exit_code", "attempts"} <= one.keys() for one in found)
    assert "there are more" in done.stderr
    assert server.asked[-1].query["job"] == "7,8,9,12_5"
    server.on("jobs", api.JobsBody(jobs=[]))
    assert json.loads(tide("queue", "--json").stdout) == []


def test_show_is_a_sheet_that_fits_a_screen(server: FakeServer, tide: Tide):
    one = job(
        12, "FAILED", name="train", command=["sh", "-c", "exit 3"], cwd="there", stdout="there/12.out", reason="exit 3",
        start_ms=1_700_000_060_000, end_ms=1_700_000_120_000, exit_code=3, attempts=2, nodes=["n1"], cpus=1.5,
        memory_mib=1536, gpus=1, limit_ms=7_200_000, cpu_ms=55_000, peak_kib=204_800, tags={"team": "blue"},
        after=[api.AfterBody(job=3)],
        history=[{"attempt": at, "state": "FAILED", "start_ms": 1, "end_ms": 9, "nodes": ["n1"], "exit_code": 3}
                 for at in (1, 2)],
    )  # fmt: skip
    server.on("job", one)
    done = tide("show", 12)
    assert done.returncode == 0, done.stderr
    for words in ("job 12  FAILED  train", "1.5 cpus, 1.5G memory, 1 gpu, for at most 2h00m", "ran 1m00s",
                  "sh -c 'exit 3'",                   "200M memory", "team=blue", "3:ok", "ATTEMPT"):  # fmt: skip
        assert words in done.stdout, words
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert json.loads(tide("show", 12, "--json").stdout)["exit_code"] == 3


def test_show_names_the_tasks_of_an_array(server: FakeServer, tide: Tide):
    tasks = [row(12, "COMPLETED", index=at, start_ms=1, end_ms=5) for at in range(49)]
    tasks.insert(3, row(12, "WAITING", indices="50-99", tasks=50))
    server.on("job", job(12, "RUNNING", array=tasks, tasks=50, indices="50-99"))
    done = tide("show", "12")
    assert "and 10 more" in done.stdout
    assert "50 not started: 50-99" in done.stdout
    assert "50-99  WAITING" in done.stdout
    server.on("job", lambda asked: job(12, index=int(asked.query["index"])))
    assert "job 12[5]" in tide("show", "12_5").stdout
    assert [one["index"] for one in json.loads(tide("show", "12[3,4]", "--json").stdout)] == [3, 4]


@pytest.mark.parametrize(("verb", "past"), [("cancel", "cancelled"), ("hold", "held"), ("release", "released"),
                                             ("requeue", "requeued"), ("suspend", "suspended")])  # fmt: skip
def test_an_action_is_asked_for_each_job(server: FakeServer, tide: Tide, verb: str, past: str):
    def answer(asked: object) -> object:
        number = asked.where["job"]  # type: ignore[attr-defined]
        return Problem(403, "job 13 is of bob", "ask bob") if number == "13" else api.DoneBody(done=number != "14")

    server.on(verb, answer)
    done = tide(verb, "12[5]", "13,14", "20-21")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"{past} job 12[5]", "job 14: it was so already", f"{past} job 20", f"{past} job 21",
    ]  # fmt: skip
    assert done.stderr == "tide: job 13 is of bob; ask bob\n"
    assert [(one.where["job"], one.body.index) for one in server.said(verb)] == [
        ("12", 5), ("13", -1), ("14", -1), ("20", -1), ("21", -1),
    ]  # fmt: skip
    results = json.loads(tide(verb, "12", "13", "--json").stdout)
    assert results[0] == {"id": 12, "index": None, "done": True}
    assert results[1]["error"] == {"what": "job 13 is of bob", "cure": "ask bob"}


def test_jobs_are_chosen_by_what_they_are(server: FakeServer, tide: Tide):
    rows = [row(1, name="sweep-1"), row(2, name="other"), row(3, "WAITING", name="sweep-3", tasks=2, indices="4-5"),
            row(3, index=1, name="sweep-3")]  # fmt: skip
    server.on("jobs", api.JobsBody(jobs=rows))
    server.on("cancel", api.DoneBody(done=True))

    def cancelled(*words: str) -> list[tuple[str, int]]:
        before = len(server.said("cancel"))
        assert tide("cancel", *words).returncode == 0
        return [(one.where["job"], one.body.index) for one in server.said("cancel")[before:]]

    assert cancelled("--name", "sweep-*") == [("1", -1), ("3", -1)]
    assert server.said("jobs")[-1].query == {"user": "me"}
    assert cancelled("--state", "waiting,running", "--user", "bob") == [
        ("1", -1),
        ("2", -1),
        ("3", 4),
        ("3", 5),
        ("3", 1),
    ]
    assert server.said("jobs")[-1].query == {"user": "bob", "state": "WAITING,RUNNING"}
    server.on("release", api.DoneBody(done=True))
    assert tide("release", "--queue", "q").stdout == "released job 1\nreleased job 2\nreleased job 3\n"
    assert server.said("jobs")[-1].query == {"user": "me", "queue": "q", "state": "HELD"}
    server.on("jobs", api.JobsBody(jobs=[]))
    assert "no job of yours" in tide("cancel", "--all").stderr


def test_nodes_are_a_table(server: FakeServer, tide: Tide):
    drained = api.NodeRow(
        name="n2", pool="main", state="drained", capacity={"cpus": 8000}, free={"cpus": 8000}, why="disk"
    )
    server.on("nodes", api.NodesBody(nodes=[NODE, drained], declared=True))
    done = tide("nodes")
    heads, first, second, *rest = done.stdout.splitlines()
    assert " ".join(heads.split()) == "NODE STATE CPUS FREE MEMORY FREE GPUS FREE JOBS OTHER LABELS WHY"
    assert " ".join(first.split()) == "n1 up 8 1.5 16G 512M 2 0 3 licences 1/3 disk=ssd"
    assert " ".join(second.split()) == "n2 drained 8 8 - - - - - disk"
    assert "declared" in rest[-1]
    assert json.loads(tide("nodes", "--json").stdout)["declared"] is True


def test_drain_and_resume(server: FakeServer, tide: Tide):
    server.on("drain", api.DoneBody(done=True))
    server.on("resume", api.DoneBody(done=False))
    assert tide("drain", "n 1", "--why", "disk").stdout == "n 1 takes no new work\n"
    assert (server.asked[-1].where["node"], server.asked[-1].body.why) == ("n 1", "disk")
    assert "it was so already" in tide("resume", "n1").stdout
    assert json.loads(tide("resume", "n1", "--json").stdout) == {"node": "n1", "done": False}


def test_resume_takes_jobs_by_number_and_nodes_by_name(server: FakeServer, tide: Tide):
    server.on("resume_job", api.DoneBody(done=True))
    assert tide("resume", "12", "13[4]").stdout.splitlines() == ["resumed job 12", "resumed job 13[4]"]
    assert [(one.where["job"], one.body.index) for one in server.said("resume_job")] == [("12", -1), ("13", 4)]
    mixed = tide("resume", "12", "n1")
    assert (mixed.returncode, mixed.stderr) == (
        2, "tide resume: n1 is a node and not all are; name either jobs or nodes\n",
    )  # fmt: skip


def test_status_and_down(server: FakeServer, tide: Tide):
    server.on("status", STATUS)
    done = tide("status")
    assert "9 promised, 7 started in time, 2 late, half of them by up to 5.0s" in done.stdout
    assert done.returncode == 0
    assert "1d01h, process 7, as ann" in done.stdout
    assert "note: no cgroups" in done.stdout
    assert json.loads(tide("status", "--json").stdout)["up"] is True

    server.on("stop", stop_after_answer(server))
    done = tide("down")
    assert (done.returncode, done.stdout) == (
        0, "the server of there is down; 1 running job goes on, and tide up finds it again\n",
    )  # fmt: skip
    assert tide("down").returncode == 1


def stop_after_answer(server: FakeServer) -> Callable[[object], Raw]:
    def answer(_: object) -> Raw:
        def pieces() -> Iterator[bytes]:
            yield b'{"done":true}'
            listener, server.listener = server.listener, None
            assert listener is not None
            listener.shutdown(2)
            listener.close()

        return Raw(pieces(), chunked=True)

    return answer


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "usage: tide"),
        (("sumbit",), "did you mean tide submit?"),
        (("submit",), "tide submit -- COMMAND"),
        (("submit", "--"), "the command after --"),
        (("submit", "--cpus", "0", "--", "x"), "--cpus: 0 is too little"),
        (("submit", "--cpus", "0.00001", "--", "x"), "three decimals"),
        (("submit", "--cpus", "four", "--", "x"), "--cpus: 'four' is not a number"),
        (("submit", "--memory", "4", "--", "x"), "--memory: '4' has no unit"),
        (("submit", "--gpus", "-1", "--", "x"), "--gpus: '-1' is not a whole number"),
        (("submit", "--nodes", "0", "--", "x"), "--nodes: 0 is too small"),
        (("submit", "--time", "90", "--", "x"), "90s, 90m or 90h"),
        (("submit", "--time", "0", "--", "x"), "no time"),
        (("submit", "--array", "9-1", "--", "x"), "1-9"),
        (("submit", "--after", "x", "--", "x"), "--after: 'x' is no job"),
        (("submit", "--after", "3:good", "--", "x"), "3:ok, 3:any or 3:fail"),
        (("submit", "--after", "3[1]", "--", "x"), "the whole array: 3"),
        (("submit", "--begin", "soon", "--", "x"), "14:30"),
        (("submit", "--deadline", "25:00", "--", "x"), "14:30"),
        (("submit", "--env", "NOT_THERE", "--", "x"), "NAME=VALUE"),
        (("submit", "--env", "=x", "--", "x"), "has no name"),
        (("submit", "--deadline", "+1h", "--", "x"), "say with --time"),
        (("submit", "--export", "some", "--", "x"), "write all or none"),
        (("submit", "--output", "%q", "--", "x"), "%q means nothing"),
        (("submit", "--output", "50%", "--", "x"), "% means nothing"),
        (("submit", "--retry-on", "oom", "--", "x"), "--retries N"),
        (("submit", "--retry-on", "luck", "--", "x"), "exit:75"),
        (("submit", "--retry-on", "exit:9-1", "--", "x"), "codes from 1"),
        (("submit", "--tag", "blue", "--", "x"), "NAME=VALUE"),
        (("submit", "--name", "", "--", "x"), "is no name"),
        (("submit", "--hold=yes", "--", "x"), "takes no value"),
        (("submit", "--cpus"), "lacks its value; write --cpus N"),
        (("submit", "--cpuss", "1", "--", "x"), "did you mean --cpus?"),
        (("run",), "tide run -- COMMAND"),
        (("show",), "ID[INDEX]... is missing"),
        (("show", "x"), "'x' is no job"),
        (("show", "12[", ), "lacks its ]"),
        (("logs", "1", "2"), "one word too many"),
        (("logs", "1-2"), "name one"),
        (("logs", "-f", "--json", "1"), "leave out --json"),
        (("wait", "0"), "is no job"),
        (("wait", "1-999999999"), "name fewer"),
        (("cancel",), "name jobs, or choose them"),
        (("cancel", "--all", "3"), "name jobs, or choose them"),
        (("cancel", "9-3"), "3-9"),
        (("queue", "--state", "lost,found"), "'FOUND' is no state"),
        (("queue", "--limit", "0"), "--limit: 0 is too small"),
        (("events", "--after", "x"), "--after"),
        (("up", "--engine", "slurm"), "local or virtual"),
        (("token", "make"), "add NAME"),
        (("token", "add"), "tide token add NAME"),
        (("policy", "check"), "tide policy check FILE"),
        (("policy", "change"), "'change' is nothing to do; write one of show, "),
        (("policy", "show", "--yes"), "--yes goes with apply and rollback"),
        (("policy", "rollback", "two", "--yes"), "'two' is not a whole number"),
        (("policy", "apply", "easy"), "nobody is here to be asked; say --yes"),
        (("policy", "apply", "easy", "--json"), "nobody is here to be asked; say --yes"),
        (("drain",), "NODE... is missing"),
        (("replay", "x", "--cadence", "often"), "per-event"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_explained(tide: Tide, words: tuple[str, ...], said: str):
    done = tide(*words)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_script_says_how_commands_are_written(tide: Tide):
    done = tide("submit", "python", "x.py")
    assert (done.returncode, "tide submit -- python" in done.stderr) == (1, True)
