"""Fifty real jobs that save themselves at once write no more than the policy allows."""

from pathlib import Path

import pytest

from tests.kit.live import LiveServer, until
from tidegate.journals.sqlite import SqliteJournal
from tidegate.model.events import CheckpointAsked, CheckpointKept

JOBS, SIZE_MIB, BUDGET_MIB_S, ROUNDS = 50, 2, 20, 2
SAVER = """\
while :; do
    if [ -e "$TIDE_CHECKPOINT_ASKED" ]; then
        read number what <"$TIDE_CHECKPOINT_ASKED"
        if [ "$number" != "$last" ]; then
            head -c 2097152 /dev/zero >"$TIDE_CHECKPOINT_DIR"/state
            echo "done $number" >"$TIDE_CHECKPOINT_DONE"
            last=$number
        fi
    fi
    sleep 0.2
done
"""
POLICY = f"""
name: storm
classes: {{normal: {{preempt: checkpoint}}}}
checkpoints: {{every: 2s, write_mib_s: {BUDGET_MIB_S}, size_mib: {SIZE_MIB}}}
"""


@pytest.mark.slow
def test_a_storm_of_fifty_stays_under_the_write_budget(tmp_path: Path) -> None:
    policy, home = tmp_path / "storm.yaml", tmp_path / "home"
    policy.write_text(POLICY)
    size = ("--nodes", "1", "--cpus", str(JOBS), "--memory", "16G")
    with LiveServer(home, "--policy", str(policy), *size) as server:
        client = server.client()
        bodies = [{"command": ["sh", "-c", SAVER], "checkpoint": {}, "cwd": str(tmp_path)}] * JOBS
        jobs = [one["id"] for one in client.ask("POST", "/v1/jobs/batch", {"jobs": bodies})["results"]]
        until(lambda: all(client.show(job)["checkpoint"]["asked"] >= ROUNDS for job in jobs))
        until(lambda: all(client.show(job)["checkpoint"]["kept_ms"] for job in jobs))
        for job in jobs:
            client.ask("POST", f"/v1/jobs/{job}/cancel", {})
        client.wait(*jobs)
        server.stop()
    journal = SqliteJournal(home / "journal.db", readonly=True)
    events = [event for event in journal.read() if isinstance(event, CheckpointAsked | CheckpointKept)]
    journal.close()
    asked = [event for event in events if isinstance(event, CheckpointAsked)]
    assert len(asked) >= JOBS * ROUNDS
    for number, first in enumerate(asked):
        for count, later in enumerate(asked[number:]):
            allowed = BUDGET_MIB_S * (later.at - first.at) / 1000
            assert count * SIZE_MIB <= allowed, "what was asked before had time to be written"
    seconds = (asked[-1].at - asked[0].at) / 1000
    print(f"{len(asked)} asks in {seconds:.1f} s: {(len(asked) - 1) * SIZE_MIB / seconds:.1f} MiB/s")  # noqa: T201
    assert {event.task for event in events if isinstance(event, CheckpointKept)} == {event.task for event in asked}
