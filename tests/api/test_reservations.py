"""Reservations over the interface: who may make one, who may use it, and what everybody sees."""

import http.client
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.kit.live import Client, LiveServer, RefusedError
from tidegate.api.access import add_token
from tidegate.wire.reservations import ReservationRow, ReservationsBody

HOUR_MS = 3_600_000
POLICY = "name: lab\nreservations: {user_hours: {cpus: 2}, user_lasts_max: 2h}\n"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    home = tmp_path_factory.mktemp("reservations")
    (home / "lab.yaml").write_text(POLICY)
    options = ("--engine", "virtual", "--nodes", "2", "--cpus", "4", "--policy", str(home / "lab.yaml"),
               "--listen", "127.0.0.1:0")  # fmt: skip
    with LiveServer(home / "home", *options) as server:
        yield server


@pytest.fixture
def client(live: LiveServer) -> Client:
    return live.client()


def rows(client: Client) -> dict[str, ReservationRow]:
    body = msgspec.convert(client.ask("GET", "/v1/reservations"), ReservationsBody)
    return {row.name: row for row in body.rows}


def refused(client: Client, path: str, body: Any) -> tuple[int, str]:
    with pytest.raises(RefusedError) as caught:
        client.ask("POST", path, body)
    return caught.value.status, str(caught.value)


def test_a_job_runs_on_what_is_kept_for_it(client: Client) -> None:
    made = {"name": "mine", "lasts_ms": HOUR_MS, "node_count": 1, "note": "a demo"}
    assert client.ask("POST", "/v1/reservations", made) == {"done": True}
    row = rows(client)["mine"]
    assert (sum(row.nodes.values()), row.chunk, row.open, row.note, len(row.users)) == (1, {}, True, "a demo", 1)
    job = {"command": ["sleep", "1000"], "cpus": 4, "time_ms": HOUR_MS // 2, "reservation": "mine"}
    done = client.ask("POST", "/v1/jobs", job)
    shown = client.ask("GET", f"/v1/jobs/{done['id']}")
    assert shown["nodes"] == list(row.nodes)
    assert rows(client)["mine"].running == 1
    assert "ask for at most" in refused(client, "/v1/jobs", job | {"time_ms": 2 * HOUR_MS})[1]
    assert client.ask("POST", "/v1/reservations/mine/release", {}) == {"done": True}
    assert "mine" not in rows(client)
    assert refused(client, "/v1/reservations/mine/release", {})[0] == 409
    client.ask("POST", f"/v1/jobs/{done['id']}/cancel", {})


def test_before_it_begins_its_jobs_say_what_they_wait_for(client: Client) -> None:
    start_ms = client.ask("GET", "/v1/reservations")["now_ms"] + HOUR_MS
    made = {"name": "later", "start_ms": start_ms, "lasts_ms": HOUR_MS, "nodes": ["node1"], "users": ["nobody"]}
    client.ask("POST", "/v1/reservations", made)
    assert "is not for user" in refused(client, "/v1/jobs", {"command": ["true"], "reservation": "later"})[1]
    made |= {"name": "soon", "nodes": ["node2"], "users": []}
    client.ask("POST", "/v1/reservations", made)
    job = client.submit("true", reservation="soon", time_ms=1000)
    whys = {node["name"]: node["why"] for node in client.ask("GET", "/v1/nodes")["nodes"]}
    assert whys == {"node1": "reserved: later", "node2": "reserved: soon"}
    assert client.ask("GET", f"/v1/jobs/{job}")["reason"] == "for reservation soon to begin"
    for name in ("later", "soon"):
        client.ask("POST", f"/v1/reservations/{name}/release", {})
    client.wait(job)


def test_what_makes_no_sense_is_told(client: Client) -> None:
    for body, said in (
        ({"lasts_ms": 1000}, "name"),
        ({"name": "x", "node_count": 1}, "how long it lasts"),
        ({"name": "x", "lasts_ms": 1000}, "neither nodes nor an amount"),
        ({"name": "x", "lasts_ms": 1000, "node_count": 1, "cpus": 1}, "whole nodes are named, and amounts too"),
        ({"name": "x", "lasts_ms": 1000, "node_count": 1, "maintenance": True, "users": ["a"]}, "for nobody"),
    ):  # fmt: skip
        assert said in refused(client, "/v1/reservations", body)[1]


def test_users_reserve_within_their_quota_and_release_their_own(live: LiveServer, client: Client) -> None:
    token = add_token(live.home / "tokens", "ann", "ann", admin=False)
    port = int(re.search(r"listening on http://127.0.0.1:(\d+)", live.said)[1])  # type: ignore[index]

    def as_ann(path: str, body: Any) -> tuple[int, str]:
        web = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        web.request("POST", path, json.dumps(body), {"Authorization": f"Bearer {token}"})
        answer = web.getresponse()
        text = answer.read().decode()
        web.close()
        return answer.status, text

    asked = {"name": "hers", "cpus": 1, "count": 2, "lasts_ms": HOUR_MS}
    assert as_ann("/v1/reservations", asked)[0] == 200
    assert rows(client)["hers"].users == ["ann"]
    assert "times hours" in as_ann("/v1/reservations", asked | {"name": "more"})[1]
    assert as_ann("/v1/reservations", asked | {"name": "more", "force": True})[0] == 403
    assert client.ask("POST", "/v1/reservations", {"name": "ours", "cpus": 1, "lasts_ms": 1000})["done"]
    assert as_ann("/v1/reservations/ours/release", {})[0] == 403
    assert as_ann("/v1/reservations/hers/release", {})[0] == 200
