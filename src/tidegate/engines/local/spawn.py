"""Starting processes for the keeper: by the compiled launcher, or one interpreter a job where there is none.

Both take the same arguments (launcher.c lists them) and answer on the same kind of socket, so the keeper hears
of a start, of a failure before the exec, and of the launcher's own death in one way.
"""

import fcntl
import os
import signal
import socket
import struct
import sys
from typing import NamedTuple

PREFIX = "~"
REQUESTS, REPLIES = 3, 4
HEAD = struct.Struct("=III")
REPLY_MAX = 4096
ALL_SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


class Order(NamedTuple):
    """What the launcher needs to know of a process."""

    argv: list[str]
    environment: list[str]  # NAME=VALUE
    claim: str = ""
    joins: tuple[str, ...] = ()
    user: tuple[int, int, list[int]] | None = None
    umask: int = 0o022
    cwd: str = "/"
    output: str = ""
    errors: str = ""
    append: bool = False
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""


class BadOrderError(Exception):
    """Nothing the machine could do would start this."""


def arguments(serial: int, order: Order, oom: str) -> list[str]:
    uid, gid, groups = ("", "", "") if order.user is None else (order.user[0], order.user[1], order.user[2])
    return [
        str(serial), order.claim, str(os.getpid()), str(len(order.joins)), *order.joins,
        str(uid), str(gid), ",".join(map(str, groups)), f"{order.umask:o}", oom, order.cwd,
        order.output, order.errors, "1" if order.append else "0", order.stdin, order.stdout, order.stderr, *order.argv,
    ]  # fmt: skip


def frame(words: list[str], environment: list[str]) -> bytes:
    text = "\0".join((*words, *environment, "")).encode(errors="surrogateescape")
    if text.count(b"\0") != len(words) + len(environment):
        raise BadOrderError("a NUL character is in an argument, a path or the environment")
    return HEAD.pack(len(text), len(words), len(environment)) + text


class Launcher:
    """Hands orders over and gives back a serial number for each; what became of them comes as replies."""

    def __init__(self, program: str, oom: str) -> None:
        self.program = program
        self.oom = oom  # what a job's oom_score_adj is set back to; "" where it needs no setting
        self.serial = 0
        self.pid = 0
        self.pending = bytearray()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self.replies = ours
        self.theirs = theirs
        self.requests: socket.socket | None = None
        self.told: list[str] = []  # replies that need no socket
        if not program.endswith(".py"):
            self._start(theirs)

    def _start(self, theirs: socket.socket) -> None:
        ours, requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        # By way of high numbers: either socket may itself be 3 or 4.
        high = [fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, 10) for end in (requests, theirs)]
        self.pid = os.posix_spawn(
            self.program,
            ["tidegate-launcher"],
            {},
            file_actions=(
                (os.POSIX_SPAWN_DUP2, high[0], REQUESTS),
                (os.POSIX_SPAWN_DUP2, high[1], REPLIES),
            ),
            setsid=True,
            setsigmask=(),
            setsigdef=ALL_SIGNALS,
        )
        for fd in high:
            os.close(fd)
        requests.close()
        theirs.close()
        self.requests = ours

    def start(self, order: Order) -> int:
        """The serial number of the order. OSError or BadOrderError: nothing was started."""
        self.serial += 1
        words = arguments(self.serial, order, self.oom)
        if self.requests is not None:
            self.pending += frame(words, order.environment)
            self.flush()
            return self.serial
        frame(words, order.environment)  # only to refuse what the other launcher refuses
        environment = dict((PREFIX + entry).split("=", 1) for entry in order.environment)
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-E", self.program, *words],
            environment,
            file_actions=((os.POSIX_SPAWN_DUP2, self.theirs.fileno(), REPLIES),),
            setsid=True,
            setsigmask=(),
            setsigdef=ALL_SIGNALS,
        )
        self.told.append(f"+{self.serial} {pid}")
        return self.serial

    def flush(self) -> bool:
        """Whether everything is handed over; if not, again when the socket can be written."""
        assert self.requests is not None
        try:
            while self.pending:
                sent = self.requests.send(self.pending)
                del self.pending[:sent]
        except BlockingIOError:
            return False
        except OSError:
            self.pending.clear()  # it is dead: what was in it comes back as never started
        return True

    def hear(self) -> list[str] | None:
        """Replies so far; None when launcher and all that it forked have let go of the socket."""
        heard, self.told = self.told, []
        try:
            while reply := self.replies.recv(REPLY_MAX):
                heard.append(reply.decode(errors="replace"))
        except BlockingIOError:
            return heard
        except OSError:
            pass
        return heard or None

    def close(self) -> None:
        for end in (self.requests, self.replies, self.theirs):
            if end is not None:
                end.close()
