"""The transport: connections that are kept, answers in every shape, and everything a server can do wrong."""

import os
import threading
from pathlib import Path

import pytest

from tests.cli.conftest import Tide
from tests.kit.fake_server import Asked, FakeServer, Problem, Raw, row
from tidegate.cli.client import Answer, BrokenError, Client, GoneError, Place, server_events
from tidegate.cli.failure import FailureError
from tidegate.cli.options import Options
from tidegate.cli.server import ALWAYS, BUSY_TRIES, NEVER, RefusedError, Server, quote, target_of
from tidegate.wire import api


def connected(fake: FakeServer) -> Server:
    """As a command has it, to this very server."""
    server = Server.__new__(Server)
    server.start, server.client = NEVER, Client(Place(home=str(fake.home)))
    return server


def nodes(names: int = 1) -> api.NodesBody:
    return api.NodesBody(nodes=[api.NodeRow(name=f"n{at}", pool="p", state="up", capacity={}, free={})
                                for at in range(names)])  # fmt: skip


def test_calls_share_a_connection(server: FakeServer):
    server.on("nodes", nodes(3))
    client = connected(server)
    for _ in range(5):
        assert len(client.call("GET", "/v1/nodes")["nodes"]) == 3
    assert server.connections == 1


def test_a_connection_closed_by_the_server_is_made_anew(server: FakeServer):
    server.on("nodes", Raw([b'{"nodes":[]}'], headers={"Connection": "close"}))
    client = connected(server)
    assert client.call("GET", "/v1/nodes") == client.call("GET", "/v1/nodes") == {"nodes": []}
    assert server.connections == 2


def test_a_connection_that_died_while_idle_is_made_anew(server: FakeServer):
    server.on("nodes", nodes())
    client = connected(server)
    client.call("GET", "/v1/nodes")
    server.stop()
    server.start()
    assert client.call("GET", "/v1/nodes")["nodes"]


def test_large_answers_come_whole_in_any_pieces(server: FakeServer):
    text = b'{"nodes":[' + b",".join(b'{"name":"n%d"}' % at for at in range(50_000)) + b"]}"
    pieces = [text[at : at + 7001] for at in range(0, len(text), 7001)]
    client = connected(server)
    for answer in (Raw(pieces, chunked=True), Raw(pieces), Raw([text[:1], text[1:]], chunked=True)):
        server.on("nodes", answer)
        assert len(client.call("GET", "/v1/nodes")["nodes"]) == 50_000
    assert server.connections == 1


def test_an_answer_without_length_ends_with_the_connection(server: FakeServer):
    server.on("nodes", Raw([], head=b'HTTP/1.1 200 OK\r\n\r\n{"nodes":[]}'))
    assert connected(server).call("GET", "/v1/nodes") == {"nodes": []}


def test_what_comes_before_the_answer_is_passed_over(server: FakeServer):
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    server.on("nodes", Raw([], head=head))
    assert connected(server).call("GET", "/v1/nodes") == {}


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\n",
    ],
)
def test_a_server_that_dies_in_its_answer_is_gone(server: FakeServer, head: bytes):
    server.on("nodes", Raw([], head=head))
    with pytest.raises(GoneError, match="went away"):
        connected(server).call("GET", "/v1/nodes", again=False)


