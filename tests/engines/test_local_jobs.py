"""What a job of the local engine is given, and what is told of its end."""

import os
import signal
from pathlib import Path

import pytest

from tests.engines.kit import PYTHON, USER, Local
from tidegate.engines.local.nodes import declare
from tidegate.model.base import task_key
from tidegate.model.engine import Ended, Launch, Launched, LaunchRefused, NodeSeen, Notified, Notify
from tidegate.model.jobs import Job, JobSpec, Outcome, Shape, amounts

OF_THE_C_LIBRARY = 3 << 31
"""Two signals of its own, which its posix_spawn leaves ignored in whatever it starts."""


def test_nodes_are_seen_before_anything_else(local: Local) -> None:
    assert local.seen[0] == NodeSeen(local.machine.nodes[0])


@pytest.mark.parametrize("code", [0, 1, 77, 125, 127, 255])
def test_a_code_is_told_as_it_is(either: Local, code: int) -> None:
    end = either.run("sh", "-c", f"exit {code}")
    assert (end.outcome, end.code, end.signal) == (Outcome.FAILED if code else Outcome.COMPLETED, code, 0)


def test_a_signal_is_told_with_the_code_that_shells_give(either: Local) -> None:
    end = either.run("sh", "-c", "kill -USR1 $$")
    assert (end.outcome, end.code, end.signal) == (Outcome.FAILED, 128 + signal.SIGUSR1, signal.SIGUSR1)


def test_no_signal_is_ignored_or_blocked_from_the_start(either: Local) -> None:
    job = either.job("grep", "-E", "Sig(Blk|Ign)", "/proc/self/status")
    either.end_of(either.launch(job))
    masks = [int(line.split()[1], 16) & ~OF_THE_C_LIBRARY for line in either.output(job).splitlines()]
    assert masks == [0, 0]


def test_a_job_is_told_who_it_is(either: Local) -> None:
    job = either.job("env", name="a name")
    either.end_of(either.launch(job, attempt=1, env=(("GREETING", "good\nday"), ("TIDE_JOB_ID", "7"))))
    said = either.output(job)
    for line in (
        f"TIDE_JOB_ID={job.id}", "TIDE_JOB_NAME=a name", "TIDE_ATTEMPT=1", "TIDE_NODES=node1", "TIDE_CPUS=1",
        "TIDE_QUEUE=default", f"TIDE_HOME={either.home}", "GREETING=good\nday", "HOME=",
    ):  # fmt: skip
        assert line in said
    assert "TIDE_JOB_ID=7" not in said
    assert "TIDE_ARRAY_INDEX" not in said
    assert "CUDA_VISIBLE_DEVICES" not in said


def test_nothing_of_its_environment_speaks_to_the_launcher(either: Local, tmp_path: Path) -> None:
    """A library or a module that a user names must not be loaded while the launcher still has our rights."""
    job = either.job("sh", "-c", "echo $LD_PRELOAD $PYTHONPATH $PATH")
    env = (("LD_PRELOAD", f"{tmp_path}/none.so"), ("PATH", "/usr/bin:/bin"), ("PYTHONPATH", str(tmp_path)))
    assert either.end_of(either.launch(job, env=env)).outcome is Outcome.COMPLETED
    assert f"{tmp_path}/none.so {tmp_path} /usr/bin:/bin" in either.output(job)
    assert "none.so" not in either.log()


