"""The policy of a real server: shown, compared, changed by those who may, held to a version, and back again."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.kit.live import Client, LiveServer, RefusedError
from tidegate.api.access import add_token
from tidegate.api.policies import WAITING_MAX
from tidegate.wire import api
from tidegate.wire.policy_file import dump_policy, load_builtin, load_policy

HOUR_MS = 3_600_000
VIRTUAL = ("--engine", "virtual", "--nodes", "1", "--cpus", "4")


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveServer]:
    with LiveServer(tmp_path / "home", *VIRTUAL) as server:
        yield server


@pytest.fixture
def client(live: LiveServer) -> Client:
    return live.client()


def put(client: Client, **wish: Any) -> api.PolicySetBody:
    return msgspec.convert(client.ask("PUT", "/v1/policy", wish), api.PolicySetBody)


def compared(client: Client, **choice: Any) -> api.PolicyDiffBody:
    return msgspec.convert(client.ask("POST", "/v1/policy/diff", choice), api.PolicyDiffBody)


def shown(client: Client, query: str = "") -> api.PolicyBody:
    return msgspec.convert(client.ask("GET", f"/v1/policy{query}"), api.PolicyBody)


def history(client: Client, query: str = "") -> list[api.PolicyVersionRow]:
    return msgspec.convert(client.ask("GET", f"/v1/policy/history{query}"), api.PolicyHistoryBody).versions


def passed_over(client: Client) -> list[str]:
    return [note for note in client.ask("GET", "/v1/status").get("notes", ()) if "--policy" in note]


def refused(client: Client, method: str, path: str, body: Any = None) -> tuple[int, str]:
    with pytest.raises(RefusedError) as caught:
        client.ask(method, path, body)
    return caught.value.status, str(caught.value)


def test_a_new_home_has_the_default_policy(client: Client) -> None:
    found = shown(client)
    assert (found.version, found.name, found.note) == (1, "tide", "tide up, in a new home")
    assert load_policy(found.text, "shown") == load_builtin("tide")
    assert client.ask("GET", "/v1/status")["policy_version"] == 1


def test_changed_recorded_and_back(client: Client) -> None:
    me = shown(client).by
    assert put(client, name="easy", note="as published", if_version=1) == api.PolicySetBody(True, 2, "easy")
    assert put(client, name="easy", if_version=1) == api.PolicySetBody(False, 2, "easy"), "the same again is none"
    text = "name: lab\norder: {by: shortest, ageing_bound: 7d}\n"
    assert put(client, text=text).version == 3
    assert put(client, version=2, note="back").version == 4
    rows = history(client)
    assert [(row.version, row.name, row.by, row.note) for row in rows] == [
        (4, "easy", me, "back"), (3, "lab", me, ""), (2, "easy", me, "as published"),
        (1, "tide", me, "tide up, in a new home"),
    ]  # fmt: skip
    assert rows[1].changed == "order.by fcfs → shortest, order.ageing_bound 0s → 7d"
    assert rows[3].changed == "the first"
    assert [row.version for row in history(client, "?limit=2")] == [4, 3]
    assert load_policy(shown(client, "?version=3").text, "old") == load_policy(text, "lab")
    assert shown(client).text == dump_policy(load_builtin("easy"))


def test_what_it_means_is_said_before_and_changes_nothing(client: Client) -> None:
    client.submit("true", cpus=4, expected_ms=HOUR_MS)
    large = client.submit("true", cpus=4, expected_ms=2 * HOUR_MS, queue="night")
    small = client.submit("true", cpus=1, expected_ms=1000)
    found = compared(client, name="fcfs")
    assert (found.version, found.old, found.new, found.trouble) == (1, "tide", "fcfs", "")
    assert "order.by" in [change.path for change in found.changes]
    effect = found.effect
    assert effect is not None
    assert (effect.running, effect.waiting, effect.looked_at) == (1, 2, 2)
    rows = {row.queue: row for row in effect.rows}
    assert (rows["night"].forward, rows["night"].back) == (1, 0)
    assert (rows["default"].forward, rows["default"].back) == (0, 1)
    assert shown(client).version == 1
    dry = put(client, name="fcfs", dry_run=True)
    assert (dry.changed, dry.version, dry.name) == (True, 1, "tide")
    assert dry.diff is not None
    assert dry.diff.changes == found.changes
    assert [row["state"] for row in client.rows(job=f"{large},{small}")] == ["WAITING"] * 2
    assert compared(client, name="tide").changes == []


@pytest.mark.parametrize(
    ("wish", "status", "says"),
    [
        ({"text": "name: a\norder: fast\nbackfil: 1\n", "source": "a.yaml"}, 400, "a.yaml:2:8: order: there is no"),
        ({"text": "name: a\norder: fast\nbackfil: 1\n", "source": "a.yaml"}, 400, "a.yaml:3:1: backfil"),
        ({"text": "name: a\n\torder: fcfs"}, 400, "policy:2:1: a tab"),
        ({"text": "- a"}, 400, "policy:1:1"),
        ({"text": "a: " * 40_000}, 400, "length <= 65536"),
        ({"name": "eazy"}, 400, "did you mean 'easy'"),
        ({"version": 7}, 404, "no version 7"),
        ({}, 400, "give one of text, name and version"),
        ({"name": "easy", "version": 1}, 400, "give one of text, name and version"),
        ({"name": "easy", "note": "x" * 1001}, 400, "length <= 1000"),
        ({"name": "easy", "if_version": 7}, 409, "version 1 ('tide'), not 7"),
        ({"name": "easy", "if_version": 7, "dry_run": True}, 409, "version 1 ('tide'), not 7"),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(client: Client, wish: dict[str, Any], status: int, says: str) -> None:
    found = refused(client, "PUT", "/v1/policy", wish)
    assert found[0] == status, found
    assert says in found[1]
    assert shown(client).version == 1


def test_a_doubt_is_told_and_holds_nothing_up(client: Client) -> None:
    text = "name: a\norder: {by: shortest, ageing_bound: 0}\n"
    found = compared(client, text=text, source="a.yaml")
    assert [warning.partition(": ")[0] for warning in found.warnings] == ["a.yaml:2:23"]
    assert put(client, text=text).version == 2


def test_a_restart_keeps_what_was_applied_whatever_up_is_told(live: LiveServer) -> None:
    put(live.client(), name="easy", note="mine")
    live.kill()
    live.start()
    assert shown(live.client()).name == "easy"
    live.stop()
    live.options = (*live.options, "--policy", "fcfs")
    live.start()
    client = live.client()
    found = shown(client)
    assert (found.version, found.name, found.note) == (2, "easy", "mine")
    (note,) = passed_over(client)
    assert "--policy fcfs was passed over: this home keeps the policy in force, version 2 ('easy')" in note
    assert "tide policy apply fcfs" in note
    put(client, name="fcfs")
    assert not passed_over(client)
    live.stop()
    live.start()
    assert not passed_over(live.client())


def test_what_runs_is_left_alone(live: LiveServer) -> None:
    client = live.client()
    job = client.submit("true", cpus=4, expected_ms=HOUR_MS)
    (before,) = client.rows(job=job)
    put(client, name="conservative")
    assert client.rows(job=job) == [before]


def test_many_at_once_are_all_answered(live: LiveServer) -> None:
    """They are judged one by one; who comes when too many wait is told to come again."""
    clients = [live.client() for _ in range(12)]
    for client in clients:
        client.connection.request("POST", "/v1/policy/diff", '{"name": "easy"}')
    statuses = [client.connection.getresponse().status for client in clients]
    assert set(statuses) <= {200, 503}
    assert statuses.count(200) >= WAITING_MAX


# -- who may -------------------------------------------------------------------------------------------------


def test_a_token_without_the_right_may_look_and_not_change(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with LiveServer(home, *VIRTUAL, "--listen", "127.0.0.1:0") as live:
        port = int(re.search(r"listening on http://127.0.0.1:(\d+)", live.said)[1])  # type: ignore[index]

        def asked(token: str, method: str, path: str, body: str) -> bytes:
            with socket.create_connection(("127.0.0.1", port), 20) as sock:
                head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
                sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
                got = b""
                while piece := sock.recv(65536):
                    got += piece
                return got

        ada = add_token(home / "tokens", "laptop", "ada", admin=False)
        grace = add_token(home / "tokens", "desk", "grace", admin=True)
        assert b'"changes":[{' in asked(ada, "POST", "/v1/policy/diff", '{"name": "easy"}')
        said = asked(ada, "PUT", "/v1/policy", '{"name": "easy"}')
        assert said.startswith(b"HTTP/1.1 403 ")
        assert b"ada may not change the policy" in said
        assert asked(ada, "PUT", "/v1/policy", '{"name": "easy", "dry_run": true}').startswith(b"HTTP/1.1 403 ")
        assert asked(grace, "PUT", "/v1/policy", '{"name": "easy"}').startswith(b"HTTP/1.1 200 ")
        assert history(live.client())[0].by == "grace"


AS_SOMEBODY = """
import os, socket, sys
os.setgroups([]); os.setgid(65432); os.setuid(65432)
sock = socket.socket(socket.AF_UNIX); sock.connect(sys.argv[1])
for method in ("PUT /v1/policy", "POST /v1/policy/diff"):
    sock.sendall(f"{method} HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 16\\r\\n\\r\\n".encode() + b'{"name": "easy"}')
    print(sock.recv(1 << 20).decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has others come to its socket")
def test_on_a_server_of_root_only_root_changes_it() -> None:
    place = Path(tempfile.mkdtemp())  # those of pytest are for one user
    place.chmod(0o755)
    try:
        with LiveServer(place / "home", *VIRTUAL) as live:
            command = [sys.executable, "-c", AS_SOMEBODY, str(live.home / "tide.sock")]
            said = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout
            assert "HTTP/1.1 403 " in said
            assert "65432 may not change the policy: that is for root and administrators" in said
            assert '"changes":[{' in said
            assert put(live.client(), name="easy").changed
    finally:
        shutil.rmtree(place)
