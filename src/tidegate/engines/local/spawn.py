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

PREFIX = "~"
REQUESTS, REPLIES = 3, 4
HEAD = struct.Struct("=III")
REPLY_MAX = 4096
ALL_SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


class BadOrderError(Exception):
    """Nothing the machine could do would start this."""


def packed(words: list[str], what: str) -> bytes:
    text = "\0".join((*words, "")).encode(errors="surrogateescape")
    if text.count(b"\0") != len(words):
        raise BadOrderError(f"a NUL character is in {what}")
    return text


class Entries:
    """NAME=VALUE, as the launcher wants them; packed once for all that share them."""

    __slots__ = ("count", "packed")

    def __init__(self, entries: list[str]) -> None:
        self.packed = packed(entries, "the environment")
        self.count = len(entries)

    def marks(self, *prefixes: bytes) -> frozenset[bytes]:
        return frozenset(entry for entry in self.packed.split(b"\0") if entry.startswith(prefixes))


class Launcher:
    """Hands orders over and gives back a serial number for each; what became of them comes as replies."""

    def __init__(self, program: str, oom: str) -> None:
        self.program = program
        self.oom = oom  # what a job's oom_score_adj is set back to; "" where it needs no setting
        self.keeper = os.getpid()
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
            ["tidegate-launcher", self.oom],
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

    def start(
        self, record: tuple[str, str], joins: tuple[str, ...], theirs: list[str], shared: Entries, own: Entries
    ) -> int:
        """The serial number of what goes out with the next `flush`. OSError, BadOrderError: nothing starts.

        `theirs` are the words that the server gives; launcher.c lists all.
        """
        self.serial += 1
        oom = self.oom if self.requests is None else ""
        words = [str(self.serial), *record, str(self.keeper), oom, str(len(joins)), *joins, *theirs]
        text = packed(words, "an argument or a path")
        if self.requests is not None:
            length, count = len(text) + len(shared.packed) + len(own.packed), shared.count + own.count
            self.pending += b"".join((HEAD.pack(length, len(words), count), text, shared.packed, own.packed))
            return self.serial
        entries = (shared.packed + own.packed).decode(errors="surrogateescape").split("\0")[:-1]
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-E", self.program, *words],
            dict((PREFIX + entry).split("=", 1) for entry in entries),
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

    def hear(self, at_most: int = 1 << 30) -> list[str] | None:
        """Replies so far; None when launcher and all that it forked have let go of the socket."""
        heard, self.told = self.told, []
        try:
            while len(heard) < at_most:
                reply = self.replies.recv(REPLY_MAX)
                if not reply:
                    return heard or None
                heard.append(reply.decode(errors="replace"))
        except BlockingIOError:
            pass
        except OSError:
            return heard or None
        return heard

    def close(self) -> None:
        for end in (self.requests, self.replies, self.theirs):
            if end is not None:
                end.close()