def test_tasks_of_an_array_have_an_index_and_an_output_each(local: Local) -> None:
    job = local.job("sh", "-c", "echo $TIDE_ARRAY_INDEX", array=True)
    for key in [local.launch(job, index=index) for index in (0, 1, 7)]:
        local.end_of(key)
    outputs = local.home / "output" / str(job.id // 1000) / str(job.id) / "0"
    assert {path.name: path.read_text() for path in outputs.iterdir()} == {
        "0.out": "0\n", "1.out": "1\n", "7.out": "7\n",
    }  # fmt: skip


def test_attempts_after_the_first_append(either: Local) -> None:
    job = either.job("sh", "-c", "echo $TIDE_ATTEMPT; echo error >&2")
    for attempt in (1, 2):
        either.end_of(either.launch(job, attempt))
    assert either.output(job) == "1\nerror\n2\nerror\n"


def test_paths_of_users_are_filled_in(either: Local, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("what was asked\n")
    job = either.job(
        "sh", "-c", "cat; echo no >&2", cwd=str(tmp_path), stdin="in", stdout="%x-%j-%a-%t-%u-100%%.txt",
        stderr="%n.err", umask=0o077,
    )  # fmt: skip
    either.end_of(either.launch(job))
    out = tmp_path / f"test-{job.id}-0-1-{USER}-100%.txt"
    assert out.read_text() == "what was asked\n"
    assert out.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "test.err").read_text() == "no\n"


def test_stderr_goes_where_stdout_goes(either: Local, tmp_path: Path) -> None:
    either.run("sh", "-c", "echo 1; echo 2 >&2", stdout=f"{tmp_path}/both")
    assert (tmp_path / "both").read_text() == "1\n2\n"
    either.run("sh", "-c", "echo 3; echo 4 >&2", stdout=f"{tmp_path}/both", stderr=f"{tmp_path}/both", append=True)
    assert (tmp_path / "both").read_text() == "1\n2\n3\n4\n"


@pytest.mark.parametrize(
    ("argv", "work", "code", "why"),
    [
        (["no-such-program"], {}, 127, "cannot run no-such-program: No such file"),
        (["/etc/passwd"], {}, 126, "cannot run /etc/passwd: Permission denied"),
        (["true"], {"cwd": "/no/such/place"}, 126, "cannot go to the directory /no/such/place: No such file"),
        (["true"], {"stdout": "/no/such/file"}, 126, "cannot open the output /no/such/file: No such file"),
        (["true"], {"stdin": "/no/such/file"}, 126, "cannot open the input /no/such/file: No such file"),
        (["tr\0ue"], {}, 126, "a NUL character is in an argument or a path"),
        ([], {}, 126, "the job has no command"),
        (["true"], {"user": "no-such-user"}, 126, "this machine knows no user 'no-such-user'"),
    ],
)
def test_what_cannot_be_run_fails_and_says_why(
    either: Local, argv: list[str], work: dict[str, str], code: int, why: str
) -> None:
    end = either.run(*argv, **work)
    assert (end.outcome, end.code) == (Outcome.FAILED, code)
    assert why in end.why


def test_a_script_whose_interpreter_is_missing(either: Local, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    assert "interpreter that the first line names" in either.run(str(script)).why


def test_without_work_there_is_nothing_to_run(local: Local) -> None:
    spec = JobSpec(USER, Shape(amounts(cpus=1000)), 1000)
    assert local.end_of(local.launch(Job(1, 0, 0, "main", spec))).why == "the job has no command"


def test_a_script_is_there_while_an_attempt_needs_it(local: Local) -> None:
    job = local.job("one", "two words", script='#!/bin/sh\necho "$#" "$2" "$0"\n')
    end = local.end_of(local.launch(job))
    assert end.outcome is Outcome.COMPLETED
    script = local.home / "scripts" / str(job.id)
    assert local.output(job) == f"2 two words {script}\n"
    local.hear()  # the turn after: it was heard
    assert not script.exists()
    local.end_of(local.launch(job, attempt=2))
    assert local.output(job).count("two words") == 2


def test_a_script_without_a_first_line_is_run_by_the_shell(either: Local) -> None:
    job = either.job(script="echo plain\n")
    assert either.end_of(either.launch(job)).outcome is Outcome.COMPLETED
    assert either.output(job) == "plain\n"


def test_usage_is_told(local: Local) -> None:
    end = local.run(PYTHON, "-c", "x = b'x' * (40 << 20); sum(range(3_000_000))")
    assert end.used.cpu_ms >= 10
    assert end.used.peak_kib >= 40 << 10
    assert end.used.read_kib >= 0
    assert end.used.written_kib >= 0


def test_a_large_environment_and_many_arguments_arrive(local: Local) -> None:
    env = tuple((f"NAME{number}", "x" * 1000) for number in range(300))
    job = local.job("sh", "-c", 'echo $# "$NAME299"', "sh", *["argument"] * 9000)
    assert local.end_of(local.launch(job, env=env)).outcome is Outcome.COMPLETED
    assert local.output(job) == f"9000 {'x' * 1000}\n"


def test_more_than_the_system_takes_is_the_jobs_fault(local: Local) -> None:
    end = local.run("true", "x" * (1 << 20))
    assert (end.outcome, end.code) == (Outcome.FAILED, 126)
    assert "Argument list too long" in end.why


def test_environments_are_sent_once_and_old_ones_dropped(local: Local) -> None:
    envs = {name: tuple((f"{name}{at}", "x" * 1000) for at in range(900)) for name in "ABC"}
    for name in "ABCAAB":
        job = local.job("sh", "-c", f"echo ${name}899", env=name)
        assert local.end_of(local.launch(job, env=envs[name])).outcome is Outcome.COMPLETED
        assert local.output(job) == "x" * 1000 + "\n"
    assert len(local.engine.environments) == 2


def test_a_start_is_told_when_it_lasts(local: Local) -> None:
    key = local.launch(local.job("sleep", "1000"))
    local.started(key)
    assert local.look() == {key}


def test_ends_are_repeated_until_heard(local: Local) -> None:
    job = local.job("sh", "-c", "exit 3")
    key = local.launch(job)
    local.end_of(key)
    local.launch(job)  # a double, in the turn that has taken the end and not flushed it
    local.engine.heard.clear()
    local.wait_for(lambda: len(local.ends_of(key)) == 2)
    assert len(set(local.ends_of(key))) == 1
    assert local.output(job) == ""
    local.hear()
    assert local.look() == set()
    assert len(local.ends_of(key)) == 2


def test_devices_are_given_to_one_job_at_a_time(tmp_path: Path) -> None:
    local = Local(tmp_path, declare(2, 4, 1024, gpus=2))
    try:
        asks = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exec sleep 1000"]
        one, two, other = local.job(*asks, gpus=1000), local.job(*asks, gpus=1000), local.job(*asks, gpus=2000)
        keys = [local.launch(one), local.launch(two), local.launch(other, node="node2")]
        for key in keys:
            local.started(key)
        assert [local.output(job) for job in (one, two, other)] == ["0\n", "1\n", "2,3\n"]
        late = local.launch(local.job("true", gpus=1000))
        assert "1 GPUs are wanted, 0 of 2 are free" in local.refusal_of(late).why
        local.halt(keys[0])
        local.end_of(keys[0])
        again = local.job("sh", "-c", "echo $CUDA_VISIBLE_DEVICES", gpus=1000)
        local.end_of(local.launch(again))
        none = local.job("sh", "-c", "echo ${CUDA_VISIBLE_DEVICES-unset}.")
        local.end_of(local.launch(none))
        assert (local.output(again), local.output(none)) == ("0\n", ".\n")
    finally:
        local.close()


def test_a_gang_has_all_that_its_nodes_give(tmp_path: Path) -> None:
    local = Local(tmp_path, declare(2, 2, 1024, gpus=1))
    try:
        job = local.job("sh", "-c", "echo $TIDE_NODES $TIDE_CPUS $CUDA_VISIBLE_DEVICES", gpus=1000)
        key = (task_key(job.id), 1)
        local.engine.deliver([Launch(*key, job, (("node1", 1), ("node2", 1)))], 0)
        local.end_of(key)
        assert local.output(job) == "node1,node2 2 0,1\n"
    finally:
        local.close()


def test_a_notice_is_run_once_and_told(either: Local, tmp_path: Path) -> None:
    said = tmp_path / "said"
    job = either.job("true", notify=f"echo $TIDE_JOB_ID $TIDE_JOB_NAME $TIDE_JOB_STATE $FROM >> {said}")
    for _ in range(2):
        either.engine.deliver([Notify(job, Outcome.FAILED, (("FROM", "here"),))], 0)
    either.wait_for(lambda: either.of(Notified))
    assert either.wait_for_text(said) == f"{job.id} test failed here\n"
    either.engine.deliver([Notify(job, Outcome.FAILED)], 0)
    either.wait_for(lambda: len(either.of(Notified)) >= 2)
    assert said.read_text().count("\n") == 1


def test_many_notices_all_run(local: Local, tmp_path: Path) -> None:
    said = tmp_path / "said"
    jobs = [local.job("true", notify=f"echo $TIDE_JOB_ID >> {said}") for _ in range(40)]
    local.engine.deliver([Notify(job, Outcome.COMPLETED) for job in jobs], 0)
    local.wait_for(lambda: len(local.of(Notified)) == len(jobs))
    local.wait_for(lambda: sorted(map(int, said.read_text().split())) == [job.id for job in jobs])


def test_a_file_that_nobody_reads_holds_up_only_its_own_job(local: Local, tmp_path: Path) -> None:
    """Opening a pipe waits for its other end; the launcher must not wait with it."""
    os.mkfifo(tmp_path / "pipe")
    waiting = local.launch(local.job("echo", "hi", stdout=str(tmp_path / "pipe")))
    assert local.run("true").outcome is Outcome.COMPLETED
    local.halt(waiting)
    assert local.end_of(waiting).outcome is Outcome.CANCELLED


def test_a_burst_ends_completely(local: Local, tmp_path: Path) -> None:
    """More at once than any buffer on the way holds."""
    count = 700
    job = local.job("sh", "-c", f"echo $TIDE_JOB_ID >> {tmp_path}/ran")
    jobs = [Job(job.id + at, 0, 0, "main", job.spec) for at in range(count)]
    type(local).ids = iter(range(job.id + count, 1 << 30))  # type: ignore[assignment]  # a counter either way
    keys = [local.launch(job) for job in jobs]
    local.wait_for(lambda: len(local.of(Ended)) >= count)
    assert {end.outcome for end in local.of(Ended)} == {Outcome.COMPLETED}
    assert sorted(map(int, (tmp_path / "ran").read_text().split())) == [key[0] >> 20 for key in keys]
    assert local.of(LaunchRefused) == []
    assert len(local.of(Launched)) <= count


def test_the_keeper_stays_small(local: Local) -> None:
    """It lives as long as the longest job, on the smallest machine."""
    keys = [local.launch(local.job("sleep", "1000", cpus=1)) for _ in range(100)]
    for key in keys:
        local.started(key)
    proc = Path(f"/proc/{local.keeper}")
    assert "numpy" not in (proc / "maps").read_text()
    resident = [line.split()[1] for line in (proc / "status").read_text().splitlines() if line.startswith("VmRSS")]
    assert int(resident[0]) < 15 << 10
    for key in keys:
        local.halt(key)
    local.wait_for(lambda: not local.look())
