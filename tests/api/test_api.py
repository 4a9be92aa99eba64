"""The HTTP interface of a real server, whose jobs are virtual: what it answers, and what it does with nonsense."""

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.schema import mistakes
from tests.kit.live import Client, LiveServer, RefusedError, until
from tidegate.api.follow import SUBSCRIBERS_MAX
from tidegate.wire import api
from tidegate.wire.bodies import Body
from tidegate.wire.sockets import reach

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    home = tmp_path_factory.mktemp("api") / "home"
    with LiveServer(home, "--engine", "virtual", "--nodes", "4", "--cpus", "8", "--memory", "16G") as live:
        yield live


@pytest.fixture
def client(server: LiveServer) -> Client:
    return server.client()


def raw(server: LiveServer, octets: bytes, answers: int = 1) -> bytes:
    """What comes back for these octets: until the server closes, or so many answers have come."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(20)
        reach(str(server.home / "tide.sock"), sock.connect)
        sock.sendall(octets)
        got = b""
        while got.count(b"HTTP/1.1 ") < answers or b"\r\n\r\n" not in got:
            piece = sock.recv(65536)
            if not piece:
                break
            got += piece
        return got


def refused(client: Client, method: str, path: str, body: Any = None) -> tuple[int, str]:
    with pytest.raises(RefusedError) as caught:
        client.ask(method, path, body)
    return caught.value.status, str(caught.value)


# -- the document --------------------------------------------------------------------------------------------


def test_the_openapi_document_is_the_table_of_routes(client: Client) -> None:
    document = client.ask("GET", "/v1/openapi.json")
    assert document["openapi"].startswith("3.1")
    served = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert served == {(route.method, route.path) for route in api.ROUTES}
    text = json.dumps(document)
    for name in set(re.findall(r'"#/components/schemas/(\w+)"', text)):
        assert name in document["components"]["schemas"], name


NOT_ASKED = {"stop", "checkpoint", "suspend", "resume_job"}


def test_answers_are_what_the_document_says(client: Client) -> None:
    """Every call that answers with JSON is made, and each answer is held to the document that was served."""
    document = client.ask("GET", "/v1/openapi.json")
    policy = {"text": "name: q\nqueues: {default: {limit: {cpus: 8}}}\n", "source": "q.yaml"}
    client.ask("PUT", "/v1/policy", policy)
    job = client.submit("true", array="0-3%1", expected_ms=HOUR_MS, held=True, retry={"times": 2}, tags={"a": "b"})
    other, done = client.submit("true", held=True), client.submit("true", expected_ms=1)
    client.wait(done)
    bodies = {"submit": {"command": ["true"], "expected_ms": 1}, "submit_many": {"jobs": [{"command": []}]},
              "policy_diff": {"name": "easy"}, "set_policy": policy,
              "approve": {"until_ms": int(time.time() * 1000) + HOUR_MS, "cpus": 1},
              "reserve": {"name": "mine", "lasts_ms": HOUR_MS, "cpus": 1}}  # fmt: skip
    queries = {"wait": f"?job={done},{job}_1", "jobs": "?all=1"}
    called = set()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            name = operation["operationId"]
            content = operation["responses"]["200"].get("content")
            if content is None or name in NOT_ASKED:  # nothing here says that it runs, so nobody is asked
                continue
            known = other if name == "cancel" else job
            where = path.format(job=known, node="node3", queue="default", reservation="mine") + queries.get(name, "")
            answer = client.ask(method.upper(), where, None if method == "get" else bodies.get(name, {}))
            assert mistakes(answer, content["application/json"]["schema"], document) == [], name
            called.add(name)
    assert called == {route.name for route in api.ROUTES if route.answer is not None} - NOT_ASKED
    client.ask("POST", f"/v1/jobs/{job}/cancel", {})
    client.ask("PUT", "/v1/policy", {"name": "tide"})
    refusal = document["paths"]["/v1/jobs"]["post"]["responses"]["default"]["content"]["application/json"]["schema"]
    with pytest.raises(RefusedError) as caught:
        client.ask("POST", "/v1/jobs", {})
    assert mistakes(caught.value.body, refusal, document) == []


def test_every_field_of_an_answer_is_always_there(client: Client) -> None:
    job = client.submit("true", cpus=1, expected_ms=1)
    bodies: dict[str, type[Body]] = {
        "/v1/jobs": api.JobsBody, f"/v1/jobs/{job}": api.JobBody, "/v1/nodes": api.NodesBody,
        "/v1/status": api.StatusBody, f"/v1/wait?job={job}": api.WaitBody,
    }  # fmt: skip
    for path, body in bodies.items():
        assert list(client.ask("GET", path)) == list(body.__struct_encode_fields__), path


def test_no_more_than_a_hundred_follow(server: LiveServer, client: Client) -> None:
    followers = [server.client() for _ in range(SUBSCRIBERS_MAX)]
    for follower in followers:
        follower.connection.request("GET", "/v1/events")
        assert follower.connection.getresponse().status == 200
    assert refused(client, "GET", "/v1/events") == (503, "503: 100 others follow already; try again later")
    for follower in followers:
        follower.connection.close()
    until(lambda: answered(server.client(), "/v1/events") == 200)


def answered(client: Client, path: str) -> int:
    client.connection.request("GET", path)
    status = client.connection.getresponse().status
    client.connection.close()
    return status


# -- submitting ----------------------------------------------------------------------------------------------


def test_a_job_is_submitted_waits_and_ends(client: Client) -> None:
    job = client.submit("true", cpus=2, memory_mib=100, expected_ms=50, name="quick", tags={"team": "a"})
    assert client.wait(job)["failed"] == 0
    shown = client.show(job)
    assert (shown["state"], shown["name"], shown["cpus"], shown["memory_mib"]) == ("COMPLETED", "quick", 2, 100)
    assert shown["tags"] == {"team": "a"}
    assert shown["attempts"] == 1
    (row,) = [row for row in client.rows(all=1) if row["id"] == job]
    assert {"id", "state", "name", "user", "queue", "exit_code", "attempts"} <= row.keys()


def test_an_array_is_one_row_until_its_tasks_start(client: Client) -> None:
    job = client.submit("true", cpus=8, array="0-9%2", expected_ms=HOUR_MS)
    rows = [row for row in client.rows() if row["id"] == job]
    assert [(row["tasks"], row["indices"], row["index"]) for row in rows] == [
        (8, "2-9", None), (None, None, 0), (None, None, 1)
    ]  # fmt: skip
    client.ask("POST", f"/v1/jobs/{job}/cancel", {})
    body = client.wait(job)
    assert (body["total"], body["ended"], body["failed"]) == (10, 10, 10)


def test_the_same_key_is_the_same_job(client: Client) -> None:
    wish = {"command": ["true"], "key": "once", "expected_ms": 1}
    first = client.ask("POST", "/v1/jobs", wish)
    again = client.ask("POST", "/v1/jobs", wish)
    assert again == {"id": first["id"], "known": True}


def test_a_batch_has_an_answer_for_each(client: Client) -> None:
    jobs = [{"command": ["true"], "expected_ms": 1}, {"command": []}, {"command": ["true"], "cpus": 1000}]
    results = client.ask("POST", "/v1/jobs/batch", {"jobs": jobs})["results"]
    assert results[0]["id"]
    assert "nothing to run" in results[1]["error"]["what"]
    assert "never fit" in results[2]["error"]["what"]
    assert client.ask("POST", "/v1/jobs/batch", {"jobs": []}) == {"results": []}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "nothing to run"),
        ({"command": ["x"], "cpu": 1}, "unknown field `cpu`"),
        ({"command": ["x"], "cpus": -1}, "cpus: expected `float` >= 0"),
        ({"command": "x"}, "command: expected `array`"),
        ({"command": ["x\0"]}, "zero octet"),
        ({"command": [""]}, "nothing to run"),
        ({"command": ["x"], "notify": "a\0b"}, "zero octet"),
        ({"command": ["x"], "cwd": "here"}, "not absolute"),
        ({"command": ["x"], "array": "5-1"}, "ends before it begins"),
        ({"command": ["x"], "after": [{"job": 1, "kind": "maybe"}]}, "use ok, any or fail"),
        ({"command": ["x"], "after": [{"job": 999999}]}, "job 999999 is not known"),
        ({"command": ["x"], "retry": {"times": 1, "on": ["exit:0"]}}, "codes go from 1 to 255"),
        ({"command": ["x"], "retry": {"times": 1, "on": ["sometimes"]}}, "use exit, exit:75"),
        ({"command": ["x"], "env": {"A=B": "c"}}, "environment variable"),
        ({"command": ["x"], "gpu_model": "h100"}, "ask for gpus too"),
        ({"command": ["x"], "pool": "moon"}, "there is no pool 'moon'"),
        ({"command": ["x"], "gpus": 1}, "no node of pool"),
        ({"command": ["x"], "cpus": 12.5, "memory_mib": 4}, "12.5 cpus, 4 MiB of memory can never fit"),
        ({"script": "echo"}, "begin it with a line such as #!/bin/sh"),
        ({"command": ["x"], "deadline_ms": 1}, "deadline"),
        ({"command": ["x"], "resources": {"cpus": 1}}, "use the field for cpus"),
    ],
)
def test_a_wish_that_cannot_be_meant_is_refused_by_name(client: Client, fields: dict[str, Any], says: str) -> None:
    status, text = refused(client, "POST", "/v1/jobs", fields)
    assert status in {400, 409}
    assert says in text


# -- acting --------------------------------------------------------------------------------------------------


def test_hold_release_cancel(client: Client) -> None:
    job = client.submit("true", held=True)
    assert [row["state"] for row in client.rows(job=job)] == ["HELD"]
    assert client.ask("POST", f"/v1/jobs/{job}/release", {}) == {"done": True}
    assert client.ask("POST", f"/v1/jobs/{job}/release", {}) == {"done": False}
    assert client.ask("POST", f"/v1/jobs/{job}/cancel", {}) == {"done": True}
    assert client.wait(job)["rows"][0]["state"] == "CANCELLED"
    status, text = refused(client, "POST", f"/v1/jobs/{job}/cancel", {})
    assert (status, "has ended: CANCELLED" in text) == (409, True)


def test_jobs_are_chosen_by_several_states(client: Client) -> None:
    held = client.submit("true", held=True, queue="chosen")
    gone = client.submit("true", held=True, queue="chosen")
    done = client.submit("true", expected_ms=1, queue="chosen")
    client.ask("POST", f"/v1/jobs/{gone}/cancel", {})
    client.wait(gone, done)

    def found(states: str, **query: Any) -> list[int]:
        return sorted(row["id"] for row in client.rows(state=states, queue="chosen", **query))

    assert found("held,running") == [held]
    assert found("held,cancelled", all=1) == [held, gone]
    assert found("cancelled,completed,failed", all=1) == [gone, done]
    assert found("running,waiting", all=1) == []
    text = client.raw("GET", "/v1/jobs?state=held,running&queue=chosen", headers={"Accept": "text/plain"}).decode()
    assert [line.split()[0] for line in text.splitlines()[1:]] == [str(held)]
    assert "use: HELD, WAITING" in refused(client, "GET", "/v1/jobs?state=held,well")[1]
    client.ask("POST", f"/v1/jobs/{held}/cancel", {})


def test_no_more_rows_than_asked_for(client: Client) -> None:
    """The live ones first, then the newest of what has ended; counted after all that is not wanted has gone."""
    ended = [client.submit("true", expected_ms=1, queue="few") for _ in range(3)]
    client.wait(*ended)
    big = client.submit("true", array="0-3", cpus=8, expected_ms=HOUR_MS, queue="few")
    held = [client.submit("true", held=True, queue="few") for _ in range(2)]

    def found(limit: int, **query: Any) -> tuple[list[int], bool]:
        words = "&".join(f"{name}={value}" for name, value in query.items())
        body = client.ask("GET", f"/v1/jobs?queue=few&limit={limit}&{words}")
        return [row["id"] for row in body["jobs"]], body["more"]

    assert found(1, state="held") == (held[:1], True)
    assert found(2, state="held") == (held, False)
    assert found(1, state="held", all=1) == (held[:1], True)
    assert found(3, state="held,completed", all=1) == ([ended[-1], *held], True)
    assert found(5, state="held,completed", all=1) == ([*ended, *held], False)
    path = "/v1/jobs?queue=few&limit=1&state=held"
    text = client.raw("GET", path, headers={"Accept": "text/plain"}).decode()
    assert [line.split()[0] for line in text.splitlines()[1:]] == [str(held[0])]
    for job in (big, *held):
        client.ask("POST", f"/v1/jobs/{job}/cancel", {})


def test_a_task_that_is_not_there_is_said(client: Client) -> None:
    alone = client.submit("true", expected_ms=1)
    array = client.submit("true", array="4-8:2", expected_ms=1)
    client.wait(alone, array)
    for path in (f"/v1/jobs/{array}?index=5", f"/v1/jobs/{array}/log?index=5", f"/v1/wait?job={alone},{array}_5"):
        assert refused(client, "GET", path) == (
            404,
            f"404: job {array} has no task 5; name one of its own, from 4 to 8",
        )
    for path in (f"/v1/jobs/{alone}?index=1", f"/v1/wait?job={alone}_1"):
        assert "is no array" in refused(client, "GET", path)[1]
    assert "say which of its tasks" in refused(client, "GET", f"/v1/jobs/{array}/log")[1]
    assert client.raw("GET", f"/v1/jobs/{array}/log?index=6") == b""
    assert client.raw("GET", f"/v1/jobs/{alone}/log?offset=999999999999999999") == b""


def test_nodes_drain_and_resume(client: Client) -> None:
    assert client.ask("POST", "/v1/nodes/node4/drain", {"why": "fan"}) == {"done": True}
    nodes = {node["name"]: node for node in client.ask("GET", "/v1/nodes")["nodes"]}
    assert (nodes["node4"]["state"], nodes["node4"]["why"]) == ("drained", "fan")
    assert client.ask("POST", "/v1/nodes/node4/resume", {}) == {"done": True}
    assert refused(client, "POST", "/v1/nodes/node9/drain", {})[0] == 409


def test_text_for_people(client: Client) -> None:
    job = client.submit("true", cpus=8, expected_ms=HOUR_MS, name="evil\x1b[2Jname")
    text = client.raw("GET", "/v1/jobs?width=80", headers={"Accept": "text/plain"}).decode()
    head, *lines = text.splitlines()
    assert head.split()[:4] == ["JOB", "NAME", "USER", "STATE"]
    assert any(line.split()[0] == str(job) for line in lines)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "\x1b" not in text
    client.ask("POST", f"/v1/jobs/{job}/cancel", {})


# -- following -----------------------------------------------------------------------------------------------


def test_events_come_in_order_from_where_one_left_off(server: LiveServer, client: Client) -> None:
    job = client.submit("true", expected_ms=1)
    client.wait(job)
    follower = server.client()
    follower.connection.request("GET", "/v1/events?after=0")
    answer = follower.connection.getresponse()
    seqs, ended = [], False
    while not ended:
        line = answer.readline().decode().rstrip("\n")
        if line.startswith("data: "):
            body = json.loads(line[6:])
            seqs.append(body["seq"])
            ended = body["type"] == "JobEnded" and body["event"]["task"] >> 20 == job
    follower.connection.close()
    assert seqs == sorted(set(seqs))
    assert "EnvironmentKept" not in seqs
    late = server.client()
    late.connection.request("GET", "/v1/events", headers={"Last-Event-ID": str(seqs[-1])})
    answer = late.connection.getresponse()
    another = client.submit("true", expected_ms=1)
    while not (line := answer.readline().decode()).startswith("data: "):
        assert line
    body = json.loads(line[6:])
    assert body["seq"] == seqs[-1] + 1 or body["seq"] > seqs[-1]
    late.connection.close()
    client.wait(another)


# -- nonsense ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("octets", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"DELETE /v1/jobs/1 HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"PUT /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405),
        (b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n{{{", 400),
        (b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n\xff\xfe", 400),
        (b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"GET /v1/jobs?limit=many HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /v1/jobs?colour=1&speed=9 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /v1/jobs/zero HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /v1/jobs/0 HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /v1/wait HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"A%d: x\r\n" % n for n in range(200)) + b"\r\n", 431),
    ],
)
def test_nonsense_is_answered_in_words(server: LiveServer, octets: bytes, status: int) -> None:
    got = raw(server, octets)
    assert got.startswith(b"HTTP/1.1 %d " % status), got[:200]
    body = json.loads(got.partition(b"\r\n\r\n")[2])
    assert body["error"]["what"]
    assert body["error"]["cure"]


def test_an_offer_to_upgrade_is_answered_in_http_1_1(server: LiveServer) -> None:
    got = raw(server, b"GET /v1/status HTTP/1.1\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n", answers=2)
    assert got.startswith(b"HTTP/1.1 200 ")
    assert got.count(b"HTTP/1.1 ") == 1


def test_pipelined_requests_are_answered_in_order(server: LiveServer) -> None:
    many = b"".join(b"GET /v1/jobs/%d HTTP/1.1\r\nHost: x\r\n\r\n" % (10**9 + n) for n in range(150))
    got = raw(server, many, answers=150)
    assert [int(n) for n in re.findall(rb"there is no job (\d+)", got)][:3] == [10**9, 10**9 + 1, 10**9 + 2]
    assert got.count(b"HTTP/1.1 404") == 150


def test_a_half_sent_request_holds_nobody_up(server: LiveServer, client: Client) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        reach(str(server.home / "tide.sock"), sock.connect)
        sock.sendall(b"POST /v1/jobs HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
        assert client.ask("GET", "/v1/status")["running"] >= 0


# -- tcp and tokens ------------------------------------------------------------------------------------------


def test_over_tcp_only_with_a_token(tmp_path: Path) -> None:
    from tidegate.api.access import add_token, remove_token

    home = tmp_path / "home"
    with LiveServer(home, "--engine", "virtual", "--listen", "127.0.0.1:0") as live:
        port = int(re.search(r"listening on http://127.0.0.1:(\d+)", live.said)[1])  # type: ignore[index]

        def status(header: str) -> bytes:
            with socket.create_connection(("127.0.0.1", port), 20) as sock:
                sock.sendall(f"GET /v1/status HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode())
                return sock.recv(65536).split(b"\r\n")[0]

        assert b" 401 " in status("")
        assert b" 401 " in status("Authorization: Bearer guess\r\n")
        token = add_token(home / "tokens", "laptop", "ada", admin=False)
        assert token not in (home / "tokens").read_text()
        assert b" 200 " in status(f"Authorization: Bearer {token}\r\n")
        assert remove_token(home / "tokens", "laptop")
        assert b" 401 " in status(f"Authorization: Bearer {token}\r\n")


def test_many_nodes_are_there_before_the_first_client(tmp_path: Path) -> None:
    """More than are taken in a turn: nobody is there yet who could end a wait."""
    with LiveServer(tmp_path / "h", "--engine", "virtual", "--nodes", "1500", "--cpus", "8", "--memory", "16G") as live:
        assert len(live.client().ask("GET", "/v1/nodes")["nodes"]) == 1500