@pytest.mark.parametrize(
    "head",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xff",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 4\r\n\r\nhelp",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 12\r\n\r\n{\"error\":[] }",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20,
        b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_answer_is_told_as_such(server: FakeServer, head: bytes):
    server.on("nodes", Raw([], head=head))
    with pytest.raises(BrokenError):
        connected(server).call("GET", "/v1/nodes")


def test_a_silent_server_is_left_after_a_while(server: FakeServer):
    enough = threading.Event()
    server.on("nodes", lambda _: enough.wait(20))
    client = connected(server)
    client.client.timeout_s = 0.05
    try:
        with pytest.raises(GoneError, match="was silent"):
            client.call("GET", "/v1/nodes", again=False)
    finally:
        enough.set()


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_a_bounded_number_of_times(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, status: int
):
    slept: list[float] = []
    monkeypatch.setattr("tidegate.cli.server.time.sleep", slept.append)
    busy = Problem(status, "too many requests", "try again", {"Retry-After": "3"})
    server.on("nodes", busy)
    with pytest.raises(RefusedError, match="too many requests"):
        connected(server).call("GET", "/v1/nodes")
    assert slept == [3.0] * BUSY_TRIES
    answers = iter([busy, Problem(503, "x", "y", {"Retry-After": "99999"}), Problem(503, "x", "y"), nodes()])
    server.on("nodes", lambda _: next(answers))
    assert connected(server).call("GET", "/v1/nodes")["nodes"]
    assert slept[BUSY_TRIES:] == [3.0, 5.0, 1.0]


def test_a_call_is_repeated_when_the_server_restarts(server: FakeServer):
    answers = iter([Raw([], head=b""), Raw([b"{"], cut=True, chunked=True), nodes()])
    server.on("nodes", lambda _: next(answers))
    assert connected(server).call("GET", "/v1/nodes")["nodes"]


def test_a_call_that_may_not_be_repeated_is_not(server: FakeServer):
    server.on("requeue", Raw([], head=b""))
    client = connected(server)
    with pytest.raises(GoneError):
        client.call("POST", "/v1/jobs/1/requeue", None, {}, again=False)
    assert len(server.said("requeue")) == 1


def test_a_refusal_by_another_version_says_so(home: Path):
    with FakeServer(home, version="9.9.9") as fake:
        fake.on("nodes", Problem(400, "unknown field", "leave it out"))
        with pytest.raises(RefusedError, match=r"the server is version 9\.9\.9"):
            connected(fake).call("GET", "/v1/nodes")


def test_a_socket_without_permission_is_explained(server: FakeServer, monkeypatch: pytest.MonkeyPatch):
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tidegate.cli.client.reach", denied)
    with pytest.raises(FailureError, match="ask whoever runs that server"):
        connected(server).call("GET", "/v1/nodes")


def test_a_home_may_have_a_long_path(tmp_path: Path):
    home = tmp_path / ("long" * 30)
    with FakeServer(home) as fake:
        fake.on("nodes", nodes())
        assert connected(fake).call("GET", "/v1/nodes")["nodes"]


def test_over_tcp_the_token_goes_along(tmp_path: Path, tide: Tide):
    with FakeServer(tmp_path, tcp=True) as fake:
        fake.on("nodes", nodes())
        address = {"TIDEGATE_SERVER": f"http://127.0.0.1:{fake.port}", "TIDEGATE_TOKEN": "s3cret"}
        assert tide("nodes", **address).returncode == 0
        assert fake.asked[-1].headers["authorization"] == "Bearer s3cret"
        done = tide("nodes", TIDEGATE_SERVER=address["TIDEGATE_SERVER"])
        assert (done.returncode, "TIDEGATE_TOKEN is not" in done.stderr) == (1, True)
    done = tide("nodes", **address)
    assert (done.returncode, "no server answers at http://127.0.0.1" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "https://127.0.0.1:1", "http://:80", "http://x:99999999", "http://x:y"]
)
def test_a_bad_address_is_explained(tide: Tide, address: str):
    done = tide("nodes", TIDEGATE_SERVER=address, TIDEGATE_TOKEN="t")
    assert (done.returncode, "write http://HOST:PORT" in done.stderr) == (1, True)


def test_events_are_read_however_they_are_cut(server: FakeServer):
    text = b': hello\n\nid: 1\ndata: {"a":\ndata: 1}\n\nevent: x\r\nid: 2\r\ndata: \xc3\xbc\r\n\r\ndata: left open'
    for size in (1, 2, 5, 1000):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        server.on("events", Raw(pieces, chunked=True))
        answer = connected(server).open("/v1/events", "text/event-stream")
        assert [(one, data) for one, data in server_events(answer) if data] == [("1", '{"a":\n1}'), ("2", "ü")]


def test_the_rest_of_an_unread_answer_is_dropped(server: FakeServer):
    server.on("nodes", Raw([b"{}" * 10], chunked=True))
    server.on("status", Raw([b'{"seq":1}']))
    client = connected(server)
    answer = client.open("/v1/nodes", "text/plain")
    assert isinstance(answer, Answer)
    assert client.call("GET", "/v1/status") == {"seq": 1}


def test_queries_read_back_as_they_were(server: FakeServer):
    server.on("jobs", lambda asked: api.JobsBody(jobs=[row(1, name=asked.query["user"])]))
    text = "a b&c=d+ü/?#%\n"
    assert (
        connected(server).call("GET", "/v1/jobs", {"user": text, "queue": None, "state": ""})["jobs"][0]["name"] == text
    )
    assert server.asked[-1].query == {"user": text}
    assert (quote(os.fsdecode(b"\xff")), target_of("/x")) == ("%FF", "/x")


def test_a_lost_server_is_given_up_in_the_end(server: FakeServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tidegate.cli.server.BACK_S", 0.3)
    client = connected(server)
    server.stop()
    with pytest.raises(GoneError, match="no server answers"):
        client.call("GET", "/v1/nodes")


def said_of(home: Path) -> Options:
    options = Options()
    options.__dict__["home"] = str(home)
    return options


def test_a_server_that_was_lost_is_started_again(server: FakeServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tidegate.cli.server.BACK_S", 2.0)
    server.on("nodes", nodes())
    client = Server(said_of(server.home), ALWAYS)
    server.stop()
    monkeypatch.setattr("tidegate.cli.starting.start_server", lambda *_: server.start())
    assert client.call("GET", "/v1/nodes")["nodes"]


def test_asked_is_what_the_interface_says(server: FakeServer):
    server.on("cancel", api.DoneBody(done=True))
    connected(server).call("POST", "/v1/jobs/12/cancel", None, {"index": 5})
    assert server.asked == [
        Asked("cancel", {"job": "12"}, {}, api.TaskBody(index=5), server.asked[0].headers)
    ]  # fmt: skip
