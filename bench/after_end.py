"""The cycle after one job ends must cost what changed, not what waits.

Two worlds run the same jobs on the same full cluster; in one a hundred times as many wait, in as many lanes. In
each the same jobs end one by one, and the cycle after each end is timed, with what earlier cycles left in mind.
"""

from collections.abc import Sequence
from statistics import median
from time import perf_counter

import numpy as np

from bench.kit import Plan, steady
from bench.rows import Bound, Pair, Row, compare
from bench.worlds import (
    MINUTE_MS,
    Drawn,
    Kind,
    busy_cluster,
    cycle,
    draw,
    end_one,
    fold,
    keep_waiting,
    mixed_limits,
    size_of,
    waiting_jobs,
)
from tidegate.core.decide import decide
from tidegate.core.memo import Memo
from tidegate.world.world import World


def run(plan: Plan) -> list[Row]:
    size = size_of(plan)
    drawn = draw(size)
    few = compare_queues(plan, drawn, mixed_limits(drawn, size.lanes), size.waiting, size.waiting // 100)
    many_kinds = mixed_limits(drawn, size.many_lanes)
    many = compare_queues(plan, drawn, many_kinds, size.waiting, len(many_kinds))
    bound = Bound("at most", 2)
    return [
        compare("after-end/100-lanes", "ms", few, f"ours, {size.waiting // 100:,} waiting", bound),
        compare(f"after-end/{size.many_lanes}-lanes", "ms", many, f"ours, {len(many_kinds):,} waiting"),
    ]


class Side:
    """One of the two worlds."""

    def __init__(self, world: World, now: int) -> None:
        self.world = world
        self.now = now
        self.memo = Memo()
        cycle(world, self.memo, now)  # what it knows from now on

    def after(self, task: int) -> float:
        """Ends the task; milliseconds of the next cycle."""
        self.now += 1000
        end_one(self.world, task, self.now)
        began = perf_counter()
        plan = decide(self.world, self.memo, self.now)
        took = perf_counter() - began
        fold(self.world, (plan.cycle, *plan.starts))
        return took * 1000


def compare_queues(plan: Plan, drawn: Drawn, kinds: Sequence[Kind], long: int, short: int) -> list[Pair]:
    """Milliseconds of a cycle with so many waiting, and with so many: medians of many ends each."""
    world, now = busy_cluster(drawn, kinds, long)
    twin = world.fork()
    keep_waiting(twin, short // len(kinds), now)
    now += MINUTE_MS
    sides = Side(world, now), Side(twin, now)
    assert (waiting_jobs(world), waiting_jobs(twin)) == (long, short)
    steady()
    ends = plan.pick(20, 5)
    tasks = np.random.default_rng(7).choice(sorted(world.runs), (plan.rounds, ends), replace=False).tolist()
    pairs: list[Pair] = []
    for number, ending in enumerate(tasks, 1):
        times = [[side.after(task) for side in sides] for task in ending]
        pairs.append((median(one for one, _ in times), median(other for _, other in times)))
        plan.say(f"round {number}: {long:,} waiting {pairs[-1][0]:.2f} ms, {short:,} waiting {pairs[-1][1]:.2f} ms")
    return pairs
