"""The compiled kernel decides what the sources do. Both replay the same workload, each in a process of its own."""

import filecmp
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import hatch_build

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"
INSTALLED = Path(sysconfig.get_path("platlib"))
JOBS = 1500
UNCOMPILED = "compiled kernel not tested: "

# One of each way to place: a counted pool, a pool of nodes, and a pool of nodes with every promise kept.
MACHINES = {
    "counted": ("--capacity", "128", "--policy", "easy", "--policy", "tide", "--policy", "fcfs"),
    "nodes": ("--nodes", "16", "--cpus-per-node", "8", "--policy", "easy", "--policy", "conservative"),
    "per event": ("--capacity", "128", "--cadence", "per-event", "--policy", "easy", "--policy", "conservative"),
}


def run(place: Path, *arguments: str) -> str:
    """In a process that finds tidegate in `place` first."""
    command = "import sys; from tidegate.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", command, *arguments],
        env=os.environ | {"PYTHONPATH": str(place)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def stale() -> list[str]:
    """The sources that the installed copy does not have as they are now."""
    names = [str(path.relative_to(SOURCES)) for path in sorted(SOURCES.rglob("*.py"))]
    _, different, absent = filecmp.cmpfiles(SOURCES, INSTALLED, names, shallow=False)
    return different + absent


@pytest.fixture(scope="module")
def compiled() -> None:
    """The installed copy, if it is compiled. That it is not where it could be is a failure, not a skip."""
    if changed := stale():
        pytest.skip(f"{UNCOMPILED}the installed copy is older than {changed[0]}; run make setup")
    if "compiled kernel" in run(INSTALLED, "--version"):
        return
    why = hatch_build.why_pure()
    assert why, "a C compiler is here and the installed kernel is pure: compiling failed, see .venv/wheel.log"
    pytest.skip(f"{UNCOMPILED}{why}")


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workload") / "burst.swf"
    run(
        SOURCES, "generate", "--jobs", str(JOBS), "--procs", "128", "--load", "0.9", "--bursts", "3", "--out", str(path)
    )
    return path


def test_the_sources_are_not_compiled() -> None:
    assert run(SOURCES, "--version").strip().endswith("(pure Python kernel)")


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("machine", MACHINES)
def test_the_compiled_kernel_decides_the_same(machine: str, workload: Path) -> None:
    arguments = ("replay", str(workload), *MACHINES[machine], "--json")
    pure, compiled = (json.loads(run(place, *arguments)) for place in (SOURCES, INSTALLED))
    measured_by_clock = {"wall_s", "jobs_per_s", "peak_rss_mb"}
    for expected, found in zip(pure, compiled, strict=True):
        assert expected["jobs"] == JOBS
        names = expected.keys() - measured_by_clock
        assert {name: found[name] for name in names} == {name: expected[name] for name in names}
