"""An allocation for `srun` and `salloc`: the client waits at a socket of its own, and what runs in the allocation comes
there and takes over its standard streams, so that a step outside looks like one inside.
"""

import array
import fcntl
import os
import pty
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import termios
import time
import tty
from contextlib import suppress
from typing import Any

from tidegate.cli.client import Client, GoneError
from tidegate.cli.failure import FailureError
from tidegate.cli.slurm.client import StopError, Talk, put, split
from tidegate.cli.slurm.steps import PIECE, read_some, tell
from tidegate.wire.sockets import reach

QUEUED_S = 0.7
"""Who waits longer than that is told so."""
OVER_S = 5.0
MEET_AT = "TIDE_SRUN_AT"
HEAD = struct.Struct("=I")
PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Meeting:
    """The place where the allocation comes, and the job once it is there."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.folder = tempfile.mkdtemp(prefix="tide-srun-")
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.path = f"{self.folder}/at"
        reach(self.path, self.listening.bind)
        self.listening.listen(1)
        self.job = 0
        self.quiet = False
        self.watching: Client | None = None

    def close(self) -> None:
        self.listening.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def submit(self) -> int | None:
        """None: the job is there; else that is the end."""
        self.talk.env[MEET_AT.encode()] = os.fsencode(self.path)
        code, out, err, then = self.talk.ask()
        put(1, out)
        put(2, err)
        if then is None:
            return code
        self.job, self.quiet = then["job"], then["quiet"]
        return None

    def watch(self) -> None:
        """Asks to be told when the job is over."""
        watching = self.watching = self.watching or self.talk.server.beside().client
        body = self.talk.body([str(self.job)])
        self.talk.server.patiently(lambda: watching.send("POST", "/v1/slurm/-state", body), again=True)

    def over(self) -> "dict[str, Any] | None":
        """How the job ended, if it has; asks again if not."""
        assert self.watching is not None, "it was asked"
        try:
            then = split(self.talk.server.check(self.watching.answer()).read())[3]
        except GoneError:  # the server restarts: what runs, runs on
            then = None
        if then is not None and then["do"] == "over":
            return then  # type: ignore[no-any-return]
        self.watch()
        return None

    def come(self, wakes: int) -> socket.socket | None:
        """Until the job comes; None: it ended before."""
        self.watch()
        assert self.watching is not None, "it was asked"
        name, told = self.talk.name, False
        until = time.monotonic() + QUEUED_S
        while True:
            wait = None if told else max(0.0, until - time.monotonic())
            fds: list[Any] = [self.listening, self.watching, wakes]
            ready, _, _ = select.select(fds, [], [], wait)
            if self.listening in ready:
                if told and not self.quiet:
                    tell(f"{name}: job {self.job} has been allocated resources\n")
                return self.listening.accept()[0]
            if wakes in ready:
                self.cancel()
                if not self.quiet:
                    tell(f"{name}: Job allocation {self.job} has been revoked.\n")
                return None
            if self.watching in ready and self.over() is not None:
                if not self.quiet:
                    tell(f"{name}: Force Terminated job {self.job}\n")
                return None
            if not ready and not told:
                told = True
                if not self.quiet:
                    pending = f"salloc: Pending job allocation {self.job}\n" if name == "salloc" else ""
                    tell(f"{pending}{name}: job {self.job} queued and waiting for resources\n")

    def cancel(self) -> None:
        with suppress(FailureError):  # it ends with its client's socket all the same
            body = self.talk.body([str(self.job)])
            self.talk.server.beside().client.exchange("POST", "/v1/slurm/scancel", body).read()

    def settle(self) -> None:
        """What comes next is to find the job over."""
        assert self.watching is not None, "it was asked"
        until = time.monotonic() + OVER_S
        while time.monotonic() < until:
            ready, _, _ = select.select([self.watching], [], [], until - time.monotonic())
            if ready and self.over() is not None:
                return


def run(talk: Talk, plan: dict[str, Any]) -> int:
    wakes, waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in PASSED:
        signal.signal(number, lambda _number, _frame: None)
    meeting = Meeting(talk)
    try:
        over = meeting.submit()
        if over is not None:
            return over
        line = meeting.come(wakes)
        if line is None:
            return 1
        with line:
            code = hold(meeting, line, plan["command"]) if talk.name == "salloc" else far(line, wakes, pty=plan["pty"])
        meeting.settle()
        return code
    finally:
        meeting.close()


# -- srun: the step is over there, on our streams ------------------------------------------------------------


def far(line: socket.socket, wakes: int, *, pty: bool) -> int:
    if pty:
        return with_terminal(line, wakes)
    socket.send_fds(line, [b"\0"], [0, 1, 2])
    return follow(line, wakes)


def follow(line: socket.socket, wakes: int, master: int = -1) -> int:
    """Passes signals on until the step tells its exit code."""
    fds: list[Any] = [line, wakes] + ([master, 0] if master >= 0 else [])
    while True:
        ready, _, _ = select.select(fds, [], [])
        if master in ready:
            octets = read_some(master)
            put(1, octets)
            if not octets:
                fds.remove(master)
        if 0 in ready:
            octets = read_some(0)
            if octets:
                put(master, octets)
            else:
                fds.remove(0)
        if wakes in ready:
            told = bytes(number for number in os.read(wakes, 4096) if number in PASSED)
            if told:
                line.send(told)
            if master >= 0:
                resize(master)
        if line in ready:
            said = line.recv(16)
            if master >= 0:
                drain(master)
            return said[0] if said else 1


def drain(master: int) -> None:
    while select.select([master], [], [], 0)[0]:
        octets = read_some(master)
        if not octets:
            return
        put(1, octets)


def with_terminal(line: socket.socket, wakes: int) -> int:
    master, slave = pty.openpty()
    signal.signal(signal.SIGWINCH, lambda _number, _frame: None)
    is_terminal = os.isatty(0)
    before = termios.tcgetattr(0) if is_terminal else None
    if before is not None:
        resize(master)
        tty.setraw(0)
    try:
        socket.send_fds(line, [b"\0"], [slave] * 3)
        os.close(slave)
        return follow(line, wakes, master)
    finally:
        if before is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, before)


def resize(master: int) -> None:
    try:
        size = array.array("h", [0, 0, 0, 0])
        fcntl.ioctl(0, termios.TIOCGWINSZ, size)
        fcntl.ioctl(master, termios.TIOCSWINSZ, size)
    except OSError:
        pass  # our input is no terminal


# -- salloc: the command is here, the allocation over there --------------------------------------------------


def hold(meeting: Meeting, line: socket.socket, command: list[str]) -> int:
    told = whole(line)
    given = dict(entry.split(b"=", 1) for entry in told.split(b"\0") if b"=" in entry)
    if not meeting.quiet:
        tell(f"salloc: Granted job allocation {meeting.job}\n")
    env = {**os.environb, **given}
    words = command or [os.environ.get("SHELL", "/bin/sh")]
    child = os.fork()
    if not child:
        for number in PASSED:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        try:
            os.execvpe(words[0], words, env)
        except OSError as error:
            tell(f"salloc: error: Unable to exec command {words[0]!r}: {os.strerror(error.errno or 0)}\n")
        os._exit(127)
    code = wait_for(child, line)
    if not meeting.quiet:
        tell(f"salloc: Relinquishing job allocation {meeting.job}\n")
    return code


def wait_for(child: int, line: socket.socket) -> int:
    """The command's exit code; where the allocation ends first, the command does too."""
    end = os.pidfd_open(child)
    try:
        fds: list[Any] = [end, line]
        ready, _, _ = select.select(fds, [], [])
        if end not in ready:
            tell("salloc: Job allocation has been revoked.\n")
            os.kill(child, signal.SIGHUP)
        _, status = os.waitpid(child, 0)
    finally:
        os.close(end)
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def whole(line: socket.socket) -> bytes:
    head = line.recv(HEAD.size, socket.MSG_WAITALL)
    return line.recv(HEAD.unpack(head)[0], socket.MSG_WAITALL) if len(head) == HEAD.size else b""


# -- in the allocation ---------------------------------------------------------------------------------------


def inside(name: str, words: list[str], place: str, meet_at: str) -> int:
    """The job itself: meets its client, and runs the step on its streams; or only holds the allocation."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        reach(meet_at, line.connect)
    except OSError as error:
        raise StopError(f"{name}: error: the client that asked is gone: {error.strerror}") from None
    if name == "salloc":
        entries = [key + b"=" + value for key, value in os.environb.items() if key.startswith(b"SLURM")]
        told = b"\0".join(entries)
        line.sendall(HEAD.pack(len(told)) + told)
        line.recv(PIECE)  # until it goes
        return 0
    _, fds, _, _ = socket.recv_fds(line, 1, 3)
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    code = 1
    try:
        talk = Talk(name, words, place)
        talk.control = line.fileno()
        code = talk.run()
    except FailureError as error:
        tell(f"{error}\n")
    finally:
        sys.stdout.flush()
        for number in range(3):
            os.close(number)
            os.open(os.devnull, os.O_RDWR)  # gets the number that is free
        line.send(bytes([code & 255]))
    return code
