"""Limits hold, and nothing of a job outlives it: with cgroups, and without any."""

import os
import time
from pathlib import Path

import pytest

from tests.engines.kit import PYTHON, Key, Local, carrying, local_engines
from tidegate.model.jobs import Outcome

NO_CGROUP = "no usable memory cgroup: "

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for hide in (False, True):
    if os.fork() == 0:
        if hide:
            os.setsid()
            if os.fork():
                os._exit(0)
        break
open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
signal.pause()
time.sleep(1000)
"""
"""Three processes that ignore being asked: the job's first, a child, and an orphan in a session of its own."""

HIDDEN = """
import os, sys, time
if os.fork():
    time.sleep(0.2)
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(1000)", sys.argv[2]], {})
"""
"""Leaves a process without a parent, a session or an environment that would tell whose it is."""

SPINNING = """
import os, time
child = os.fork()
end = time.monotonic() + 1.5
while time.monotonic() < end:
    pass
if child:
    os.wait()
"""


@pytest.fixture
def mark(tmp_path: Path) -> str:
    """What the processes of a test carry in their command lines."""
    return f"mark-of-{tmp_path.name}-{os.getpid()}"


def pids_in(path: Path, local: Local, count: int) -> list[int]:
    local.wait_for(lambda: path.exists() and path.read_text().count("\n") == count)
    return [int(pid) for pid in path.read_text().split()]


def test_a_time_limit_leaves_no_process(holding: Local, tmp_path: Path, mark: str) -> None:
    job = holding.job(PYTHON, "-c", STUBBORN, f"{tmp_path}/pids", mark, limit_ms=3000, grace_ms=200)
    key = holding.launch(job)
    pids_in(tmp_path / "pids", holding, 3)
    assert len(carrying(mark)) == 3
    end = holding.end_of(key)
    assert (end.outcome, end.signal, end.why) == (Outcome.TIMED_OUT, 9, "it ran into its time limit")
    assert carrying(mark) == []


def test_one_that_listens_is_asked_first(holding: Local, tmp_path: Path) -> None:
    script = f"trap 'echo bye > {tmp_path}/said; exit 7' TERM; while :; do sleep 0.05; done"
    end = holding.run("sh", "-c", script, limit_ms=500, grace_ms=60_000)
    assert (end.outcome, end.code) == (Outcome.TIMED_OUT, 7)
    assert (tmp_path / "said").read_text() == "bye\n"


def test_halting_asks_and_then_makes(holding: Local, tmp_path: Path, mark: str) -> None:
    key = holding.launch(holding.job(PYTHON, "-c", STUBBORN, f"{tmp_path}/pids", mark))
    pids_in(tmp_path / "pids", holding, 3)
    holding.halt(key, grace_ms=100)
    assert holding.end_of(key).outcome is Outcome.CANCELLED
    assert carrying(mark) == []


def test_a_second_halt_may_hurry_and_not_delay(holding: Local, tmp_path: Path, mark: str) -> None:
    key = holding.launch(holding.job(PYTHON, "-c", STUBBORN, f"{tmp_path}/pids", mark))
    pids_in(tmp_path / "pids", holding, 3)
    holding.halt(key, grace_ms=600_000)
    holding.halt(key, grace_ms=900_000, outcome=Outcome.LOST)
    assert holding.look() == {key}
    holding.halt(key, grace_ms=0)
    assert holding.end_of(key).outcome is Outcome.CANCELLED


def test_a_stopped_job_can_be_asked(holding: Local, tmp_path: Path) -> None:
    job = holding.job("sh", "-c", f"trap 'exit 5' TERM; echo $$ > {tmp_path}/pid; kill -STOP $$; sleep 1000 & wait")
    key = holding.launch(job)
    holding.wait_for_text(tmp_path / "pid")
    holding.halt(key, grace_ms=60_000)
    assert holding.end_of(key).code == 5


def test_what_a_job_leaves_behind_is_ended_before_its_end_is_told(holding: Local, tmp_path: Path, mark: str) -> None:
    script = f"sleep 1000 & setsid {PYTHON} -c 'import time; time.sleep(1000)' {mark} & echo > {tmp_path}/there; exit 4"
    end = holding.run("sh", "-c", script)
    assert (end.outcome, end.code) == (Outcome.FAILED, 4)
    assert carrying(mark) == []


def test_nobody_hides(holding: Local, tmp_path: Path, mark: str) -> None:
    assert holding.run(PYTHON, "-c", HIDDEN, f"{tmp_path}/pids", mark).outcome is Outcome.COMPLETED
    pids_in(tmp_path / "pids", holding, 1)
    assert carrying(mark) == []


ESCAPING = f"""
for procs in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs; do echo $$ > $procs; done 2> /dev/null
setsid {PYTHON} -c 'import time; time.sleep(1000)' $0 &
(setsid env -i {PYTHON} -c 'import time; time.sleep(1000)' $0 &)
"""
"""Out of its cgroups, where it may: as containers and `systemd-run` are. Two outlive it, one of them without a name."""


def test_who_got_out_of_its_cgroup_does_not_outlive_its_job(holding: Local, tmp_path: Path, mark: str) -> None:
    neighbour = holding.launch(holding.job("sh", "-c", ESCAPING + "wait", f"neighbour-{mark}"))
    assert holding.run("sh", "-c", ESCAPING, f"escaped-{mark}").outcome is Outcome.COMPLETED
    holding.wait_for(lambda: len(carrying(f"escaped-{mark}")) <= 1)
    assert len(carrying(f"neighbour-{mark}")) == 3
    holding.halt(neighbour)
    holding.wait_for(lambda: not carrying(mark))


