"""Replay with node allocation against AccaSim, on the same trace and machine, both under EASY with first fit.

Whole processes are compared: start, reading, replay, and a schedule file written by both. The second row has
what each calls its simulation; AccaSim reads as it goes, so its reading is inside.
"""

import importlib.util
import sys
import tempfile
from pathlib import Path

from bench.kit import CPUS_PER_NODE, NODES, Done, Plan, generated, process, replay
from bench.rows import Bound, MissingError, Pair, Row, compare

CHILD = Path(__file__).with_name("accasim_child.py")
LOAD = 0.9  # as in the figures published for it that the bound was set from


def run(plan: Plan) -> list[Row]:
    if importlib.util.find_spec("accasim") is None:
        raise MissingError("AccaSim is not installed: `make bench` installs it")
    jobs = plan.pick(100_000, 5_000)
    whole: list[Pair] = []
    simulation: list[Pair] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trace = generated(folder, jobs, LOAD)
        for number in plan.each_round()[: plan.pick(plan.rounds, 1)]:
            ours = replay(
                trace, "--nodes", str(NODES), "--cpus-per-node", str(CPUS_PER_NODE), "--schedule", f"{folder}/ours.csv"
            )
            theirs = accasim(trace)
            assert ours.figures["jobs"] == theirs.figures["jobs"] == jobs, "both replay every job"
            whole.append((jobs / ours.wall_s, jobs / theirs.wall_s))
            simulation.append((ours.figures["jobs_per_s"], jobs / theirs.figures["wall_s"]))
            plan.say(f"round {number}: ours {ours.wall_s:.1f} s, AccaSim {theirs.wall_s:.1f} s")
    rival, bound = "AccaSim 1.1.3", Bound("at least", 15, 30)
    return [
        compare("replay-nodes/process", "jobs/s", whole, rival, bound),
        compare("replay-nodes/simulation", "jobs/s", simulation, rival),
    ]


def accasim(trace: Path) -> Done:
    with tempfile.TemporaryDirectory() as scratch:
        return process([sys.executable, "-P", str(CHILD), str(trace), str(NODES), str(CPUS_PER_NODE)], cwd=scratch)
