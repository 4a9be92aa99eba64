"""From an order to a process of ours, and from its exit to its owner: the launchers, and the one place that reaps."""

import os
from collections.abc import Callable
from typing import Any

from tidegate.engines.local import trees
from tidegate.engines.local.poll import Poll
from tidegate.engines.local.spawn import Entries, Launcher

KILL = 9
FAILED_FROM = 125
HEARD_AFTER_MS = 20
"""Replies are read when a process ends, or after this: a wake-up for each would cost a tenth of a short job."""
LAUNCHER_GONE = "the launcher was ended from outside before it started this; nothing of it ran"


Say = Callable[[str], None]
"""Takes a line, with its end, for the server."""


class Process:
    """What was ordered. `code` and `why` tell of a failure before the exec."""

    __slots__ = ("code", "order", "over", "pid", "why")

    def __init__(self) -> None:
        self.order = (0, 0)  # launcher and serial
        self.pid = 0
        self.code = 0
        self.why = ""
        self.over = False

    def started(self, now: int) -> None:
        raise NotImplementedError

    def not_started(self, why: str, now: int) -> None:
        raise NotImplementedError

    def ended(self, status: int, usage: Any, now: int) -> None:
        raise NotImplementedError

    def claimant(self) -> int:
        """The process that has claimed it, or 0: asked when the launcher died before it told."""
        return 0


class Starts:
    def __init__(self, poll: Poll, program: str, oom: str) -> None:
        self.poll = poll
        self.program = program
        self.oom = oom
        self.launcher: Launcher | None = None
        self.launchers: dict[int, Launcher] = {}  # by number, the dead ones too until nobody holds their socket
        self.number = 0
        self.ordered: dict[tuple[int, int], Process] = {}
        self.unborn = 0  # ordered, and their process not known yet
        self.by_pid: dict[int, Process] = {}
        self.early: dict[int, tuple[int, Any]] = {}  # ended before they were known
        self.hearing = False  # it is known when replies are read next
        self.over = False

    def start(
        self, process: Process, record: tuple[str, str], joins: tuple[str, ...], theirs: list[str],
        shared: Entries, own: Entries, now: int,
    ) -> None:  # fmt: skip
        """OSError or BadOrderError: nothing was started, and nothing will be told of it."""
        launcher = self.launcher or self._new_launcher()
        process.order = (self.number, launcher.start(record, joins, theirs, shared, own))
        self.ordered[process.order] = process
        self.unborn += 1
        if not self.hearing:
            self.hearing = True
            self.poll.at(now + HEARD_AFTER_MS, self.hear_all, self)

    def hand_over(self, _now: int = 0) -> None:
        """All orders of a turn go to the launcher at once."""
        launcher = self.launcher
        if launcher is not None and launcher.requests is not None and launcher.pending:
            done = launcher.flush()
            self.poll.when_writable(launcher.requests.fileno(), None if done else self.hand_over)

    def _new_launcher(self) -> Launcher:
        launcher = Launcher(self.program, self.oom)
        self.number += 1
        number = self.number
        self.launcher = self.launchers[number] = launcher
        self.poll.watch_end(launcher.replies.fileno(), lambda now: self._hear(number, now))
        return launcher

    # -- replies -----------------------------------------------------------------------------------------

    def hear_all(self, now: int) -> None:
        for number in list(self.launchers):
            self._hear(number, now)
        self.hearing = self.unborn > 0
        if self.hearing:
            self.poll.at(now + HEARD_AFTER_MS, self.hear_all, self)

    def _hear(self, number: int, now: int, at_most: int = 1 << 30) -> None:
        launcher = self.launchers.get(number)
        replies = [] if launcher is None else launcher.hear(at_most)
        if replies is None:
            self._let_go(number, now)
            return
        for reply in replies:
            kind, (serial, _, rest) = reply[0], reply[1:].partition(" ")
            process = self.ordered.get((number, int(serial)))
            if process is None:
                continue
            if kind == "+":
                self._born(process, int(rest), now)
            elif kind == "-":
                self._stillborn(process, rest, now)
            else:
                code, _, process.why = rest.partition(" ")
                process.code = int(code)

    def _born(self, process: Process, pid: int, now: int) -> None:
        if process.pid:
            return
        process.pid = pid
        self.unborn -= 1
        self.by_pid[pid] = process
        process.started(now)
        if pid in self.early:
            status, usage = self.early.pop(pid)
            self._ended(process, status, usage, now)
        if not self.unborn:
            self.early.clear()

    def _stillborn(self, process: Process, why: str, now: int) -> None:
        del self.ordered[process.order]
        self.unborn -= 1
        process.not_started(why, now)

    def _launcher_died(self, number: int, now: int) -> None:
        """Its children live on. Who had claimed is known by the claim; of the rest the closed socket tells."""
        launcher = self.launchers[number]
        if self.launcher is launcher:
            self.launcher = None
        launcher.pid = 0
        if launcher.requests is not None:
            self.poll.unwatch(launcher.requests.fileno())
            launcher.requests.close()
        self._hear(number, now)
        self._adopt(number, now)

    def _adopt(self, number: int, now: int) -> None:
        for (launcher, _), process in list(self.ordered.items()):
            if launcher == number and not process.pid:
                claimant = process.claimant()
                if claimant:
                    self._born(process, claimant, now)

    def _let_go(self, number: int, now: int) -> None:
        """Nobody can speak on its socket any more: whatever has not started by now never will.

        It may be just this launcher that `reap` looks at; so it is reaped there, as any child that nobody asks for.
        """
        launcher = self.launchers[number]
        if launcher.pid and launcher.requests is not None:
            self.poll.unwatch(launcher.requests.fileno())
        self._adopt(number, now)
        for (other, _), process in list(self.ordered.items()):
            if other == number and not process.pid:
                self._stillborn(process, LAUNCHER_GONE, now)
        self.poll.unwatch(launcher.replies.fileno())
        del self.launchers[number]
        if self.launcher is launcher:
            self.launcher = None
        launcher.close()

    # -- exits -------------------------------------------------------------------------------------------

    def reap(self, now: int) -> None:
        while True:
            try:
                # Looked at before it is reaped: until then its number, and so its group, is nobody else's.
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            pid = found.si_pid
            process = self.by_pid.get(pid)
            if process is None and self.unborn:
                for number in list(self.launchers):
                    self._hear(number, now, self.unborn)
                process = self.by_pid.get(pid)
            if process is not None:
                trees.send_group(pid, KILL)
            _, status, usage = os.wait4(pid, 0)
            if process is not None:
                self._ended(process, status, usage, now)
                continue
            number = next((number for number, launcher in self.launchers.items() if launcher.pid == pid), 0)
            if number:
                self._launcher_died(number, now)
            elif self.unborn:
                self.early[pid] = (status, usage)

    def _ended(self, process: Process, status: int, usage: Any, now: int) -> None:
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) >= FAILED_FROM and not process.code:
            self._hear(process.order[0], now)  # it may have said why just before it ended
        self.by_pid.pop(process.pid, None)
        self.ordered.pop(process.order, None)
        process.ended(status, usage, now)

    def known(self) -> set[int]:
        """The children of the keeper that are somebody's first process, or launchers."""
        return {*self.by_pid, *(launcher.pid for launcher in self.launchers.values())}
