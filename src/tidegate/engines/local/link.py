"""The server's end of the wire to its keeper: finds it, starts it, starts it again, and carries lines both ways.

Nothing here blocks. `fileno` is one descriptor for as long as the link lives: it can be read when there is
something to hear, to write on or to start again.
"""

import os
import select
import socket
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from tidegate.engines.local.records import Key
from tidegate.wire.sockets import reach

PROTOCOL: Final = 1
READ_MAX: Final = 1 << 18
READS_MAX: Final = 64
RETRY_MS_MIN: Final = 20
RETRY_MS_MAX: Final = 10_000
STARTING_MS_MAX: Final = 30_000
STOPPING_S_MAX: Final = 5.0
WITHOUT_CGROUPS: Final = "without-cgroups"
MODULE: Final = "tidegate.engines.local.keeper"
BOOT: Final = f"import sys; sys.path.insert(0, sys.argv.pop(1)); import {MODULE} as keeper; keeper.main(*sys.argv[1:])"
ROOT: Final = str(Path(__file__).parents[3])
PASSED_ON: Final = ("LD_LIBRARY_PATH",)  # some builds of Python need it to find their own library


class Said(msgspec.Struct, tag_field="is", tag=str.lower):
    """One message of the keeper."""


class Hello(Said):
    protocol: int
    pid: int
    running: int
    limits: dict[str, int]
    launcher: str
    notes: list[str]
    trouble: str


class Launched(Said):
    task: int
    attempt: int
    pid: int


class Ended(Said):
    task: int
    attempt: int
    outcome: str
    code: int
    signal: int
    used: tuple[int, int, int, int]
    why: str


class Notified(Said):
    job: int


class Inventory(Said):
    ask: int
    running: list[Key]


class Trouble(Said):
    why: str


class Staying(Said):
    running: int


Message = Hello | Launched | Ended | Notified | Inventory | Trouble | Staying


