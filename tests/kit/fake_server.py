"""A server that says what a test wants, word by word: held to the interface of `wire.api`, and breakable at will."""

import contextlib
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from tidegate.wire import api

WITHIN_S = 20


@dataclass
class Asked:
    """One request, as the interface reads it."""

    route: str
    where: dict[str, str]
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


@dataclass
class Raw:
    """Octets instead of JSON. `cut` ends the connection after the last piece, whatever was promised."""

    pieces: Iterable[bytes]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    chunked: bool = False
    cut: bool = False
    head: bytes | None = None


@dataclass
class Problem:
    status: int
    what: str
    cure: str
    headers: dict[str, str] = field(default_factory=dict)


Handler = Callable[[Asked], Any]


def pattern_of(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))


PATHS = [(route, pattern_of(route.path)) for route in api.ROUTES]


class FakeServer:
    """Listens on the socket of `home`, or on TCP. Handlers by the name of their route; see `asked` for what came."""

    def __init__(self, home: Path, *, tcp: bool = False, version: str = "") -> None:
        self.home = home
        self.tcp = tcp
        self.version = version
        self.handlers: dict[str, Handler] = {}
        self.asked: list[Asked] = []
        self.connections = 0
        self.news = threading.Condition()
        self.open: set[socket.socket] = set()
        self.listener: socket.socket | None = None
        self.threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for thread in self.threads:
            thread.join(WITHIN_S)

    def start(self) -> None:
        if self.tcp:
            listener = socket.create_server(("127.0.0.1", 0))
        else:
            self.home.mkdir(parents=True, exist_ok=True)
            (self.home / "tide.sock").unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX)
            folder = os.open(self.home, os.O_RDONLY)  # the home of a test is too long a path for a socket
            listener.bind(f"/proc/self/fd/{folder}/tide.sock")
            os.close(folder)
            listener.listen(64)
        self.listener = listener
        self._spawn(self._accept, listener)

    @property
    def port(self) -> int:
        assert self.listener is not None
        return int(self.listener.getsockname()[1])

    def stop(self) -> None:
        """As `kill -9` does: nobody is told."""
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self.news:
            for one in self.open:
                shut(one)

    def on(self, route: str, answer: Any) -> None:
        """What the route answers: a value, or a function of the request."""
        self.handlers[route] = answer if callable(answer) else lambda _: answer

    def wait_for(self, enough: Callable[[list[Asked]], bool]) -> list[Asked]:
        with self.news:
            assert self.news.wait_for(lambda: enough(self.asked), WITHIN_S), self.asked
            return list(self.asked)

    def said(self, route: str) -> list[Asked]:
        with self.news:
            return [asked for asked in self.asked if asked.route == route]

    def _spawn(self, work: Callable[[socket.socket], None], sock: socket.socket) -> None:
        thread = threading.Thread(target=work, args=(sock,), daemon=True)
        self.threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with self.news:
                self.connections += 1
                self.open.add(sock)
            self._spawn(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        try:
            with sock, sock.makefile("rb") as stream:
                while self.listener is not None and self._answer(sock, stream):
                    pass
        except OSError:
            pass
        finally:
            with self.news:
                self.open.discard(sock)

    def _answer(self, sock: socket.socket, stream: Any) -> bool:
        first = stream.readline().decode()
        if not first:
            return False
        headers = {}
        while (line := stream.readline().decode().strip()) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        octets = stream.read(int(headers.get("content-length", 0)))
        method, target, _ = first.split()
        asked = read(method, target, octets, headers)
        with self.news:
            self.asked.append(asked)
            self.news.notify_all()
        handler = self.handlers.get(asked.route)
        answer = handler(asked) if handler else Problem(404, f"no {asked.route} here", "ask for something else")
        return self._say(sock, answer)

    def _say(self, sock: socket.socket, answer: Any) -> bool:
        if isinstance(answer, Problem):
            body = api.ProblemBody(error=api.Problem(what=answer.what, cure=answer.cure))
            answer = Raw([msgspec.json.encode(body)], answer.status, answer.headers)
        elif not isinstance(answer, Raw):
            answer = Raw([msgspec.json.encode(answer)])
        if answer.head is not None:
            sock.sendall(answer.head)
            return False
        pieces = answer.pieces if answer.chunked else list(answer.pieces)
        headers = {"Server": f"tidegate/{self.version}"} if self.version else {}
        headers |= (
            {"Transfer-Encoding": "chunked"} if answer.chunked else {"Content-Length": str(sum(map(len, pieces)))}
        )
        lines = "".join(f"{name}: {value}\r\n" for name, value in {**headers, **answer.headers}.items())
        sock.sendall(f"HTTP/1.1 {answer.status} X\r\n{lines}\r\n".encode())
        for piece in pieces:
            sock.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if answer.chunked else piece)
        if answer.chunked and not answer.cut:
            sock.sendall(b"0\r\n\r\n")
        return not answer.cut and answer.headers.get("Connection") != "close"


def shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def read(method: str, target: str, octets: bytes, headers: dict[str, str]) -> Asked:
    """The request as the interface has it; a word that is not in it fails the test."""
    parts = urlsplit(target)
    for route, pattern in PATHS:
        found = pattern.fullmatch(parts.path)
        if found and route.method == method:
            query = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
            assert set(query) <= {name for name, _ in route.query}, (route.name, query)
            body = msgspec.json.decode(octets or b"{}", type=route.body) if route.body else None
            where = {name: unquote(value) for name, value in found.groupdict().items()}
            return Asked(route.name, where, query, body, headers)
    raise AssertionError(f"{method} {target} is not in the interface")


def row(number: int, state: str = "RUNNING", **more: Any) -> api.JobRow:
    return api.JobRow(**(plain(number, state) | more))


def job(number: int, state: str = "RUNNING", **more: Any) -> api.JobBody:
    return api.JobBody(**(plain(number, state) | more))


def plain(number: int, state: str) -> dict[str, Any]:
    return {
        "id": number, "state": state, "name": f"job-{number}", "user": "ann", "queue": "default", "klass": "normal",
        "pool": "main", "submit_ms": 1_700_000_000_000 + number, "cpus": 1.0,
    }  # fmt: skip


def waited(rows: list[api.JobRow], total: int | None = None, running: int = 0) -> api.WaitBody:
    """All of these have ended; more may be asked for."""
    failed = sum(one.state != "COMPLETED" for one in rows)
    many = len(rows) if total is None else total
    done = len(rows) == many
    return api.WaitBody(total=many, ended=len(rows), running=running, failed=failed, rows=rows if done else [])


def until(holds: Callable[[], bool], what: str = "") -> None:
    """Waits for something that no event tells of."""
    pause = threading.Event()
    end = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < end, f"{what or holds} never came true"
        pause.wait(0.01)
