"""Which benchmarks there are, and how one is run: in a process of its own."""

import importlib
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from bench.kit import Plan
from bench.rows import MissingError, Row, skipped

BENCHES = {
    "start": "starting",
    "fork": "forks",
    "after-end": "after_end",
    "cycle": "full_cycle",
    "queue-tree": "queue_tree",
    "replay-pool": "vs_loop",
    "million": "million",
    "restart": "restart",
    "replay-nodes": "vs_accasim",
    "live-cpu": "live_cpu",
    "live-drain": "live_drain",
    "live-array": "live_array",
    "live-submit": "live_submit",
    "live-spawn": "live_spawn",
    "live-memory": "live_memory",
    "live-queue": "live_queue",
    "live-p99": "live_p99",
}
"""What each measures stands at the top of its module."""


def apart(plan: Plan) -> list[Row]:
    """In a fresh process: what one leaves in memory neither slows the next nor counts as its peak."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(one, plan).result()


def one(plan: Plan) -> list[Row]:
    module = importlib.import_module(f"bench.{BENCHES[plan.name]}")
    try:
        rows: list[Row] = module.run(plan)
    except MissingError as missing:
        plan.say(f"SKIPPED: {missing}")
        return [skipped(plan.name, str(missing))]
    return rows