class Link:
    def __init__(self, home: Path, launcher: Path, *, cgroups: bool) -> None:
        self.home = home
        self.options = [] if cgroups else [WITHOUT_CGROUPS]
        self.launcher = launcher
        self.epoll = select.epoll()
        self.socket: socket.socket | None = None
        self.ready: int | None = None  # the pipe on which a keeper that starts says so
        self.child = 0
        self.up = False  # the keeper has said hello
        self.trouble = ""
        self.unread = b""
        self.unsent = bytearray()
        self.retry_at: int | None = 0
        self.retry_ms = RETRY_MS_MIN
        self.decoder = msgspec.json.Decoder(Message)

    def fileno(self) -> int:
        return self.epoll.fileno()

    def next_at(self) -> int | None:
        return self.retry_at

    # -- lines -------------------------------------------------------------------------------------------

    def send(self, line: bytes) -> None:
        """Lost when nobody is there: whoever comes back gets an inventory, and is told again."""
        if self.up:
            self.unsent += line
            self.unsent += b"\n"

    def flush(self) -> None:
        if self.socket is None or not self.unsent:
            return
        try:
            while self.unsent:
                del self.unsent[: self.socket.send(self.unsent)]
        except BlockingIOError:
            self.epoll.modify(self.socket, select.EPOLLIN | select.EPOLLOUT)
            return
        except OSError:
            self.unsent.clear()  # the end of the connection is seen when it is read
        self.epoll.modify(self.socket, select.EPOLLIN)

    def read(self, now: int) -> list[Message]:
        """What the keeper said since the last time; connects first where that has to be."""
        if self.socket is None:
            self._connect(now)
        if self.socket is None:
            return []
        text, ended = self._receive(self.socket)
        *lines, self.unread = (self.unread + text).split(b"\n") if b"\n" in text else [self.unread + text]
        try:
            messages = self.decoder.decode_lines(b"\n".join(lines)) if lines else []
        except msgspec.DecodeError as error:
            self._lose(now, f"the keeper says what this release does not understand ({error})")
            return []
        if not self.up and messages:
            self._greet(messages[0], now)
        if ended:
            self._lose(now, "the keeper is gone; it is started anew")
        self.flush()
        return messages if self.up or ended else []

    def _receive(self, connection: socket.socket) -> tuple[bytes, bool]:
        parts: list[bytes] = []
        try:
            for _ in range(READS_MAX):
                part = connection.recv(READ_MAX)
                if not part:
                    return b"".join(parts), True
                parts.append(part)
        except BlockingIOError:
            pass
        except OSError:
            return b"".join(parts), True
        return b"".join(parts), False

    def _greet(self, hello: Message, now: int) -> None:
        if not isinstance(hello, Hello):
            self._lose(now, "the keeper did not greet")
        elif hello.protocol == PROTOCOL:
            self.up, self.trouble, self.retry_at, self.retry_ms = True, "", None, RETRY_MS_MIN
        elif hello.running:
            self._lose(
                now,
                f"the keeper (process {hello.pid}) is of another release and keeps {hello.running} jobs: "
                "run that release until they have ended",
            )
        else:
            self.up = True
            self.send(b'{"do":"stop"}')
            self.flush()
            self._lose(now, "a keeper of another release is replaced")

    # -- coming and going --------------------------------------------------------------------------------

    def _lose(self, now: int, why: str) -> None:
        self._hang_up()
        self.trouble = why
        self._retry(now)

    def _retry(self, now: int) -> None:
        """Sooner at first than later."""
        self.retry_at = now + self.retry_ms
        self.retry_ms = min(2 * self.retry_ms, RETRY_MS_MAX)

    def _hang_up(self) -> None:
        if self.socket is not None:
            self.epoll.unregister(self.socket)
            self.socket.close()
        self.socket = None
        self.up = False
        self.unread = b""
        self.unsent.clear()

    def _connect(self, now: int) -> None:
        if self.ready is not None and not self._has_started(now):
            return
        if self.retry_at is not None and now < self.retry_at:
            return
        self._reap()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            reach(f"{self.home}/keeper/sock", connection.connect)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            self._start(now)
            return
        except OSError as error:
            connection.close()
            self.trouble = f"cannot reach the keeper: {error.strerror}"
            self._retry(now)
            return
        self.socket, self.retry_at = connection, None
        self.epoll.register(connection, select.EPOLLIN)

    def _start(self, now: int) -> None:
        """Starts a keeper. Where another holds the lock it goes away again, and that one is tried."""
        reading, writing = os.pipe()
        try:
            place = self.home / "keeper"
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            program = [str(self.launcher)]
            if self.launcher.suffix == ".py":
                program = [sys.executable, "-I", "-S", "-E", *program]
            bare = [sys.executable, "-I", "-S", "-E", "-c", BOOT, ROOT, str(self.home), str(self.launcher)]
            bare += self.options
            self.child = os.posix_spawn(
                program[0],
                [*program, "--keeper", *bare],
                {name: os.environ[name] for name in PASSED_ON if name in os.environ},
                file_actions=(
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, str(place / "log"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600),
                    (os.POSIX_SPAWN_DUP2, writing, 3),
                ),
                setsid=True,
                setsigmask=(),
            )
        except OSError as error:
            os.close(reading)
            self.trouble = f"cannot start the keeper: {error.strerror}: {error.filename or self.launcher}"
            self._retry(now)
            return
        finally:
            os.close(writing)
        os.set_blocking(reading, False)
        self.ready = reading
        self.epoll.register(reading, select.EPOLLIN)
        self.retry_at = now + STARTING_MS_MAX

    def _has_started(self, now: int) -> bool:
        """Whether the keeper that was started has spoken: with nothing, it is ready."""
        assert self.ready is not None
        try:
            said = os.read(self.ready, 4096)
        except BlockingIOError:
            if self.retry_at is not None and now < self.retry_at:
                return False
            said = f"it is silent; its log is {self.home}/keeper/log".encode()
        self.epoll.unregister(self.ready)
        os.close(self.ready)
        self.ready = None
        self.retry_at = 0
        if said:
            self.trouble = f"the keeper cannot run: {said.decode(errors='replace')}"
            self._retry(now)
        elif self._reap():
            self._retry(now)  # it gave way to another
        return True

    def _reap(self) -> bool:
        """Whether the keeper that we started has ended."""
        if self.child:
            try:
                ended, _ = os.waitpid(self.child, os.WNOHANG)
            except ChildProcessError:
                ended = self.child
            if ended:
                self.child = 0
                return True
        return False

    def close(self, *, stop: bool) -> None:
        """With `stop` the keeper goes too, unless something runs."""
        if stop:
            self._stop_keeper()
        self.flush()
        self._hang_up()
        if self.ready is not None:
            os.close(self.ready)
            self.ready = None
        self.epoll.close()

    def _stop_keeper(self) -> None:
        """Waits until it is gone, or says that it stays: whoever looks then finds what we say. One that is just
        starting is waited for first."""
        until, asked, heard = time.monotonic() + STOPPING_S_MAX, False, list[Message]()
        while (self.socket or self.ready is not None) and not any(isinstance(one, Staying) for one in heard):
            if self.up and not asked:
                asked = True
                self.send(b'{"do":"stop"}')
                self.flush()
            left = until - time.monotonic()
            if left <= 0:
                return
            self.epoll.poll(left)
            heard = self.read(0)
