"""`tide tide`, against a server that says what the test wants."""

import json

from tests.cli.conftest import Tide
from tests.kit.fake_server import FakeServer
from tidegate.wire.tides import TideRow, TidesBody, TideTurn

MINUTE_MS = 60_000
GPUS = TideRow(
    pool="gpus", state="surge", since_ms=0, turns_ms=20 * MINUTE_MS, waiting=31, lately=40, usual=3.25, known=True,
    wait_ms=0, utilization_percent=100, changes=["order.by fcfs → shortest"], refuses=["wide"],
    turns=[
        TideTurn(0, "rising", "surge", "31 tasks wait, more than 10"),
        TideTurn(-300_000, "calm", "rising", "12 tasks wait, more than 10"),
    ],
)  # fmt: skip
CPUS = TideRow(
    pool="cpus", state="calm", since_ms=0, turns_ms=None, waiting=0, lately=0, usual=0.5, known=False, wait_ms=0,
    utilization_percent=7, changes=[], refuses=[], turns=[],
)  # fmt: skip


def test_every_pool_says_how_demand_stands_and_what_that_changes(server: FakeServer, tide: Tide):
    server.on("tide", TidesBody(10 * MINUTE_MS, [CPUS, GPUS]))
    lines = tide("tide").stdout.splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["cpus", "calm", "10m00s", "-", "0", "-", "7%"],
        ["gpus", "surge", "10m00s", "31", "40", "3.25", "100%"],
    ]
    told = "\n".join(lines[3:])
    for part in (
        "31 tasks wait, more than 10", "in 10m00s if nothing else happens", "order.by fcfs → shortest",
        "jobs that meet rule 'wide'", "calm → rising: 12 tasks wait, more than 10",
    ):  # fmt: skip
        assert part in told, told


def test_one_pool_and_for_programs(server: FakeServer, tide: Tide):
    server.on("tide", TidesBody(MINUTE_MS, [CPUS, GPUS]))
    (row,) = json.loads(tide("tide", "gpus", "--json").stdout)["rows"]
    assert row["state"] == "surge"
    assert [turn["after"] for turn in row["turns"]] == ["surge", "rising"]
    done = tide("tide", "gpu")
    assert done.returncode == 1
    assert "there is no tide of a pool 'gpu'" in done.stderr


def test_without_a_tide_it_says_so(server: FakeServer, tide: Tide):
    server.on("tide", TidesBody(1, []))
    assert "the policy has no tide" in tide("tide").stdout
