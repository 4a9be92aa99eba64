"""Pool mode against a minimal EASY loop in plain Python: no journal, no nodes, no lanes, one policy.

Both figures are jobs a second of the loop alone, on the same trace; reading is in neither.
"""

import tempfile
from pathlib import Path
from statistics import fmean
from time import perf_counter

from bench.kit import PROCESSORS, Plan, generated, replay, steady
from bench.peers import load_functions
from bench.rows import Bound, Pair, Row, compare

LOAD = 0.7


def run(plan: Plan) -> list[Row]:
    rival = load_functions("easy_ref.py", ("easy_py", "load"))
    jobs = plan.pick(100_000, 10_000)
    pairs: list[Pair] = []
    note = ""
    with tempfile.TemporaryDirectory() as name:
        trace = generated(Path(name), jobs, LOAD)
        columns = [column.tolist() for column in rival["load"](trace)]
        steady()
        for number in plan.each_round():
            ours = replay(trace, "--capacity", str(PROCESSORS)).figures
            began = perf_counter()
            starts, _ = rival["easy_py"](PROCESSORS, *columns)
            theirs = len(starts) / (perf_counter() - began)
            pairs.append((ours["jobs_per_s"], theirs))
            plan.say(f"round {number}: ours {ours['jobs_per_s']:,.0f} jobs/s, the loop {theirs:,.0f}")
            waited = fmean(start - submit for start, submit in zip(starts, columns[0], strict=True))
            note = f"mean wait {ours['wait_mean_s']:,.0f} s, of the loop {waited:,.0f} s"
    return [compare("replay-pool", "jobs/s", pairs, "easy_py", Bound("at least", 0.10, 0.25), note=note)]
