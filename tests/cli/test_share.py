"""`tide share` and `tide quota`, against a server that says what the test wants."""

import json

import pytest

from tests.cli.conftest import Tide
from tests.kit.fake_server import FakeServer
from tidegate.wire import api

DAY_MS = 86_400_000
LAB = api.ShareRow(
    queue="lab", depth=0, place=1, neighbours=2, weight=3, share=0.125, filled=0.75,
    held={"cpus": 3000, "gpus": 2000, "memory": 4096, "tape": 2}, used={"cpus": 1500}, guarantee={"cpus": 4000},
    limit={"cpus": 6000}, waiting=2, why="first: 75% of its guarantee",
    excess=api.ExcessRow({"cpus": 1000}, 1_700_000_000_000, "ann", "deadline"),
)  # fmt: skip
VISION = api.ShareRow(
    queue="lab/vision", depth=1, place=1, neighbours=1, weight=1, share=0.25, filled=None, held={}, used={},
    guarantee={}, limit={}, waiting=0, why="it has no neighbour", user="bob",
)  # fmt: skip
REST = api.ShareRow(
    queue="rest", depth=0, place=2, neighbours=2, weight=1, share=0.5, filled=None, held={"cpus": 4000}, used={},
    guarantee={}, limit={}, waiting=0, why="behind lab: share 0.5 against 75% of its guarantee", again_ms=60_000,
)  # fmt: skip
TABLE = """\
QUEUE   TURN    WEIGHT  SHARE  WAIT  HOLDS                     GUARANTEE  LIMIT
lab     1 of 2       3  0.125     2  2 gpus 2 tape 3 cpus 4G   4 cpus     6 cpus +
  @bob  1 of 1       1   0.25     -  -                         -          -
rest    2 of 2       1    0.5     -  4 cpus                    -          -

lab   first: 75% of its guarantee
rest  behind lab: share 0.5 against 75% of its guarantee
"""


def test_queues_are_a_table_with_reasons(server: FakeServer, tide: Tide):
    server.on("share", api.ShareBody(1, 7 * DAY_MS, [LAB, VISION, REST]))
    done = tide("share")
    assert [line.split() for line in done.stdout.splitlines()] == [line.split() for line in TABLE.splitlines()]
    rows = json.loads(tide("share", "--json").stdout)["rows"]
    assert [row["queue"] for row in rows] == ["lab", "lab/vision", "rest"]


def test_one_queue_tells_everything(server: FakeServer, tide: Tide):
    server.on("share", api.ShareBody(1, 7 * DAY_MS, [LAB, VISION, REST]))
    said = tide("share", "lab").stdout
    for part in (
        "1 of 2: first: 75% of its guarantee", "0.125 of its part, weight 3", "1.5 cpus (half-life 7d00h)",
        "4 cpus, 75% of it held", "+1 cpus until 2023-11-14 22:13:20, approved by ann: deadline",
    ):  # fmt: skip
        assert part in said, part
    done = tide("share", "labb")
    assert done.returncode == 1
    assert "there is no queue 'labb'; tide share lists" in done.stderr


def test_without_queues_it_says_so(server: FakeServer, tide: Tide):
    server.on("share", api.ShareBody(1, 0, []))
    assert "has no queues" in tide("share").stdout
    assert "no queue may hold more" in tide("quota", "list").stdout


def test_an_approval_is_sent_with_its_end(server: FakeServer, tide: Tide):
    server.on("approve", api.DoneBody(True))
    done = tide("quota", "approve", "lab/vision", "--gpus", "+4", "--memory", "+1G", "--for", "2d", "--note", "why not")
    assert done.stdout.startswith("lab/vision may hold more until ")
    (asked,) = server.said("approve")
    assert asked.where == {"queue": "lab/vision"}
    assert (asked.body.gpus, asked.body.memory_mib, asked.body.cpus, asked.body.note) == (4, 1024, 0, "why not")
    server.on("revoke", api.DoneBody(False))
    assert "(it was so already)" in tide("quota", "revoke", "lab/vision").stdout


def test_what_is_approved_is_listed(server: FakeServer, tide: Tide):
    server.on("share", api.ShareBody(1, 0, [LAB, REST]))
    lines = tide("quota", "list").stdout.splitlines()
    assert lines[1].split() == ["lab", "+1", "cpus", "2023-11-14", "22:13:20", "ann", "deadline"]
    (row,) = json.loads(tide("quota", "list", "--json").stdout)
    assert row["queue"] == "lab"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("quota", "approve", "lab", "--gpus", "4"), "for how long?"),
        (("quota", "approve", "lab", "--for", "2d"), "how much more?"),
        (("quota", "approve"), "write approve QUEUE, revoke QUEUE or list"),
        (("quota", "list", "lab"), "write approve QUEUE, revoke QUEUE or list"),
        (("quota", "give", "lab"), "write approve QUEUE, revoke QUEUE or list"),
        (("quota", "revoke", "lab", "--gpus", "4"), "takes no amounts"),
        (("quota", "approve", "lab", "--gpus", "-4", "--for", "2d"), "too little"),
        (("quota", "approve", "lab", "--gpus", "4", "--for", "2"), "no unit"),
    ],
)
def test_a_slip_is_told(server: FakeServer, tide: Tide, words: tuple[str, ...], said: str):
    done = tide(*words)
    assert done.returncode == 2
    assert said in done.stderr
