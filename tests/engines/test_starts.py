"""Starts, in the process of the test: moments that no burst hits every time."""

import os
import signal
from pathlib import Path

from tests.engines.kit import launcher
from tidegate.engines.local.poll import Poll
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
