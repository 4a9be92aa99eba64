"""Pool mode against a minimal EASY loop in plain Python: no journal, no nodes, no lanes, one policy.

Both figures are jobs a second of the loop alone, on the same trace; reading is in neither.
"""

import tempfile
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

from bench.kit import PROCESSORS, Plan, generated, replay, steady
from bench.peers import load_functions
from bench.rows import Bound, Pair, Row, compare

LOADS = (0.9, 0.7)
"""At 0.9 the rival's own figures were published. The shorter the queue, the better for the loop without lanes."""
BOUND = Bound("at least", 0.10, 0.25)


def run(plan: Plan) -> list[Row]:
    rival = load_functions("easy_ref.py", ("easy_py", "load"))
    with tempfile.TemporaryDirectory() as name:
        return [row(plan, rival, Path(name), load) for load in LOADS]


def row(plan: Plan, rival: dict[str, Any], folder: Path, load: float) -> Row:
    trace = generated(folder, plan.pick(100_000, 10_000), load)
    columns = [column.tolist() for column in rival["load"](trace)]
    steady()
    pairs: list[Pair] = []
    note = ""
    for number in plan.each_round():
        ours = replay(trace, "--capacity", str(PROCESSORS)).figures
        began = perf_counter()
        starts, _ = rival["easy_py"](PROCESSORS, *columns)
        theirs = len(starts) / (perf_counter() - began)
        pairs.append((ours["jobs_per_s"], theirs))
        plan.say(f"load {load}, round {number}: ours {ours['jobs_per_s']:,.0f} jobs/s, the loop {theirs:,.0f}")
        waited = fmean(start - submit for start, submit in zip(starts, columns[0], strict=True))
        note = f"mean wait {ours['wait_mean_s']:,.0f} s, of the loop {waited:,.0f} s"
    bound = BOUND if load == LOADS[0] else None
    return compare(f"replay-pool/load-{load}", "jobs/s", pairs, "easy_py", bound, note=note)
