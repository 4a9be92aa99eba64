"""A server tells how it keeps its promises."""

from pathlib import Path

from tests.kit.live import LiveServer, until


def test_a_promise_that_is_kept_is_counted(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with LiveServer(tmp_path / "home", "--nodes", "1", "--cpus", "2", "--memory", "1G") as server:
        client = server.client()
        client.submit("sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.05; done", time_ms=600_000)
        large = client.submit("true", cpus=2, time_ms=60_000)
        promises = until(lambda: (told := client.ask("GET", "/v1/status")["promises"])["made"] and told)
        assert (promises["made"], promises["kept"]) == (1, 0)
        gate.touch()
        client.wait(large)
        promises = client.ask("GET", "/v1/status")["promises"]
        assert (promises["made"], promises["kept"], promises["late_max_ms"]) == (1, 1, 0)
