"""What a tree of queues costs: 200 queues in three levels against one line, with the same jobs in the same lanes.

Both worlds get the same submissions, each lane in one of the queues; only in one the policy has them. One row is a
cycle over an empty cluster that knows nothing from earlier ones, the other the cycle after one job of a full cluster
ends.
"""

from collections.abc import Sequence
from statistics import median
from time import perf_counter

import numpy as np
from msgspec.structs import replace

from bench.after_end import Side
from bench.kit import Plan, steady
from bench.rows import Bound, Pair, Row, compare
from bench.worlds import MINUTE_MS, Drawn, Kind, cluster, cycle, draw, mixed_limits, size_of, submit, tell
from tidegate.core.decide import decide
from tidegate.core.memo import Memo
from tidegate.model.commands import ChangePolicy
from tidegate.model.policy import HOUR_MS, PART_BITS, PolicySpec, Queue, Share
from tidegate.model.policy import Bound as Amount
from tidegate.wire.policy_file import load_builtin
from tidegate.world.world import World

TOPS, MIDS, LEAVES = 8, 4, 5
"""8 queues of the root with 4 parts each, and 5 parts of each of those: 8 + 32 + 160 = 200."""
PART = 1 << PART_BITS


def run(plan: Plan) -> list[Row]:
    size = size_of(plan)
    drawn = draw(size)
    queues, leaves = tree()
    flat = load_builtin("easy")
    policies = (replace(flat, queues=queues, share=Share(24 * HOUR_MS)), flat)
    kinds = mixed_limits(drawn, size.many_lanes)
    for at, kind in enumerate(kinds):
        kind.queue = leaves[at % len(leaves)]
    lane_of = np.random.default_rng(5).integers(0, size.many_lanes, size.waiting).tolist()
    worlds = [world_under(drawn, policy, kinds, lane_of) for policy in policies]
    note = f"{size.many_lanes:,} lanes in {len(leaves)} of {len(queues)} queues"
    rival, bound = "ours, one line", Bound("at most", 1.5)
    cold = cold_cycles(plan, worlds)
    after = cycles_after_ends(plan, worlds)
    return [
        compare("queue-tree/cycle", "ms", cold, rival, bound, note=note),
        compare("queue-tree/after-end", "ms", after, rival, bound, note=note),
    ]


def tree() -> tuple[dict[str, Queue], list[str]]:
    """With weights, guarantees and limits; and the names of its leaves."""
    queues: dict[str, Queue] = {}
    leaves = []
    for top in range(TOPS):
        guarantee = (Amount("cpus", part=PART // 16), Amount("gpus", part=PART // 16))
        queues[f"q{top}"] = Queue(1 + top, guarantee, (Amount("gpus", part=PART // 2),))
        for mid in range(MIDS):
            queues[f"q{top}/m{mid}"] = Queue(1 + mid, (Amount("cpus", part=PART // 128),))
            for leaf in range(LEAVES):
                name = f"q{top}/m{mid}/l{leaf}"
                queues[name] = Queue(1 + leaf, limit=(Amount("cpus", part=PART // 4),))
                leaves.append(name)
    return queues, leaves


def world_under(drawn: Drawn, policy: PolicySpec, kinds: Sequence[Kind], lane_of: Sequence[int]) -> World:
    world = cluster(drawn)
    tell(world, ChangePolicy(policy), 0)
    submit(world, kinds, lane_of, 0)
    return world


def cold_cycles(plan: Plan, worlds: Sequence[World]) -> list[Pair]:
    steady()
    pairs: list[Pair] = []
    for number in plan.each_round():
        times = []
        for world in worlds:
            began = perf_counter()
            decide(world, Memo(), MINUTE_MS)
            times.append((perf_counter() - began) * 1000)
        pairs.append((times[0], times[1]))
        plan.say(f"round {number}: a cycle of the tree {times[0]:.1f} ms, of one line {times[1]:.1f} ms")
    return pairs


def cycles_after_ends(plan: Plan, worlds: Sequence[World]) -> list[Pair]:
    """In each world its own jobs end, of whatever queue."""
    for world in worlds:
        while cycle(world, Memo(), MINUTE_MS):
            pass
    sides = [Side(world, 2 * MINUTE_MS) for world in worlds]
    steady()
    ends = plan.pick(20, 5)
    rng = np.random.default_rng(7)
    ending = [rng.choice(sorted(world.runs), (plan.rounds, ends), replace=False).tolist() for world in worlds]
    pairs: list[Pair] = []
    for number in plan.each_round():
        times = [[side.after(task) for side, task in zip(sides, tasks, strict=True)]
                 for tasks in zip(*(tasks[number - 1] for tasks in ending), strict=True)]  # fmt: skip
        pairs.append((median(one for one, _ in times), median(other for _, other in times)))
        plan.say(f"round {number}: after an end the tree {pairs[-1][0]:.2f} ms, one line {pairs[-1][1]:.2f} ms")
    return pairs
