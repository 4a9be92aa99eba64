"""The engine port against the hardest engine: real jobs through a real Slurm, by the ordinary loop.

Slow: it brings a cluster of two nodes up, on this machine's loopback, and takes it down again.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import NO_SLURM, ROOT, SHARED
from tests.slurm.commands import ask
from tests.slurm.engine import node_state
from tests.slurm.site import Site
from tidegate.model import engine as en
from tidegate.model.base import job_of
from tidegate.model.events import AttemptLost, JobLaunched
from tidegate.model.jobs import Outcome
from tidegate.model.nodes import NodeState

SCRIPTS = SHARED / "slurm"
PARTITION = "debug"
UP_S_MAX = 300
EXTRA = "MessageTimeout=2"
"""Seconds a command waits for a controller that is away; the default is 10."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two nodes of four cpus. Without accounting, which would listen on every address of the machine."""
    if not (SCRIPTS / "up.sh").exists():
        pytest.skip(f"{NO_SLURM}{os.path.relpath(SCRIPTS, ROOT)} is missing")
    if os.geteuid():
        pytest.skip(f"{NO_SLURM}its daemons need root")
    folder = tmp_path_factory.mktemp("slurm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        try:
            script("up.sh", folder, "2")
            yield folder
        finally:
            script("down.sh", folder)


def script(name: str, folder: Path, *arguments: str) -> None:
    """Its output goes to a file: daemons would keep a pipe open."""
    log = folder.with_suffix(f".{name}.log")
    with log.open("wb") as out:
        command = ["bash", str(SCRIPTS / name), str(folder), *arguments]
        environment = {**os.environ, "DBD": "0", "REST": "0", "GPUS": "0", "EXTRA": EXTRA}
        done = subprocess.run(command, stdout=out, stderr=out, env=environment, timeout=UP_S_MAX, check=False)
    assert done.returncode == 0, log.read_text()


@pytest.fixture
def site(cluster: Path, tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path, PARTITION)
    yield site
    for seen in site.wire.engine.jobs.values():
        ask("scancel", seen.id)
    site.die()


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_one_job(site: Site) -> None:
    """Its code, its output, its environment, and what it used."""
    spin = "import os, time\nwhile time.process_time() < 0.3: pass\n"
    show = "print(os.environ['TIDE_JOB_ID'], os.environ['TIDE_ATTEMPT'], os.environ['TIDE_NODES'])"
    task = site.submit("python3", "-c", spin + show)
    end = site.end_of(task)
    assert (end.outcome, end.code, end.signal, end.attempt) == (Outcome.COMPLETED, 0, 0, 1)
    (started,) = site.started(task)
    assert text(site.folder / f"{job_of(task)}.out") == f"{job_of(task)} 1 {started.nodes[0][0]}\n"
    assert 300 <= end.used.cpu_ms < 5000
    assert end.used.peak_kib > 1000


def test_nodes_come_from_slurm(site: Site) -> None:
    site.until(lambda: len(site.loop.world.nodes) == 2)
    nodes = site.loop.world.nodes
    assert sorted(nodes) == ["n1", "n2"]
    assert dict(nodes["n1"].capacity) == {"cpus": 4000, "memory": 4000}


def test_a_gang_runs_where_the_kernel_put_it(site: Site) -> None:
    task = site.submit("srun", "-l", "sh", "-c", "echo $SLURMD_NODENAME", nodes=2)
    end = site.end_of(task)
    (started,) = site.started(task)
    assert (end.outcome, end.code) == (Outcome.COMPLETED, 0)
    assert started.nodes == (("n1", 1), ("n2", 1))
    assert sorted(text(site.folder / f"{job_of(task)}.out").splitlines()) == ["0: n1", "1: n2"]


def test_the_kernel_chooses_the_node(site: Site) -> None:
    """Slurm would take the first; the first is full in the kernel's books."""
    tasks = [site.submit("sh", "-c", "echo $SLURMD_NODENAME") for _ in range(6)]
    for task in tasks:
        site.end_of(task)
        (started,) = site.started(task)
        assert text(site.folder / f"{job_of(task)}.out").strip() == started.nodes[0][0]


@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("nothing-like-it", 127)])
def test_a_failing_job(site: Site, command: str, code: int) -> None:
    end = site.end_of(site.submit("sh", "-c", command))
    assert (end.outcome, end.code) == (Outcome.FAILED, code)


def test_a_job_that_dies_of_a_signal(site: Site) -> None:
    end = site.end_of(site.submit("sh", "-c", "kill -9 $$"))
    assert (end.outcome, end.code, end.signal) == (Outcome.FAILED, 0, 9)


def test_a_cancel_ends_what_runs(site: Site) -> None:
    task = site.submit("sh", "-c", f"echo begun > {site.folder}/begun; exec sleep 1000")
    site.until(lambda: site.runs(task) and (site.folder / "begun").exists())
    site.cancel(job_of(task))
    assert site.end_of(task).outcome is Outcome.CANCELLED


def test_delivered_twice_starts_once(site: Site) -> None:
    """By an engine that knows, by one that has forgotten all, and even past Slurm itself."""
    count = site.folder / "count"
    task = site.submit("sh", "-c", f"echo started >> {count}; sleep 1")
    site.until(lambda: bool(site.wire.sent))
    launch = site.wire.sent[0]
    assert isinstance(launch, en.Launch)
    engine = site.wire.engine
    engine.deliver([launch, launch], site.clock.now())
    site.until(lambda: not engine.later)
    assert engine.submitted == 1
    site.die()
    site.rise()
    site.wire.engine.deliver([launch], site.clock.now())
    site.until(lambda: not site.wire.engine.later)
    assert site.wire.engine.submitted == 0
    unasked = ask("sbatch", *engine._options(launch), env=engine._environment(launch))  # its answer was lost, say
    assert site.end_of(task).outcome is Outcome.COMPLETED
    site.until(lambda: ask("squeue", "-h", "-j", unasked, "-t", "all", "-o", "%T") in {"FAILED", "COMPLETED"})
    assert text(count) == "started\n"


