"""The output of a task, as it grows: from its file where this user can read it here, else through the server."""

import os
from stat import S_ISREG

from tidegate.cli.client import GoneError
from tidegate.cli.ids import Task, of_task
from tidegate.cli.server import RefusedError, Server, target_of
from tidegate.cli.watch import PATIENCE_S, Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Write = Callable[[bytes], object]

PIECE = 1 << 18
TICK_S = 0.05
REMOTE_TICKS = 10
"""The server is asked for output only every so many ticks."""
LOOK_TICKS = 100
"""Where the output goes may change with each attempt: looked up so often, and more often until it is known."""
LOOK_SOON_TICKS = 4
SIDE_S = 5.0
"""A server that hangs must not keep signals waiting for long."""


class Tail:
    """One output of one task, and how far it has been written on."""

    def __init__(self, server: Server, task: Task, stream: str, write: "Write") -> None:
        self.server = server
        self.task = task
        self.stream = stream
        self.write = write
        self.path = ""
        self.told = ""
        self.file = -1
        self.offset = 0
        self.remote = not server.place.home

    def at(self, path: str) -> None:
        """Where the output is now. Another file is read from its beginning."""
        if path == self.told:
            return
        self.told = path
        if self.file >= 0:
            self._from_file()
        self.path, self.offset = path, 0
        self.close()

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
        self.file = -1

    def more(self) -> int:
        """Writes what is new; how many octets."""
        return self._from_server() if self.remote else self._from_file()

    def _from_file(self) -> int:
        if self.file < 0 and not self._opened():
            return self._from_server() if self.remote else 0
        if os.fstat(self.file).st_size < self.offset:  # the next attempt has begun it anew
            self.offset = 0
        size = 0
        while piece := os.pread(self.file, PIECE, self.offset):
            self.write(piece)
            self.offset += len(piece)
            size += len(piece)
        return size

    def _opened(self) -> bool:
        if not self.path:
            return False
        try:
            self.file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except FileNotFoundError:
            return False
        except OSError:  # of somebody else: the server decides who may read it
            self.remote = True
            return False
        if not S_ISREG(os.fstat(self.file).st_mode):  # a pipe or a device: what went there is not there to read
            self.close()
            self.path = ""
            return False
        return True

    def _from_server(self) -> int:
        query = {"stream": self.stream, "offset": self.offset, **of_task(self.task[1])}
        target = target_of(f"/v1/jobs/{self.task[0]}/log", query)
        size = 0
        answer = self.server.client.exchange("GET", target, None, "Accept: application/octet-stream\r\n")
        for piece in self.server.check(answer).pieces():
            self.write(piece)
            self.offset += len(piece)  # at once: after a break the rest is asked for, not all of it again
            size += len(piece)
        return size


class Follower:
    """Writes the output of a task until the task has ended."""

    def __init__(self, server: Server, task: Task, streams: "dict[str, Write]", patience_s: float = PATIENCE_S) -> None:
        self.server = server.beside()
        self.server.client.timeout_s = SIDE_S
        self.task = task
        self.tails = [Tail(self.server, task, stream, write) for stream, write in streams.items()]
        self.watch = Watch(server, [task], patience_s)
        self.tick = 0
        self.job: dict[str, Any] = {}

    def run(self, on_tick: "Callable[[], None]") -> "dict[str, Any]":
        """The job, or the task, as it ended. `on_tick` is called all along."""
        self.look()
        while True:
            said = self.watch.step(TICK_S)
            self.write()
            if said is not None and said["ended"] >= said["total"]:
                break
            on_tick()
            self.tick += 1
            if self.tick % (LOOK_TICKS if self.job.get("start_ms") else LOOK_SOON_TICKS) == 0:
                self.look()
        self.job = self.server.call("GET", f"/v1/jobs/{self.task[0]}", of_task(self.task[1]))
        self.aim()
        for tail in self.tails:
            self.server.patiently(tail.more, again=True)
        return self.job

    def look(self) -> None:
        """Where the output is; a server that is away says so when it is back."""
        try:
            self.job = self.server.call_once("GET", target_of(f"/v1/jobs/{self.task[0]}", of_task(self.task[1])))
        except GoneError:
            return
        self.aim()

    def aim(self) -> None:
        for tail in self.tails:
            tail.at(str(self.job.get(tail.stream) or ""))

    def write(self) -> None:
        for tail in self.tails:
            if tail.remote and self.tick % REMOTE_TICKS:
                continue
            try:
                tail.more()
            except (GoneError, RefusedError):  # away, or nothing there yet: the end is read when it has ended
                continue


def to(out: int) -> "Write":
    """Writes all of it to that file, at once: nothing is held back."""

    def write_all(octets: bytes) -> None:
        view = memoryview(octets)
        while view:
            view = view[os.write(out, view) :]

    return write_all
