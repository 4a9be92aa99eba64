"""A fork of a large world: forecasts and what-ifs live on it, so it may cost a few milliseconds.

The cluster is full, the digest has been read, and every start is confirmed, as in a server that has been up.
"""

from collections.abc import Sequence
from statistics import median
from time import perf_counter

from bench.kit import Plan, steady
from bench.rows import Bound, Pair, Row, compare
from bench.worlds import Drawn, Kind, busy_cluster, draw, mixed_limits, size_of, waiting_jobs
from tidegate.world.world import World

FORK_MS_MAX = 5


def run(plan: Plan) -> list[Row]:
    size = size_of(plan)
    drawn = draw(size)
    queues = {
        "100-lanes": mixed_limits(drawn, size.lanes),
        f"{size.many_lanes}-lanes": mixed_limits(drawn, size.many_lanes),
    }
    return [row(plan, name, drawn, kinds, size.waiting) for name, kinds in queues.items()]


def row(plan: Plan, name: str, drawn: Drawn, kinds: Sequence[Kind], waiting: int) -> Row:
    world, _ = busy_cluster(drawn, kinds, waiting)
    world.read_digest()
    steady()
    pairs: list[Pair] = [(fork_ms(world, plan.pick(20, 5)), FORK_MS_MAX) for _ in plan.each_round()]
    plan.say(f"{name}: {pairs[-1][0]:.2f} ms")
    note = f"{len(world.nodes):,} nodes, {len(world.runs):,} runs, {waiting_jobs(world):,} waiting"
    return compare(f"fork/{name}", "ms", pairs, f"{FORK_MS_MAX} ms", Bound("at most", 1), note=note)


def fork_ms(world: World, times: int) -> float:
    took = []
    for _ in range(times):
        began = perf_counter()
        twin = world.fork()
        took.append((perf_counter() - began) * 1000)
        del twin
    return median(took)