def test_a_restart_while_a_job_runs(site: Site) -> None:
    go, count = site.folder / "go", site.folder / "count"
    wait = f"echo started >> {count}; until [ -e {go} ]; do sleep 0.05; done; exit 7"
    task = site.submit("sh", "-c", wait)
    site.until(lambda: site.runs(task) and count.exists())
    site.die()
    site.rise()
    site.until(lambda: any(isinstance(report, en.Inventory) for report in site.wire.heard))
    assert site.runs(task)
    go.touch()
    assert (site.end_of(task).code, site.end_of(task).attempt) == (7, 1)
    assert text(count) == "started\n"


def test_an_end_that_slurm_forgot_is_not_lost(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job ends while nobody listens, for longer than Slurm remembers: its record is still there."""
    task = site.submit("sh", "-c", "sleep 0.5; exit 4")
    site.until(lambda: site.runs(task))
    site.die()
    wait_for(site.records / f"{task}.1.exit", site)
    site.rise()
    monkeypatch.setattr(site.wire.engine, "_ask_jobs", dict)
    end = site.end_of(task)
    assert (end.outcome, end.code) == (Outcome.FAILED, 4)
    assert not [event for event in site.events() if isinstance(event, AttemptLost)]


def wait_for(path: Path, site: Site) -> None:
    for _ in range(600):
        if path.exists():
            return
        site.clock.arrived.wait(0.05)
    raise AssertionError(f"{path.name} did not come")


def test_a_hand_over_that_waits_in_slurm(site: Site) -> None:
    """Somebody else has the nodes: the attempt is Slurm's, and has not begun; the kernel does not think it has."""
    site.until(lambda: len(site.loop.world.nodes) == 2)
    other = ask("sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=exec sleep 1000")
    site.until(lambda: ask("squeue", "-h", "-j", other, "-o", "%T") == "RUNNING")
    task = site.submit("true")
    heard = len(site.wire.heard)
    site.until(lambda: sum(isinstance(report, en.Inventory) for report in site.wire.heard[heard:]) >= 2)
    assert task in site.loop.world.launching
    assert site.wire.engine.submitted == 1
    ask("scancel", other)
    assert site.end_of(task).outcome is Outcome.COMPLETED
    assert len([event for event in site.events() if isinstance(event, JobLaunched) and event.task == task]) == 1


def test_never_two_attempts_at_a_time(site: Site) -> None:
    """The kernel is told that the node is gone, and the attempt runs on there."""
    told = site.folder / "told"
    first = "if [ $TIDE_ATTEMPT = 1 ]; then sleep 99 & wait; fi"
    wait = f"trap 'echo end >> {told}; exit 1' TERM; echo begin >> {told}; {first}"
    task = site.submit("sh", "-c", wait)
    site.until(lambda: site.runs(task) and told.exists())
    site.wire.engine.queue.append(en.NodeLost("n1", "no answer"))
    assert site.end_of(task).attempt == 2
    assert text(told).split() == ["begin", "end", "begin"]
    assert site.started(task)[1].nodes == (("n2", 1),)


def test_slurm_is_away_for_a_while(cluster: Path, site: Site) -> None:
    """Nobody answers: nothing is lost, nothing refused, and what was to be done is done later, once."""
    site.until(lambda: len(site.loop.world.nodes) == 2)
    running = site.submit("sleep", "1")
    site.until(lambda: site.runs(running))
    ask("scontrol", "shutdown", "slurmctld")
    try:
        task = site.submit("true")
        site.until(lambda: bool(site.wire.engine.later))
        heard, polls = len(site.wire.heard), site.wire.engine.polls
        site.until(lambda: site.wire.engine.polls >= polls + 2)
        assert site.wire.heard[heard:] == []
    finally:
        script("up.sh", cluster, "2")
    assert [site.end_of(one).outcome for one in (running, task)] == [Outcome.COMPLETED] * 2
    assert site.wire.engine.submitted == 2


def test_a_drain_in_slurm_is_seen(site: Site) -> None:
    site.until(lambda: len(site.loop.world.nodes) == 2)
    try:
        ask("scontrol", "update", "nodename=n1", "state=drain", "reason=broken fan")
        site.until(lambda: site.loop.world.nodes["n1"].state is not NodeState.UP)
        task = site.submit("true")
        site.end_of(task)
        assert site.started(task)[0].nodes[0][0] == "n2"
    finally:
        ask("scontrol", "update", "nodename=n1", "state=resume")


@pytest.mark.parametrize(
    ("slurm", "ours"),
    [("idle", NodeState.UP), ("mixed-", NodeState.UP), ("allocated+", NodeState.UP), ("completing", NodeState.UP),
     ("drained", NodeState.DRAINING), ("draining", NodeState.DRAINING), ("idle*", NodeState.DOWN),
     ("down*", NodeState.DOWN), ("powered_down", NodeState.DOWN)],
)  # fmt: skip
def test_node_states(slurm: str, ours: NodeState) -> None:
    assert node_state(slurm) is ours
