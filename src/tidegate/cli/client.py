"""HTTP/1.1 with the server, over its Unix socket or TCP: one connection, kept, and answers read as they come.

`_socket` and not `socket`, which imports `selectors` and `enum`: as long as starting the interpreter. No `http.client`,
for the same reason. What goes wrong is a FailureError that says what to do; a GoneError may pass by itself.
"""

import errno
import os
import time
from _socket import AF_INET, AF_INET6, AF_UNIX, IPPROTO_TCP, SOCK_STREAM, TCP_NODELAY, socket

from tidegate import __version__
from tidegate.cli.failure import FailureError
from tidegate.wire.sockets import reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECT_S = 5.0
ANSWER_S = 30.0
PIECE = 1 << 18
HEAD_MAX = 1 << 16
BODY_MAX = 1 << 30
INTERIM_MAX = 8
LOG = "server.log"


class GoneError(FailureError):
    """No server, or no longer one: it may come back."""


class NoServerError(GoneError):
    """Nobody listens there."""


class BrokenError(FailureError):
    """What came is no answer of a server of tide."""


class Place:
    """Where a server listens: the socket of a home, or a host and a port with a token."""

    def __init__(self, home: str = "", host: str = "", port: int = 0, token: str = "") -> None:
        self.home = home
        self.host = host
        self.port = port
        self.token = token

    @property
    def path(self) -> str:
        return os.path.join(self.home, "tide.sock")

    @property
    def log(self) -> str:
        return os.path.join(self.home, LOG)

    def __str__(self) -> str:
        return self.path if self.home else f"http://{self.host}:{self.port}"

    def look(self) -> str:
        """Where a person looks when the server is silent."""
        return f"see {self.log}" if self.home else "see the log of the server"

    def connect(self, timeout_s: float = CONNECT_S) -> socket:
        try:
            return self._connect_unix(timeout_s) if self.home else self._connect_tcp(timeout_s)
        except TimeoutError:
            raise GoneError(f"the server at {self} takes no connections; {self.look()}") from None
        except PermissionError:
            raise FailureError(
                f"no permission to use {self}; ask whoever runs that server, or give another --home"
            ) from None
        except OSError as error:
            raise NoServerError(
                f"no server answers at {self} ({error.strerror or error}); tide up starts one"
            ) from None

    def _connect_unix(self, timeout_s: float) -> socket:
        until = time.monotonic() + timeout_s
        while True:
            sock = socket(AF_UNIX, SOCK_STREAM)
            sock.settimeout(timeout_s)
            try:
                reach(self.path, sock.connect)
            except OSError as error:
                sock.close()
                # The kernel says so at once when the server has not yet taken those who came before.
                if error.errno != errno.EAGAIN:
                    raise
                if time.monotonic() > until:
                    raise TimeoutError from None
                time.sleep(0.02)
            else:
                return sock

    def _connect_tcp(self, timeout_s: float) -> socket:
        sock = socket(AF_INET6 if ":" in self.host else AF_INET, SOCK_STREAM)
        try:
            sock.settimeout(timeout_s)
            sock.connect((self.host, self.port))
            sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        except OSError:
            sock.close()
            raise
        return sock


class Client:
    """One connection to one server. Requests go one after the other; each answer is read before the next."""

    def __init__(self, place: Place, timeout_s: float = ANSWER_S) -> None:
        self.place = place
        self.timeout_s = timeout_s
        self.sock: socket | None = None
        self.buffer = b""
        self.used = False  # the connection has carried an answer: it may have been closed since
        self.open: Answer | None = None
        self.pending = False  # a request was sent and its answer not looked at

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()
        self.sock, self.buffer, self.used, self.open, self.pending = None, b"", False, None, False

    def fileno(self) -> int:
        return self.sock.fileno() if self.sock is not None else -1

    def exchange(
        self, method: str, target: str, body: bytes | None = None, headers: str = "", *, again: bool = True
    ) -> "Answer":
        """The answer, its head read. With `again` a connection that turns out to be closed is made anew, once."""
        if not again:
            self.close()
        self.send(method, target, body, headers)
        stale = self.used
        try:
            return self.answer()
        except GoneError:
            if not stale or self.buffer:
                raise
        self.send(method, target, body, headers)
        return self.answer()

    def send(self, method: str, target: str, body: bytes | None = None, headers: str = "") -> None:
        if self.pending or self.buffer or (self.open is not None and not self.open.ended):
            self.close()  # the rest of an answer nobody wants
        if self.sock is None:
            self.sock = self.place.connect()
        host = "tidegate" if self.place.home else f"{self.place.host}:{self.place.port}"
        head = f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tide/{__version__}\r\n{headers}"
        if self.place.token:
            head += f"Authorization: Bearer {self.place.token}\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self.sock.settimeout(self.timeout_s)
        self.pending = True
        try:
            self.sock.sendall(f"{head}\r\n".encode() + (body or b""))
        except TimeoutError:
            raise self.slow() from None
        except OSError:
            pass  # a server that does not want the rest has said why: the answer is there to read

    def answer(self) -> "Answer":
        self.open = None
        for _ in range(INTERIM_MAX):
            status, headers = self.parse(self.head())
            if status >= 200:
                self.open = Answer(self, status, headers)
                self.used, self.pending = True, False
                return self.open
        raise self.broken("it never comes to an answer")

    def head(self) -> bytes:
        while (end := self.buffer.find(b"\r\n\r\n")) < 0:
            if len(self.buffer) > HEAD_MAX:
                raise self.broken("the head of its answer has no end")
            piece = self.receive()
            if not piece:
                raise self.gone("before it answered")
            self.buffer += piece
        found, self.buffer = self.buffer[:end], self.buffer[end + 4 :]
        return found

    def parse(self, head: bytes) -> tuple[int, dict[str, str]]:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        status = rest[:3]
        if not version.startswith("HTTP/1.") or not (status.isascii() and status.isdigit() and len(status) == 3):
            raise self.broken("it does not speak HTTP")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(status), headers

    def receive(self) -> bytes:
        """What has come; empty: the other side has closed."""
        if self.sock is None:
            return b""
        try:
            return self.sock.recv(PIECE)
        except TimeoutError:
            raise self.slow() from None
        except OSError:
            return b""

    def gone(self, when: str) -> GoneError:
        self.close()
        return GoneError(f"the server at {self.place} went away {when}; tide status says whether it is back")

    def slow(self) -> GoneError:
        self.close()
        return GoneError(f"the server at {self.place} was silent for {self.timeout_s:.0f} s; {self.place.look()}")

    def broken(self, what: str) -> BrokenError:
        self.close()
        return BrokenError(f"what answers at {self.place} is no server of tide ({what}); check the address")