def test_a_neighbour_keeps_its_orphans(holding: Local, tmp_path: Path, mark: str) -> None:
    """Ending one job's orphans must not end another's."""
    stays = holding.launch(holding.job(PYTHON, "-c", STUBBORN, f"{tmp_path}/pids", mark))
    pids_in(tmp_path / "pids", holding, 3)
    goes = holding.run("sh", "-c", f"setsid {PYTHON} -c 'import time; time.sleep(1000)' other{mark} & exit 0")
    assert goes.outcome is Outcome.COMPLETED
    assert carrying(f"other{mark}") == []
    assert len(carrying(mark)) == 3
    holding.halt(stays)
    holding.end_of(stays)
    assert carrying(mark) == []


def test_a_job_that_multiplies_is_ended(holding: Local, tmp_path: Path, mark: str) -> None:
    """Each of its processes is replaced by two as soon as it can; bounded, should the test fail."""
    bomb = f"import os, time, sys\nfor _ in range(9): os.fork()\nopen({str(tmp_path / 'n')!r}, 'a').write('n')\n"
    key = holding.launch(holding.job(PYTHON, "-c", bomb + "while True: time.sleep(1)", mark))
    holding.wait_for(lambda: (tmp_path / "n").exists() and (tmp_path / "n").stat().st_size > 50)
    holding.halt(key)
    assert holding.end_of(key).outcome is Outcome.CANCELLED
    assert carrying(mark) == []


# -- limits, where the machine can hold them --------------------------------------------------------------


@pytest.fixture
def limited(local: Local) -> Local:
    assert local.engine.keeper is not None
    if not local.engine.keeper.limits["memory"]:
        pytest.skip(NO_CGROUP + "; ".join(local.engine.notes()))
    return local


def greedy(local: Local, mib: int) -> Key:
    code = f"x = bytearray({mib} << 20)\nfor at in range(0, len(x), 4096): x[at] = 1\n"
    return local.launch(local.job(PYTHON, "-c", code, memory=64))


def test_over_the_memory_limit_ends_that_job_and_no_other(limited: Local) -> None:
    neighbour = limited.launch(
        limited.job(PYTHON, "-c", "import time; x = b'x' * (30 << 20); time.sleep(1000)", memory=64)
    )
    limited.started(neighbour)
    end = limited.end_of(greedy(limited, 200))
    assert (end.outcome, end.signal) == (Outcome.OUT_OF_MEMORY, 9)
    assert 40 << 10 <= end.used.peak_kib <= 65 << 10
    assert limited.look() == {neighbour}


def test_a_child_over_the_limit_ends_the_whole_job(limited: Local, mark: str) -> None:
    code = "x = b'x' * (200 << 20)"
    end = limited.run("sh", "-c", f'{PYTHON} -c "{code}" {mark}; sleep 1000', memory=64)
    assert end.outcome is Outcome.OUT_OF_MEMORY
    assert carrying(mark) == []


def test_a_job_that_hides_it_is_out_of_memory_all_the_same(limited: Local) -> None:
    code = "x = b'x' * (200 << 20)"
    assert limited.run("sh", "-c", f'{PYTHON} -c "{code}"; exit 0', memory=64).outcome is Outcome.OUT_OF_MEMORY


def test_within_the_limit_nothing_happens(limited: Local) -> None:
    end = limited.end_of(greedy(limited, 30))
    assert (end.outcome, end.code) == (Outcome.COMPLETED, 0)
    assert end.used.peak_kib >= 30 << 10


def test_killed_from_outside_is_not_out_of_memory(limited: Local) -> None:
    end = limited.run("sh", "-c", "kill -KILL $$", memory=64)
    assert (end.outcome, end.signal) == (Outcome.FAILED, 9)


def test_cpus_are_held_to_what_was_given(local: Local) -> None:
    """Two that spin in a job of half a processor get half a processor between them."""
    assert local.engine.keeper is not None
    if not local.engine.keeper.limits["cpu"]:
        pytest.skip("no usable cpu cgroup: " + "; ".join(local.engine.notes()))
    before = time.monotonic()
    end = local.run(PYTHON, "-c", SPINNING, cpus=500)
    took_ms = (time.monotonic() - before) * 1000
    assert end.outcome is Outcome.COMPLETED
    assert end.used.cpu_ms <= 0.65 * took_ms + 100
    assert end.used.cpu_ms >= 100


def test_places_are_used_again_and_removed_at_the_end(tmp_path: Path) -> None:
    places: list[str] = []
    for local in local_engines(tmp_path):
        for _ in range(5):
            local.run("true", memory=64)
        places = (tmp_path / "keeper" / "cgroups").read_text().split()
        for place in places:
            assert sum(path.is_dir() for path in Path(place).iterdir()) <= 2
    assert [place for place in places if Path(place).exists()] == []


def test_without_cgroups_it_says_what_does_not_hold(tmp_path: Path) -> None:
    for local in local_engines(tmp_path, cgroups=False):
        said = " ".join(local.engine.notes())
        assert "memory limits are not held" in said
        assert "more cpus than given" in said
        assert "Delegate=yes" in said
        assert local.run("true", memory=64).outcome is Outcome.COMPLETED
