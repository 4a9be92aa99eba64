"""Queues over the interface: how they stand, and what may be approved beyond their limits, by whom."""

import http.client
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.kit.live import Client, LiveServer, RefusedError
from tidegate.api.access import add_token
from tidegate.api.shares import called
from tidegate.model.policy import PolicySpec, Queue
from tidegate.policy.share import approvers_of
from tidegate.wire import api

HOUR_MS = 3_600_000
POLICY = """
name: lab
share: 7d
queues:
  lab: {weight: 3, guarantee: {cpus: 50%}, limit: {cpus: 6}, approvers: [ann]}
  lab/vision: {users: fair, limit: {cpus: 2}, approvers: [bob]}
  rest: 1
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    home = tmp_path_factory.mktemp("shares")
    (home / "lab.yaml").write_text(POLICY)
    options = ("--engine", "virtual", "--nodes", "1", "--cpus", "8", "--policy", str(home / "lab.yaml"),
               "--listen", "127.0.0.1:0")  # fmt: skip
    with LiveServer(home / "home", *options) as server:
        yield server


@pytest.fixture
def client(live: LiveServer) -> Client:
    return live.client()


def shares(client: Client) -> dict[str, api.ShareRow]:
    body = msgspec.convert(client.ask("GET", "/v1/share"), api.ShareBody)
    return {called_by(row): row for row in body.rows}


def called_by(row: api.ShareRow) -> str:
    return row.queue + "/." * row.itself + f"/@{row.user}" * bool(row.user)


def refused(client: Client, path: str, body: Any) -> tuple[int, str]:
    with pytest.raises(RefusedError) as caught:
        client.ask("POST", path, body)
    return caught.value.status, str(caught.value)


def test_every_queue_says_how_it_stands_and_why(client: Client) -> None:
    client.submit("true", cpus=1, queue="lab/vision", expected_ms=HOUR_MS, array="0-3")
    client.submit("true", cpus=4, queue="rest", expected_ms=HOUR_MS)
    client.submit("true", cpus=1, queue="lab", expected_ms=HOUR_MS)
    rows = shares(client)
    assert next(iter(rows)) == "lab"
    lab, rest, vision = rows["lab"], rows["rest"], rows["lab/vision"]
    assert (lab.place, lab.neighbours, lab.depth, lab.weight) == (1, 2, 0, 3)
    assert lab.held == {"cpus": 3000}
    assert lab.guarantee == {"cpus": 4000}
    assert lab.limit == {"cpus": 6000}
    assert lab.filled == 0.75
    assert lab.waiting == 1
    assert lab.why == "first: 75% of its guarantee"
    assert rest.share == pytest.approx(0.5, abs=1e-3)
    assert rest.why.startswith("behind lab: share 0.5 against 75% of its guarantee")
    assert vision.why.startswith("behind lab itself: share 0.25 against 0.125")
    assert [name for name in rows if name.startswith("lab/vision/@")]


def test_what_is_approved_counts_until_it_is_revoked(client: Client) -> None:
    until = 1 << 42
    path = "/v1/queues/lab%2Fvision"
    now = client.ask("GET", "/v1/share")["now_ms"]
    approval = {"cpus": 1.5, "until_ms": now + HOUR_MS, "note": "deadline"}
    assert client.ask("POST", f"{path}/approve", approval) == {"done": True}
    assert client.ask("POST", f"{path}/approve", approval) == {"done": False}
    row = shares(client)["lab/vision"]
    assert row.limit == {"cpus": 3500}
    assert row.excess is not None
    assert (row.excess.amounts, row.excess.until_ms, row.excess.note) == ({"cpus": 1500}, now + HOUR_MS, "deadline")
    assert row.excess.by
    assert client.ask("POST", f"{path}/revoke", {}) == {"done": True}
    assert client.ask("POST", f"{path}/revoke", {}) == {"done": False}
    assert shares(client)["lab/vision"].limit == {"cpus": 2000}
    assert refused(client, "/v1/queues/rest/approve", approval) == (
        409, "409: queue 'rest' has no limit; name one that has, or one above it",
    )  # fmt: skip
    assert refused(client, "/v1/queues/nowhere/approve", approval)[0] == 409
    assert refused(client, f"{path}/approve", {"cpus": 1, "until_ms": until})[1].endswith("up to a year")
    assert refused(client, f"{path}/approve", {"cpus": 1})[0] == 400


def test_approvers_are_those_of_the_queue_and_of_all_above() -> None:
    queues = {"lab": Queue(approvers=("ann",)), "lab/vision": Queue(approvers=("bob",)), "rest": Queue()}
    policy = PolicySpec("p", queues=queues)
    assert approvers_of(policy, "lab/vision") == ("bob", "ann")
    assert approvers_of(policy, "lab") == ("ann",)
    assert approvers_of(policy, "rest") == ()
    assert approvers_of(policy, "nowhere/at/all") == ()


def test_only_approvers_may(live: LiveServer, client: Client) -> None:
    port = int(re.search(r"listening on http://127.0.0.1:(\d+)", live.said)[1])  # type: ignore[index]
    until_ms = client.ask("GET", "/v1/share")["now_ms"] + HOUR_MS
    body = json.dumps({"cpus": 1, "until_ms": until_ms})

    def status(user: str, queue: str, action: str, said: str) -> int:
        token = add_token(live.home / "tokens", user, user, admin=False)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("POST", f"/v1/queues/{queue}/{action}", said, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse().status
        connection.close()
        return answer

    assert status("bob", "lab%2Fvision", "approve", body) == 200
    assert shares(client)["lab/vision"].excess.by == "bob"  # type: ignore[union-attr]
    assert status("eve", "lab%2Fvision", "revoke", "{}") == 403
    assert status("bob", "lab", "approve", body) == 403
    assert status("ann", "lab%2Fvision", "revoke", "{}") == 200
    assert status("ann", "rest", "approve", body) == 403


def test_accounts_are_called_as_people_would() -> None:
    assert called("lab") == "lab"
    assert called("lab/.") == "lab itself"
    assert called("lab/vision/@ann") == "ann of lab/vision"
