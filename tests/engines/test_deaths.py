"""Servers, keepers and launchers are killed. No job is lost silently, none is run twice, nothing is left over."""

import os
import random
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engines.kit import PYTHON, Key, Local, carrying, kill, wait_until_gone
from tests.kit.live import until
from tidegate.engines.local import link
from tidegate.engines.local.cgroups import processes_in
from tidegate.engines.local.engine import LocalEngine
from tidegate.engines.local.keeper import LOCKED
from tidegate.engines.local.nodes import declare
from tidegate.engines.local.trees import everyone
from tidegate.model.base import task_key
from tidegate.model.engine import Ended, Inventory, Launched, LaunchRefused
from tidegate.model.jobs import Job, Outcome

Servers = Callable[..., Local]


def drop(local: Local) -> None:
    """As a killed server does: without a word."""
    local.engine.link.close(stop=False)


def launcher_of(local: Local) -> int:
    processes = everyone()
    ours = [pid for pid, it in processes.items() if it.parent == local.keeper and b"tide" in name_of(pid)]
    assert len(ours) == 1
    return ours[0]


def name_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


# -- the server -------------------------------------------------------------------------------------------


def test_jobs_outlive_the_server(servers: Servers, tmp_path: Path) -> None:
    first = servers()
    key = first.launch(first.job("sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; exit 9"))
    first.started(key)
    keeper = first.keeper
    drop(first)
    second = servers()
    assert second.keeper == keeper
    assert second.seen[-1].running == (key,)  # type: ignore[union-attr]  # an inventory comes last
    (tmp_path / "go").touch()
    assert second.end_of(key).code == 9


def test_ends_without_a_server_are_told_to_the_next(servers: Servers, tmp_path: Path) -> None:
    first = servers()
    keys = [first.launch(first.job("sh", "-c", f"exit {code}")) for code in range(5)]
    drop(first)
    wait_for_record(tmp_path / "keeper" / "record.1", len(keys))
    second = servers()  # hears of all in one
    assert [second.end_of(key).code for key in keys] == list(range(5))
    drop(second)  # before it has flushed what it heard
    third = servers()
    assert [third.end_of(key).code for key in keys] == list(range(5))
    third.hear()
    assert third.look() == set()
    drop(third)
    assert servers().of(Ended) == []


