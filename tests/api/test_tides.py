"""Tides over the interface: how demand stands in a pool, why, and what that changes."""

from pathlib import Path

import msgspec
import pytest

from tests.kit.live import LiveServer, RefusedError
from tidegate.wire.tides import TidesBody

HOUR_MS = 3_600_000
POLICY = """
name: tidal
order: {by: fcfs, ageing_bound: 24h}
admission: {wide: {at_least: {cpus: 2}, tides: [rising, surge]}}
tide:
  depth: 2
  arrivals: 0
  states: {rising: {order: shortest}}
"""


def test_a_tide_says_how_it_stands_and_why(tmp_path: Path) -> None:
    path = tmp_path / "tidal.yaml"
    path.write_text(POLICY)
    options = ("--engine", "virtual", "--nodes", "1", "--cpus", "2", "--policy", str(path))
    with LiveServer(tmp_path / "home", *options) as server:
        client = server.client()
        (row,) = msgspec.convert(client.ask("GET", "/v1/tide"), TidesBody).rows
        assert (row.state, row.waiting, row.changes, row.turns) == ("calm", 0, [], [])
        client.submit("true", cpus=1, expected_ms=HOUR_MS, array="0-5")
        body = msgspec.convert(client.ask("GET", "/v1/tide"), TidesBody)
        (row,) = body.rows
        assert (row.state, row.waiting, row.utilization_percent) == ("rising", 4, 100)
        assert row.changes == ["order.by fcfs → shortest"]
        assert row.refuses == ["wide"]
        assert row.turns[0].why == "4 tasks wait, more than 2"
        assert row.turns_ms is not None
        assert row.turns_ms > body.now_ms
        with pytest.raises(RefusedError, match="when the tide of pool 'main' is no longer rising, in 5m at"):
            client.submit("true", cpus=2, expected_ms=HOUR_MS)
