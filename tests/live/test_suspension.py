"""Suspension with a real server and real processes: for one that goes before, by hand, over a kill of the server."""

from pathlib import Path

from tests.kit.live import LiveServer, until

POLICY = """\
name: lent
classes:
  urgent: {level: 1}
  spare: {level: -1, preempt: suspend}
preemption: {min_run: 0s}
"""


def state_of(pid: int) -> str:
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2]


def counting(server: LiveServer, log: Path, **fields: object) -> tuple[int, int]:
    """A job that needs no time of its own to end, and the number of its process."""
    job = server.client().submit("sh", "-c", f"echo $$ >{log}; while [ ! -e {log}.end ]; do sleep 0.05; done", **fields)
    return job, int(until(lambda: log.exists() and log.read_text()))


def test_it_lends_its_cpus_and_goes_on_by_itself(tmp_path: Path) -> None:
    policy, log = tmp_path / "lent.yaml", tmp_path / "spare"
    policy.write_text(POLICY)
    options = ("--nodes", "1", "--cpus", "2", "--memory", "1G", "--policy", str(policy))
    with LiveServer(tmp_path / "home", *options) as server:
        client = server.client()
        spare, pid = counting(server, log, cpus=2, memory_mib=200, **{"class": "spare"})
        urgent, _ = counting(server, tmp_path / "urgent", cpus=2, memory_mib=200, **{"class": "urgent"})
        until(lambda: state_of(pid) == "T")
        row = client.rows(job=spare)[0]
        assert row["state"] == "SUSPENDED"
        assert f"makes room for job {urgent}" in row["reason"]
        node = client.ask("GET", "/v1/nodes")["nodes"][0]
        assert (node["free"]["cpus"], node["free"]["memory"]) == (0, 1024 - 400)
        server.kill()
        server.start()
        server.wait_ready()
        client = server.client()
        assert (client.rows(job=spare)[0]["state"], state_of(pid)) == ("SUSPENDED", "T")
        (tmp_path / "urgent.end").touch()
        client.wait(urgent)
        until(lambda: state_of(pid) == "S")
        assert client.rows(job=spare)[0]["state"] == "RUNNING"
        (tmp_path / "spare.end").touch()
        client.wait(spare)
        shown = client.show(spare)
        assert (shown["state"], shown["attempts"]) == ("COMPLETED", 1)


def test_by_hand(tmp_path: Path) -> None:
    with LiveServer(tmp_path / "home", "--nodes", "1", "--cpus", "1", "--memory", "1G") as server:
        client = server.client()
        job, pid = counting(server, tmp_path / "log")
        assert client.ask("POST", f"/v1/jobs/{job}/suspend", {}) == {"done": True}
        assert client.ask("POST", f"/v1/jobs/{job}/suspend", {}) == {"done": False}
        until(lambda: state_of(pid) == "T")
        client.wait(client.submit("true"))  # on the cpu that it lends
        assert "tide resume" in client.rows(job=job)[0]["reason"]
        assert client.ask("POST", f"/v1/jobs/{job}/resume", {}) == {"done": True}
        until(lambda: state_of(pid) == "S")
        client.ask("POST", f"/v1/jobs/{job}/suspend", {})
        until(lambda: state_of(pid) == "T")
        client.ask("POST", f"/v1/jobs/{job}/cancel", {})
        client.wait(job)
        assert client.show(job)["state"] == "CANCELLED"
