"""`tide reserve`, against a server that says what the test wants."""

import json

import pytest

from tests.cli.conftest import Tide
from tests.kit.fake_server import FakeServer
from tidegate.wire import api
from tidegate.wire.reservations import ReservationRow, ReservationsBody

HOUR_MS = 3_600_000
NOW = 1_700_000_000_000
COURSE = ReservationRow(
    name="course", pool="main", start_ms=NOW, end_ms=NOW + 3 * HOUR_MS, nodes={"n1": 1, "n2": 3},
    chunk={"gpus": 1000, "cpus": 4000}, open=True, running=2, users=["ann", "ben"], queues=["teaching"], by="root",
    note="every Friday",
)  # fmt: skip
PATCH = ReservationRow(
    name="patch", pool="main", start_ms=NOW + 9 * HOUR_MS, end_ms=NOW + 10 * HOUR_MS, nodes={"n1": 1}, chunk={},
    open=False, running=0, users=[], queues=[], by="root", maintenance=True, named=True,
)  # fmt: skip


def test_they_are_a_table(server: FakeServer, tide: Tide):
    server.on("reservations", ReservationsBody(NOW, [COURSE, PATCH]))
    heads, course, patch = tide("reserve", "list").stdout.splitlines()
    assert heads.split() == ["NAME", "STATE", "FROM", "FOR", "KEEPS", "ON", "WHOM", "RUN"]
    for part in ("course", "open", "3h00m", "4 x (1 gpus 4 cpus)", "n1,n2x3", "ann, ben in queue teaching", "2"):
        assert part in course
    for part in ("patch", "to come", "1h00m", "1 node", "nobody"):
        assert part in patch
    assert [row["name"] for row in json.loads(tide("reserve", "list", "--json").stdout)] == ["course", "patch"]
    server.on("reservations", ReservationsBody(NOW, []))
    assert tide("reserve", "list").stdout == "nothing is reserved\n"


def test_one_of_them_tells_everything(server: FakeServer, tide: Tide):
    server.on("reservations", ReservationsBody(NOW, [COURSE, PATCH]))
    said = tide("reserve", "show", "course").stdout
    for part in ("course (open, 2 running)", "4 x (1 gpus 4 cpus)", "n1,n2x3 of pool main", "every Friday"):
        assert part in said
    assert json.loads(tide("reserve", "show", "patch", "--json").stdout)["maintenance"]
    assert "there is no reservation 'lab'" in tide("reserve", "show", "lab").stderr


def test_what_is_asked_for_is_sent(server: FakeServer, tide: Tide):
    server.on("reserve", api.DoneBody(True))
    server.on("reservations", ReservationsBody(NOW, [COURSE]))
    done = tide(
        "reserve", "create", "course", "--gpus", "1", "--cpus", "4", "--count", "4", "--start", "2033-01-01T08:00",
        "--for", "3h", "--users", "ann,ben", "--queues", "teaching", "--note", "every Friday",
    )  # fmt: skip
    assert done.stdout.startswith("course keeps 4 x (1 gpus 4 cpus) on n1,n2x3 from ")
    (asked,) = server.said("reserve")
    body = asked.body
    assert (body.name, body.gpus, body.cpus, body.count, body.lasts_ms) == ("course", 1, 4, 4, 3 * HOUR_MS)
    assert (body.users, body.queues, body.note, body.start_ms > NOW) == (["ann", "ben"], ["teaching"],
                                                                         "every Friday", True)  # fmt: skip


def test_it_is_given_back(server: FakeServer, tide: Tide):
    server.on("end_reservation", api.DoneBody(True))
    assert tide("reserve", "release", "course").stdout == "course is given back\n"
    assert server.said("end_reservation")[0].where == {"reservation": "course"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "x"), "for how long?"),
        (("create", "x", "--for", "2h"), "what? write --nodes"),
        (("create",), "write create NAME, list, show NAME or release NAME"),
        (("make", "x"), "write create NAME, list, show NAME or release NAME"),
        (("list", "--gpus", "4"), "takes no --gpus"),
        (("create", "x", "--for", "2h", "--gpus", "0"), "too little"),
    ],
)
def test_what_is_not_meant_is_told(tide: Tide, words: tuple[str, ...], said: str):
    done = tide("reserve", *words)
    assert done.returncode == 2
    assert said in done.stderr