class Answer:
    """Status and headers, and the body as it comes."""

    def __init__(self, client: Client, status: int, headers: dict[str, str]) -> None:
        self.client = client
        self.status = status
        self.headers = headers
        self.ended = False

    def pieces(self) -> "Iterator[bytes]":
        """The body in pieces as they arrive. GoneError where it stops before its end."""
        if self.status in {204, 304}:
            pass
        elif "chunked" in self.headers.get("transfer-encoding", "").lower():
            yield from self._chunks()
        elif "content-length" in self.headers:
            yield from self._counted(self._number(self.headers["content-length"], 10))
        else:
            yield from self._until_closed()
        self.ended = True
        if self.headers.get("connection", "").lower() == "close":
            self.client.close()

    def read(self) -> bytes:
        parts, size = [], 0
        for piece in self.pieces():
            size += len(piece)
            if size > BODY_MAX:
                raise self.client.broken("its answer has no end")
            parts.append(piece)
        return b"".join(parts)

    def _number(self, text: str, base: int) -> int:
        try:
            return int(text, base) if len(text) < 17 and text[:1] not in {"-", "+"} else -1
        except ValueError:
            raise self.client.broken(f"{text[:20]!r} is no length") from None

    def _more(self) -> bytes:
        piece = self.client.buffer
        self.client.buffer = b""
        if not piece:
            piece = self.client.receive()
        if not piece:
            raise self.client.gone("in the middle of its answer")
        return piece

    def _counted(self, left: int) -> "Iterator[bytes]":
        if left < 0:
            raise self.client.broken("the length of its answer is below 0")
        while left:
            piece = self._more()
            if len(piece) > left:
                self.client.buffer = piece[left:]
                piece = piece[:left]
            left -= len(piece)
            yield piece

    def _chunks(self) -> "Iterator[bytes]":
        while size := self._number(self._line().partition(";")[0].strip(), 16):
            yield from self._counted(size)
            if self._line():
                raise self.client.broken("a piece is longer than it says")
        while self._line():
            pass  # trailers

    def _line(self) -> str:
        while (end := self.client.buffer.find(b"\r\n")) < 0:
            if len(self.client.buffer) > HEAD_MAX:
                raise self.client.broken("a line has no end")
            piece = self.client.receive()
            if not piece:
                raise self.client.gone("in the middle of its answer")
            self.client.buffer += piece
        line = self.client.buffer[:end]
        self.client.buffer = self.client.buffer[end + 2 :]
        return line.decode("latin-1")

    def _until_closed(self) -> "Iterator[bytes]":
        if self.client.buffer:
            yield self.client.buffer
            self.client.buffer = b""
        while piece := self.client.receive():
            yield piece
        self.client.close()


def server_events(answer: Answer) -> "Iterator[tuple[str, str]]":
    """(id, data) of each server-sent event; ("", "") for a comment, which only says that the server lives."""
    kept = b""
    number = ""
    data: list[str] = []
    for piece in answer.pieces():
        *lines, kept = (kept + piece).replace(b"\r\n", b"\n").split(b"\n")
        if len(kept) > BODY_MAX:
            raise answer.client.broken("an event has no end")
        for line in lines:
            field, _, value = line.decode("utf-8", "replace").partition(":")
            value = value.removeprefix(" ")
            if not line:
                if data:
                    yield number, "\n".join(data)
                number, data = "", []
            elif not field:
                yield "", ""
            elif field == "data":
                data.append(value)
            elif field == "id":
                number = value
