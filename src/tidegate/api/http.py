"""HTTP/1.1 on asyncio: parsed by httptools, one request of a connection at a time, everything bounded.

Own code and not a framework because the server needs the peer's credentials, answers that wait for a flush, and
a few tens of microseconds a request (docs/decisions/0013).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import httptools

from tidegate import __version__
from tidegate.api.access import Peer

BODY_MAX = 16 << 20
HEADERS_MAX = 100
TARGET_MAX = 32 << 10
HEADER_MAX = 16 << 10
PIPELINED_MAX = 64
CONNECTIONS_MAX = 1000
STRANGERS_MAX = 500
"""So many of them may be by TCP, where anybody can connect: the rest is for this machine."""
STREAM_BACKLOG_MAX = 8 << 20
"""A reader of a stream that falls behind so far is cut off; it can go on from the last event it saw."""

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
_SERVER = f"Server: tidegate/{__version__}\r\n"
_BUSY = {429: "Retry-After: 1\r\n", 503: "Retry-After: 1\r\n"}
_STATUS = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n{_SERVER}{_BUSY.get(status.value, '')}".encode()
    for status in HTTPStatus
}
KEPT_HEADERS = (b"accept", b"authorization", b"content-length", b"last-event-id", b"connection")


class Request:
    """What was asked. Answer it once, now or later, by `answer`; or `stream` and then `send` until it is `gone`."""

    __slots__ = ("body", "connection", "gone", "headers", "method", "on_gone", "peer", "query", "target")

    def __init__(
        self, connection: "Connection", peer: Peer, method: str, target: bytes, headers: dict[bytes, bytes]
    ) -> None:
        self.connection = connection
        self.peer = peer
        self.method = method
        self.target, _, self.query = target.partition(b"?")
        self.headers = headers
        self.body = b""
        self.gone = False  # nobody is there to be answered any more
        self.on_gone: Callable[[], None] | None = None

    def answer(self, status: int, body: bytes, kind: bytes = JSON, extra: bytes = b"") -> None:
        if not self.gone:
            self.connection.respond(status, body, kind, extra)

    def fail(self, status: int, body: bytes) -> None:
        """Whatever has been sent so far."""
        if self.connection.streaming:
            self.connection.transport.abort()
        else:
            self.answer(status, body)

    def stream(self, kind: bytes) -> None:
        self.connection.begin_stream(kind)

    def send(self, chunk: bytes) -> None:
        if not self.gone:
            self.connection.send_chunk(chunk)


Handler = Callable[[Request], None]
Problem = tuple[int, str, str]
"""Status, what is wrong, and what to do."""


class Site:
    """Who answers, and who is connected."""

    def __init__(
        self, handler: Handler, problem: Callable[[str, str], bytes], by_token: Callable[[bytes], Peer]
    ) -> None:
        self.handler = handler
        self.problem = problem  # the body of an error
        self.by_token = by_token  # who asks, where the connection does not say
        self.connections: set[Connection] = set()

    def close(self) -> None:
        for connection in list(self.connections):
            connection.close()


class Connection(asyncio.Protocol):
    """One client. Its requests are answered in order; the next is looked at when the last was answered."""

    def __init__(self, site: Site, identify: Callable[[asyncio.BaseTransport], Peer]) -> None:
        self.site = site
        self.identify = identify
        self.peer = self.asking = Peer.nobody()
        self.parser: Any = httptools.HttpRequestParser(self)
        self.waiting: deque[Request] = deque()
        self.current: Request | None = None
        self.streaming = False
        self.last = False  # close after this answer
        self.refusal: Problem | None = None  # what the last answer will be
        self.transport: asyncio.Transport

    # -- what asyncio calls ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.peer = self.identify(transport)
        connected = self.site.connections
        connected.add(self)
        strangers = 0 if self.peer.user else sum(not one.peer.user for one in connected)
        if len(connected) > CONNECTIONS_MAX or strangers > STRANGERS_MAX:
            self._refuse(503, "too many connections", "close some, or try again")

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._stay_at_1_1()
        except httptools.HttpParserCallbackError as error:
            reason = error.__context__
            if not isinstance(reason, _NotTakenError):
                raise
            self._refuse(*reason.problem)
        except httptools.HttpParserError as error:
            self._refuse(400, f"not a request ({error})", "send HTTP/1.1")

    def eof_received(self) -> bool:
        return False  # a client that went away is not answered

    def connection_lost(self, exc: Exception | None) -> None:
        self.site.connections.discard(self)
        for request in (self.current, *self.waiting):
            if request is not None:
                request.gone = True
                if request.on_gone is not None:
                    request.on_gone()
        self.current = None
        self.waiting.clear()

    # -- what the parser calls ---------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers: dict[bytes, bytes] = {}
        self.header_count = 0
        self.chunks: list[bytes] = []
        self.size = 0

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > TARGET_MAX:
            raise _NotTakenError(414, "the address is too long", "ask for fewer jobs at once")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.header_count += 1
        name = name.lower()
        if self.header_count > HEADERS_MAX or len(value) > HEADER_MAX:
            raise _NotTakenError(431, "too many or too large headers", "send fewer")
        if name in KEPT_HEADERS:
            self.headers[name] = value
            if name == b"content-length" and value.isdigit() and int(value) > BODY_MAX:
                raise _NotTakenError(413, f"a body of {value.decode()} octets", f"send at most {BODY_MAX}, in parts")

    def on_headers_complete(self) -> None:
        """Nobody can make the server hold a body."""
        self.asking = self.peer if self.peer.user else self.site.by_token(self.headers.get(b"authorization", b""))
        if not self.asking.user:
            raise _NotTakenError(401, "nobody is asking", "send a token: Authorization: Bearer TOKEN")

    def on_body(self, body: bytes) -> None:
        self.size += len(body)
        if self.size > BODY_MAX:
            raise _NotTakenError(413, f"a body of more than {BODY_MAX} octets", "send it in parts")
        self.chunks.append(body)

    def on_message_complete(self) -> None:
        method = self.parser.get_method().decode("ascii", "replace")
        request = Request(self, self.asking, method, self.url, self.headers)
        request.body = self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)
        if not self.parser.should_keep_alive():
            self.last = True
        if self.current is None:
            self.current = request
            self.site.handler(request)
        else:
            self.waiting.append(request)
            if len(self.waiting) >= PIPELINED_MAX:
                self.transport.pause_reading()

    # -- answering ---------------------------------------------------------------------------------------

    def respond(self, status: int, body: bytes, kind: bytes, extra: bytes) -> None:
        closing = self.last and not self.waiting and self.refusal is None
        self.transport.write(
            b"%bContent-Type: %b\r\nContent-Length: %d\r\n%b%b\r\n%b"
            % (_STATUS[status], kind, len(body), extra, b"Connection: close\r\n" if closing else b"", body)
        )
        self._next(closing)

    def _next(self, closing: bool) -> None:
        self.current = None
        if closing:
            self.transport.close()
            return
        if self.waiting:
            self.current = self.waiting.popleft()
            if len(self.waiting) == PIPELINED_MAX - 1:
                self.transport.resume_reading()
            # Not from here: a long pipeline of quick answers would become a deep stack.
            asyncio.get_running_loop().call_soon(self._handle_current, self.current)
        elif self.refusal is not None:
            (status, what, cure), self.refusal = self.refusal, None
            self.respond(status, self.site.problem(what, cure), JSON, b"")

    def _handle_current(self, request: Request) -> None:
        if not request.gone:
            self.site.handler(request)

    def begin_stream(self, kind: bytes) -> None:
        self.streaming = True
        self.transport.write(
            b"%bContent-Type: %b\r\nTransfer-Encoding: chunked\r\nCache-Control: no-store\r\n\r\n"
            % (_STATUS[200], kind)
        )

    def send_chunk(self, chunk: bytes) -> None:
        """An empty one ends the stream."""
        if self.transport.get_write_buffer_size() > STREAM_BACKLOG_MAX:
            self.transport.abort()
            return
        self.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        if not chunk:
            self.streaming = False
            self._next(closing=self.last)

    def _stay_at_1_1(self) -> None:
        """An offer to speak something else may be ignored; but the parser reads nothing that follows it."""
        self.transport.pause_reading()
        self.last = True
        if self.current is None:
            self.transport.close()

    def _refuse(self, status: int, what: str, cure: str) -> None:
        """What was sent makes no sense, so neither would what comes after it. What came before is answered first."""
        self.transport.pause_reading()
        self.last = True
        if self.streaming:
            self.transport.abort()
        elif self.current is None:
            self.respond(status, self.site.problem(what, cure), JSON, b"")
        else:
            self.refusal = (status, what, cure)

    def close(self) -> None:
        """The server goes: an answer that is owed is still sent if it comes; everything else ends."""
        self.last = True
        if self.streaming:
            self.transport.write(b"0\r\n\r\n")
        self.transport.close()


class _NotTakenError(Exception):
    def __init__(self, status: int, what: str, cure: str) -> None:
        super().__init__(what)
        self.problem = (status, what, cure)