def test_what_the_old_server_said_comes_before_what_the_new_one_says(servers: Servers) -> None:
    first = servers()
    jobs = [first.job("true") for _ in range(200)]
    keys = [first.launch(job) for job in jobs]
    drop(first)
    second = servers()
    for job in jobs:
        second.launch(job)
    for key in keys:
        assert second.end_of(key).outcome is Outcome.COMPLETED
    assert second.of(LaunchRefused) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_server_killed_in_a_burst(servers: Servers, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    ran, announced, home = tmp_path / "ran", [0], tmp_path
    for _ in range(4):
        command = [sys.executable, "-m", "tests.engines.host", str(home), str(ran), str(announced[-1] + 1), "1000"]
        host = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
        assert host.stdout is not None
        announced += [int(host.stdout.readline()) for _ in range(chance.randint(1, 60))]
        host.kill()
        announced += [int(line) for line in host.stdout.read().split()]
        host.wait()
        host.stdout.close()
    last = servers()
    last.wait_for(lambda: not last.look())
    ended = {(end.task >> 20, end.outcome) for end in last.of(Ended)}
    times = Counter(ran.read_text().split())
    assert set(times.values()) == {1}, f"seed {seed}"
    assert {int(line.split(".")[0]) for line in times} <= set(announced)
    # All but the one that a server had announced and not sent when it was killed.
    assert len(set(announced[1:]) - {int(line.split(".")[0]) for line in times}) <= 4
    assert ended <= {(number, Outcome.COMPLETED) for number in announced}


def test_spawning_does_not_depend_on_the_size_of_the_server(local: Local) -> None:
    """The server makes no process of its own for a job: its children are what they were."""
    before = {pid for pid, it in everyone().items() if it.parent == os.getpid()}
    ballast = bytearray(64 << 20)
    local.run("true")
    assert {pid for pid, it in everyone().items() if it.parent == os.getpid()} == before
    assert ballast


# -- the keeper -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cgroups", [True, False])
def test_a_killed_keeper_loses_its_jobs_and_says_so(servers: Servers, tmp_path: Path, cgroups: bool) -> None:
    local = servers(cgroups=cgroups)
    mark = f"mark-of-{tmp_path.name}-{os.getpid()}"
    script = f"setsid {PYTHON} -c 'import time; time.sleep(1000)' {mark} & echo . >> {tmp_path}/ran; sleep 1000"
    job = local.job("sh", "-c", script, mark)
    key = local.launch(job)
    local.wait_for_text(tmp_path / "ran")
    local.wait_for(lambda: len(carrying(mark)) == 2)
    kill(local.keeper)
    end = local.end_of(key)
    assert (end.outcome, end.why.split(" while")[0]) == (Outcome.LOST, "the keeper was ended from outside")
    assert carrying(mark) == []
    local.launch(job)
    local.wait_for(lambda: len(local.ends_of(key)) >= 2)
    assert {end.outcome for end in local.ends_of(key)} == {Outcome.LOST}
    assert (tmp_path / "ran").read_text() == ".\n"
    assert local.look() == set()
    assert "1 attempts of an earlier keeper are lost" in local.log()


def test_ends_outlive_the_keeper(servers: Servers, tmp_path: Path) -> None:
    local = servers()
    key = local.launch(local.job("sh", "-c", f"trap 'exit 3' TERM; echo > {tmp_path}/on; sleep 1000 & wait"))
    local.wait_for_text(tmp_path / "on")
    keeper = local.keeper
    drop(local)
    os.kill(int((tmp_path / "keeper" / "record.1").read_text().split()[3]), 15)
    wait_for_record(tmp_path / "keeper" / "record.1")
    kill(keeper)
    again = servers()
    assert (again.end_of(key).outcome, again.end_of(key).code) == (Outcome.FAILED, 3)


def wait_for_record(path: Path, ends: int = 1) -> None:
    until(lambda: path.read_text().count('"is":"ended"') == ends)


@pytest.mark.parametrize("seed", range(3))
def test_a_keeper_killed_in_a_burst(servers: Servers, tmp_path: Path, seed: int) -> None:
    """Every attempt has one end; it ran once if it is completed, and at most once if it is lost."""
    chance = random.Random(seed)
    local = servers()
    ran = tmp_path / "ran"
    spec = local.job("sh", "-c", f"echo $TIDE_JOB_ID >> {ran}").spec
    jobs = [Job(number, 0, 0, "main", spec) for number in range(1, 151)]
    kill_at = {chance.randrange(150) for _ in range(3)}
    waiting: dict[Key, Job] = {(task_key(job.id), 1): job for job in jobs}
    for at, (key, job) in enumerate(waiting.items()):
        if at in kill_at:
            kill(local.keeper)
            wait_for_another(local)
        local.launch(job)
        assert key[1] == 1
        local.hear(0)

    def all_ended() -> bool:
        """What was sent to a keeper that died with it is derived again, as the loop does after an inventory."""
        for key, job in waiting.items():
            if not local.ends_of(key) and local.engine.link.up:
                local.launch(job)
        local.hear()
        return all(local.ends_of(key) for key in waiting)

    local.wait_for(all_ended)
    outcomes = {key: {end.outcome for end in local.ends_of(key)} for key in waiting}
    assert {len(told) for told in outcomes.values()} == {1}, f"seed {seed}"
    times = Counter(map(int, ran.read_text().split()))
    for (task, _), told in outcomes.items():
        if told == {Outcome.COMPLETED}:
            assert times[task >> 20] == 1, f"seed {seed}"
        else:
            assert told == {Outcome.LOST}
            assert times[task >> 20] <= 1, f"seed {seed}"


def wait_for_another(local: Local) -> None:
    seen = len(local.of(Inventory))
    local.wait_for(lambda: len(local.of(Inventory)) > seen)


def test_a_keeper_killed_again_and_again_leaves_no_cgroup(servers: Servers, tmp_path: Path) -> None:
    local = servers()
    for _ in range(3):
        key = local.launch(local.job("sleep", "1000", memory=64))
        local.started(key)
        kill(local.keeper)
        assert local.end_of(key).outcome is Outcome.LOST
    local.hear()
    for base in (tmp_path / "keeper" / "cgroups").read_text().split():
        assert [place for place in Path(base).iterdir() if place.is_dir() and processes_in(str(place))] == []


def test_after_a_reboot_nobody_is_ended_by_number(servers: Servers, tmp_path: Path) -> None:
    """A claim of before names a process that is another one now."""
    local = servers()
    local.run("true")
    local.hear()
    keeper = local.keeper
    local.engine.close(stop=True)
    wait_until_gone(keeper)
    innocent = subprocess.Popen(["sleep", "1000"])
    (tmp_path / "keeper" / "record.7").write_text(f"c {task_key(3)} 1 {innocent.pid} {1 << 50}\n")
    (tmp_path / "keeper" / "boot").write_text("another boot")
    try:
        end = servers().end_of((task_key(3), 1))
        assert (end.outcome, end.why) == (Outcome.LOST, "the machine was started anew while this ran")
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_a_process_that_is_younger_than_its_claim_is_not_ended(servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "keeper").mkdir()
    innocent = subprocess.Popen(["sleep", "1000"])
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    (tmp_path / "keeper" / "boot").write_text(boot)
    (tmp_path / "keeper" / "record.1").write_text(f"c {task_key(3)} 1 {innocent.pid} 5\n")
    try:
        assert servers().end_of((task_key(3), 1)).outcome is Outcome.LOST
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_torn_lines_of_a_record_are_skipped(servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "keeper").mkdir()
    whole = (
        '{"is":"ended","task":%d,"attempt":1,"outcome":"failed","code":4,"signal":0,"used":[1,2,3,4],"why":"a \\"b\\""}'
    )
    text = f"c {task_key(1)} 1 99 5\nc {task_key(2)} 1 98\n{whole % task_key(1)}\nnonsense\n{whole % task_key(9)}"
    (tmp_path / "keeper" / "record.4").write_text(text[:-20])
    local = servers()
    end = local.end_of((task_key(1), 1))
    assert (end.code, end.used.peak_kib, end.why) == (4, 2, 'a "b"')
    assert {end.task for end in local.of(Ended)} == {task_key(1)}
    local.hear()
    local.look()
    assert [path.name for path in (tmp_path / "keeper").glob("record.*")] == ["record.5"]


@pytest.mark.parametrize("removed", [["sock"], ["lock"], ["record.1"], ["sock", "lock", "record.1", "boot"]])
def test_a_keeper_whose_files_are_tidied_away_is_found_and_followed(
    servers: Servers, tmp_path: Path, removed: list[str]
) -> None:
    """By the next server it is found; by the next keeper its jobs are, and its ends are told."""
    place, mark = tmp_path / "keeper", f"mark-of-{tmp_path.name}-{os.getpid()}"
    first = servers()
    running = first.launch(first.job("sh", "-c", "sleep 1000; true", mark))
    first.started(running)
    unheard = first.launch(first.job("sh", "-c", "exit 9"))
    wait_for_record(place / "record.1")
    keeper = first.keeper
    for name in removed:
        (place / name).unlink()
    kept = {"record.1": "record.2", "boot": "lock"}
    until(lambda: all((place / kept.get(name, name)).exists() for name in removed))
    drop(first)
    second = servers()
    assert (second.keeper, second.of(Inventory)[-1].running) == (keeper, (running,))
    drop(second)  # before it has flushed what it heard
    kill(keeper)
    third = servers()
    assert (third.end_of(unheard).code, third.end_of(running).outcome) == (9, Outcome.LOST)
    assert carrying(mark) == []
    assert third.run("true").outcome is Outcome.COMPLETED


def test_one_keeper_a_home(servers: Servers, tmp_path: Path) -> None:
    """A second one finds the lock taken and gives way."""
    local = servers()
    reading, writing = os.pipe()
    command = [sys.executable, "-I", "-S", "-E", "-c", link.BOOT, link.ROOT, str(tmp_path), "launcher"]
    pid = os.posix_spawn(command[0], command, {}, file_actions=[(os.POSIX_SPAWN_DUP2, writing, 3)])
    os.close(writing)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == LOCKED
    assert os.read(reading, 10) == b""
    os.close(reading)
    assert local.run("true").outcome is Outcome.COMPLETED


def test_a_keeper_stays_while_jobs_run_and_goes_when_told(servers: Servers) -> None:
    local = servers()
    key = local.launch(local.job("sleep", "1000"))
    local.started(key)
    keeper = local.keeper
    local.engine.close(stop=True)
    again = servers()
    assert again.keeper == keeper
    assert again.look() == {key}


def test_a_keeper_that_is_only_starting_goes_when_told(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path, declare(1, 1, 64).nodes)
    assert engine.reports(0) == []
    engine.close(stop=True)
    assert not (tmp_path / "keeper" / "sock").exists(), "it was waited for"
    wait_until_gone(int((tmp_path / "keeper" / "lock").read_text()))


def test_asked_by_signal_it_stays_while_jobs_run(servers: Servers) -> None:
    local = servers()
    key = local.launch(local.job("sleep", "1000"))
    local.started(key)
    os.kill(local.keeper, 15)
    assert local.look() == {key}
    local.halt(key)
    local.end_of(key)
    os.kill(local.keeper, 15)
    wait_until_gone(local.keeper)
    local.wait_for(lambda: len(local.of(Inventory)) == 3)
    assert local.run("true").outcome is Outcome.COMPLETED


def test_a_keeper_of_another_release_is_left_alone_with_its_jobs(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = servers()
    key = local.launch(local.job("sleep", "1000"))
    local.started(key)
    keeper = local.keeper
    drop(local)
    with monkeypatch.context() as patch:
        patch.setattr(link, "PROTOCOL", 2)
        newer = LocalEngine(local.home, local.machine.nodes)
        while not newer.notes():
            select.select([newer.fileno()], [], [], 0.01)
            assert newer.reports(0) == []
        assert f"the keeper (process {keeper}) is of another release and keeps 1 jobs" in newer.notes()[0]
        newer.close()
    assert servers().look() == {key}


# -- the launcher -----------------------------------------------------------------------------------------


def test_jobs_outlive_their_launcher(local: Local, tmp_path: Path) -> None:
    key = local.launch(local.job("sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; exit 6"))
    local.started(key)
    kill(launcher_of(local))
    assert local.run("true").outcome is Outcome.COMPLETED
    (tmp_path / "go").touch()
    assert local.end_of(key).code == 6


@pytest.mark.parametrize("seed", range(3))
def test_a_launcher_killed_in_a_burst(local: Local, tmp_path: Path, seed: int) -> None:
    """What it had not begun is refused and did not run; the rest ran once."""
    chance = random.Random(seed)
    local.run("true")
    launcher = launcher_of(local)
    jobs = [local.job("sh", "-c", f"echo $TIDE_JOB_ID >> {tmp_path}/ran") for _ in range(100)]
    kill_at = chance.randrange(20, 80)
    keys = []
    for at, job in enumerate(jobs):
        keys.append(local.launch(job))
        if at == kill_at:
            os.kill(launcher, 9)

    def answered() -> bool:
        refused = {(report.task, report.attempt) for report in local.of(LaunchRefused)}
        return all(local.ends_of(key) or key in refused for key in keys)

    local.wait_for(answered)
    (tmp_path / "ran").touch()  # killed early enough, none has run
    times = Counter(map(int, (tmp_path / "ran").read_text().split()))
    for key in keys:
        assert times[key[0] >> 20] == (1 if local.ends_of(key) else 0), f"seed {seed}"
    assert all("launcher was ended from outside" in report.why for report in local.of(LaunchRefused))
    assert len(local.of(Launched)) <= len(keys)
    assert local.run("true").outcome is Outcome.COMPLETED
