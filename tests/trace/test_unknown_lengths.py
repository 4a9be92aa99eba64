"""Jobs of unknown length on the GPU clusters of Philly: what `tide` gains over first come first served, at what price.

The command is the one a user would type; docs/decisions/0018 says what the policy does.
"""

from typing import Any

import pytest

from tidegate.app.replay import ReplayWish, TraceOptions, prepare, read_policy, run_replays

BUDGET_PERCENT = 10
FCFS_S = 384_292
"""On the period of the gate, and in a program of its own to the second."""


def replayed(real_trace, first: str, until: str, *names: str) -> dict[str, dict[str, Any]]:
    wish = ReplayWish(
        trace=real_trace("gpu/philly/philly_vcs_dev.csv.gz"),
        policies=[read_policy(name) for name in names],
        options=TraceOptions(
            pools_file=real_trace("gpu/philly/philly_vc_nodes_90.csv"), date_from=first, date_to=until
        ),
        preempt_cost_ms=600_000,
    )
    return {one.policy.name: one.figures for one in run_replays(prepare(wish))}


@pytest.mark.slow
@pytest.mark.parametrize(("first", "until"), [("2017-10-01", "2017-12-01"), ("2017-11-01", "2017-12-20")])
def test_jobs_are_over_sooner(real_trace, first: str, until: str):
    found = replayed(real_trace, first, until, "fcfs", "tide")
    fcfs, tide = found["fcfs"], found["tide"]
    assert tide["jobs"] == fcfs["jobs"]
    if first == "2017-10-01":
        assert fcfs["completion_mean_s"] == pytest.approx(FCFS_S, abs=1)
    assert tide["completion_mean_s"] <= 0.43 * fcfs["completion_mean_s"]
    assert tide["preemptions_minute_percent"] <= BUDGET_PERCENT
    assert 0 < tide["lost_hours"] < 10_000  # 1 % of the work or so
