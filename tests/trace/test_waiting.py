"""What `tide` reaches on real logs, against EASY on the same: short waits, and what they cost those who wait longest.

The figures are those of docs/decisions/0014; a change that loses them shows.
"""

from typing import Any, NamedTuple

import pytest

from tests.trace.test_fidelity import CURIE, KTH, SDSC, Log
from tidegate.app.replay import (
    Filter,
    Machine,
    ReplayWish,
    Runtimes,
    TraceOptions,
    prepare,
    read_policy,
    run_replays,
)

HPC2N = Log("HPC2N-2002-2.2-cln.swf.gz", "", 240)


class Most(NamedTuple):
    """The mean slowdown itself; the others in multiples of EASY's."""

    bsld_mean: float
    bsld_max: float
    wait_max_s: float
    wait_mean_largest_s: float
    wait_mean_s: float


REACHED = {
    KTH: Most(40, 1.6, 1.4, 1.05, 0.7),
    SDSC: Most(12.5, 1, 1, 1.05, 0.6),
    CURIE: Most(21, 1, 1, 1.05, 0.4),
    HPC2N: Most(70, 1.1, 1.01, 1.05, 0.9),
}


def figures(real_trace, log: Log) -> list[dict[str, Any]]:
    wish = ReplayWish(
        trace=real_trace(f"swf/{log.swf}"),
        policies=[read_policy("easy"), read_policy("tide")],
        machine=Machine(capacity=log.procs),
        options=TraceOptions(filter=Filter.SC15, runtimes=Runtimes.LIMIT, capacity=log.procs),
    )
    return [replayed.figures for replayed in run_replays(prepare(wish))]


def check(real_trace, log: Log) -> None:
    easy, tide = figures(real_trace, log)
    most = REACHED[log]._asdict()
    found = {name: tide[name] / (1 if name == "bsld_mean" else easy[name]) for name in most}
    assert all(found[name] <= most[name] for name in most), found


def test_kth(real_trace):
    check(real_trace, KTH)


@pytest.mark.slow
@pytest.mark.parametrize("log", [SDSC, CURIE, HPC2N], ids=["SDSC-BLUE", "CEA-Curie", "HPC2N"])
def test_larger_logs(real_trace, log: Log):
    check(real_trace, log)
