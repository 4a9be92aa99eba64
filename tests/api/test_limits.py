"""Every limit of the HTTP server is reached: connections, streams that are not read, commands a second, followers."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tidegate.api import access, http
from tidegate.api.access import Access, Peer
from tidegate.api.http import Connection, Request, Site
from tidegate.api.words import problem

WITHIN_S = 20
ANN = Peer("ann")
OK = b"HTTP/1.1 200 "


def served(
    path: Path, handler: Callable[[Request], None], client: Callable[[], Coroutine[Any, Any, None]],
    peer: Peer = ANN,
) -> None:  # fmt: skip
    """Runs the client against a server of this process."""

    async def both() -> None:
        site = Site(handler, problem, lambda token: Peer("bob" if token else ""))
        make = partial(Connection, site, lambda _: peer)
        server = await asyncio.get_running_loop().create_unix_server(make, str(path))
        try:
            await asyncio.wait_for(client(), WITHIN_S)
        finally:
            server.close()
            site.close()

    asyncio.run(both())


def test_more_connections_than_there_may_be_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 2)
    path = tmp_path / "sock"

    async def client() -> None:
        first, second, third = [await asyncio.open_unix_connection(str(path)) for _ in range(3)]
        said = await third[0].read()
        assert said.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1\r\n" in said
        assert b"too many connections" in said
        first[1].close()
        await first[1].wait_closed()
        second[1].write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await second[0].readline()).startswith(OK)
        again = await asyncio.open_unix_connection(str(path))
        again[1].write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await again[0].readline()).startswith(OK), "there is room again"
        for _, writer in (second, third, again):
            writer.close()

    served(path, lambda request: request.answer(200, b"{}"), client)


def test_strangers_cannot_take_every_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STRANGERS_MAX", 1)
    path = tmp_path / "sock"

    async def client() -> None:
        first, second = [await asyncio.open_unix_connection(str(path)) for _ in range(2)]
        assert (await second[0].read()).startswith(b"HTTP/1.1 503 ")
        first[1].write(b"GET / HTTP/1.1\r\nAuthorization: x\r\n\r\n")
        assert (await first[0].readline()).startswith(OK)
        for _, writer in (first, second):
            writer.close()

    served(path, lambda request: request.answer(200, b"{}"), client, Peer.nobody())


def test_nobodys_body_is_not_taken_in(tmp_path: Path) -> None:
    path = tmp_path / "sock"

    async def client() -> None:
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 401 ")
        writer.close()

    served(path, lambda request: request.answer(200, b"{}"), client, Peer.nobody())


def test_what_came_before_nonsense_is_answered_first(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    asked: list[Request] = []

    def later(request: Request) -> None:
        asked.append(request)
        asyncio.get_running_loop().call_later(0.05, request.answer, 200, request.target)

    async def client() -> None:
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"GET /one HTTP/1.1\r\n\r\nGET /two HTTP/1.1\r\n\r\nnonsense\r\n\r\n")
        said = await reader.read()
        assert [said.index(word) for word in (b"/one", b"/two", b" 400 ")] == sorted(
            said.index(word) for word in (b"/one", b"/two", b" 400 ")
        )
        assert said.count(b"HTTP/1.1 ") == 3
        writer.close()

    served(path, later, client)
    assert [request.target for request in asked] == [b"/one", b"/two"]


def test_who_does_not_read_a_stream_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STREAM_BACKLOG_MAX", 1 << 16)
    path, gone = tmp_path / "sock", asyncio.Event()

    def pour(request: Request) -> None:
        if not request.gone:
            request.send(bytes(1 << 20))
            asyncio.get_running_loop().call_soon(pour, request)

    def handler(request: Request) -> None:
        request.on_gone = gone.set
        request.stream(b"text/event-stream")
        pour(request)

    async def client() -> None:
        _, writer = await asyncio.open_unix_connection(str(path), limit=1 << 16)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await gone.wait()
        writer.close()

    served(path, handler, client)


def test_a_user_has_so_many_commands_a_second(tmp_path: Path) -> None:
    asks = Access(tmp_path / "tokens")
    assert asks.spend("ann", access.BURST, 10.0) == 0
    assert asks.spend("ann", 1000, 10.0) == pytest.approx(1000 / access.RATE_PER_S)
    assert asks.spend("bob", access.BURST, 10.0) == 0, "one user takes nothing from another"
    assert asks.spend("ann", 1000, 10.0 + 1000 / access.RATE_PER_S) == 0
    assert asks.spend("ann", 1, 10.0 + 1000 / access.RATE_PER_S) > 0
    assert asks.spend("ann", access.BURST + 1, 1000.0) > 0, "no rest saves up more than a burst"
