"""Starts, in the process of the test: moments that no burst hits every time."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.engines.kit import launcher
from tidegate.engines.local.cgroups import Cgroups, Place
from tidegate.engines.local.jobs import Jobs, Run
from tidegate.engines.local.poll import Poll
from tidegate.engines.local.records import Records
from tidegate.engines.local.spawn import Entries
from tidegate.engines.local.starts import LAUNCHER_GONE, Process, Starts

NOTHING = Entries([])


class Ordered(Process):
    def not_started(self, why: str, now: int) -> None:
        self.why = why


def test_a_launcher_that_dies_with_orders_is_looked_at_and_let_go_in_one_look() -> None:
    starts, ordered = Starts(Poll(), str(launcher("compiled")), ""), Ordered()
    starts.start(ordered, ("", ""), (), [""] * 11, NOTHING, NOTHING, 0)
    assert starts.launcher is not None
    pid = starts.launcher.pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    starts.reap(0)
    assert (ordered.why, starts.ordered, starts.launchers) == (LAUNCHER_GONE, {}, {})
    assert not Path(f"/proc/{pid}").exists(), "and it is reaped"


@pytest.mark.parametrize(("grace_ms", "signalled"), [(0, signal.SIGKILL), (60_000, signal.SIGTERM)])
def test_who_was_only_just_forked_is_ended(tmp_path: Path, grace_ms: int, signalled: int) -> None:
    """On a busy machine it is told of before it has run at all: its group is ours, and its cgroup is empty."""
    poll, place = Poll(), tmp_path / "place"
    place.mkdir()
    (place / "cgroup.procs").touch()
    starts, cgroups = Starts(poll, "", ""), Cgroups("none", f"{tmp_path}/cgroups", [])
    run = Run(Jobs("", poll, starts, Records(str(tmp_path)), cgroups, print), (1, 1), {"limit_ms": 0, "grace_ms": 0}, 0)
    child = subprocess.Popen(["sleep", "1000"])
    run.place, run.pid = Place(str(place), ()), child.pid
    run.ask("cancelled", grace_ms, 5)
    assert child.wait(60) == -signalled
