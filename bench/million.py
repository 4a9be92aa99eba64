"""A million jobs in one process: memory stays small and no job costs more than among a hundred thousand.

The load is stationary, so the queue is as long in the longer trace as in the shorter. Jobs a second are those of
the loop, without start and reading; the second row has whole processes.
"""

import tempfile
from pathlib import Path

from bench.kit import CPUS_PER_NODE, NODES, Plan, generated, replay
from bench.rows import Bound, Pair, Row, compare

LOAD = 0.7
PEAK_MIB_MAX = 1024
MACHINE = ("--nodes", str(NODES), "--cpus-per-node", str(CPUS_PER_NODE))


def run(plan: Plan) -> list[Row]:
    many, few = plan.pick(1_000_000, 20_000), plan.pick(100_000, 5_000)
    loop: list[Pair] = []
    whole: list[Pair] = []
    peaks: list[Pair] = []
    with tempfile.TemporaryDirectory() as name:
        traces = [generated(Path(name), jobs, LOAD) for jobs in (many, few)]
        for number in plan.each_round():
            large, small = (replay(trace, *MACHINE) for trace in traces)
            assert large.figures["jobs"] == many, "every job is replayed"
            loop.append((large.figures["jobs_per_s"], small.figures["jobs_per_s"]))
            whole.append((many / large.wall_s, few / small.wall_s))
            peaks.append((large.peak_mib, PEAK_MIB_MAX))
            plan.say(f"round {number}: {large.wall_s:.1f} s and {small.wall_s:.1f} s, {large.peak_mib:.0f} MiB")
    ours = f"ours at {few:,} jobs"
    return [
        compare("million/loop", "jobs/s", loop, ours, Bound("at least", 0.8)),
        compare("million/process", "jobs/s", whole, ours),
        compare("million/peak", "MiB", peaks, "1 GiB", Bound("at most", 1)),
    ]
