"""A full cycle over an empty cluster and a long queue, against a plain Python cursor per shape.

The cursor only counts: no promise, no backfilling, no events, and it changes its nodes in place. `decide` leaves
the world as it is, and knows nothing from earlier cycles here; the second row adds folding what it decided.
"""

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from bench.kit import Plan, steady
from bench.peers import load_functions
from bench.rows import Bound, Pair, Row, compare
from bench.worlds import (
    MINUTE_MS,
    Drawn,
    Kind,
    cluster,
    draw,
    fold,
    mixed_limits,
    mixed_shapes,
    one_limit,
    size_of,
    submit,
)
from tidegate.core.decide import decide
from tidegate.core.memo import Memo
from tidegate.world.world import World

Times = dict[str, list[float]]
"""Milliseconds, a round each."""


def run(plan: Plan) -> list[Row]:
    size = size_of(plan)
    drawn, cursor = draw(size), Cursor()
    empty = cluster(drawn)
    lane_of = np.random.default_rng(5).integers(0, size.many_lanes, size.waiting).tolist()
    queues: dict[str, tuple[Sequence[Kind], Sequence[int]]] = {
        "few": (one_limit(drawn), drawn.shape_of),
        "limits": (mixed_limits(drawn, size.many_lanes), lane_of),
        "shapes": (mixed_shapes(size.many_lanes), lane_of),
    }
    times: Times = {"cursor": []}
    placed: dict[str, int] = {}
    steady()
    for number in plan.each_round():
        times["cursor"].append(cursor.milliseconds(drawn))
        for name, queue in queues.items():
            placed[name] = one_round(empty, queue, times, name)
        plan.say(f"round {number}: " + ", ".join(f"{name} {took[-1]:.0f} ms" for name, took in times.items()))
    return rows(times, placed, cursor.placed, size.many_lanes)


def rows(times: Times, placed: dict[str, int], rival_placed: int, many: int) -> list[Row]:
    def pairs(ours: str, rival: str) -> list[Pair]:
        return list(zip(times[ours], times[rival], strict=True))

    cursor, few = "py_cursor", "ours, 100 lanes"
    note = f"placed {placed['few']:,}, the cursor {rival_placed:,}"
    ten_times, three_times = Bound("at most", 10, 3), Bound("at most", 3)
    return [
        compare("cycle/100-lanes", "ms", pairs("few", "cursor"), cursor, ten_times, note=note),
        compare("cycle/100-lanes+apply", "ms", pairs("few+apply", "cursor"), cursor),
        compare(f"cycle/{many}-lanes", "ms", pairs("limits", "few"), few, three_times,
                note=f"100 shapes, {many // 100} limits each; placed {placed['limits']:,}"),
        compare(f"cycle/{many}-lanes+apply", "ms", pairs("limits+apply", "few+apply"), f"{few}, with apply"),
        compare(f"cycle/{many}-shapes", "ms", pairs("shapes", "few"), few,
                note=f"as many shapes as lanes, mixed limits; placed {placed['shapes']:,}"),
    ]  # fmt: skip


def one_round(empty: World, queue: tuple[Sequence[Kind], Sequence[int]], times: Times, name: str) -> int:
    world = empty.fork()
    submit(world, *queue, 0)
    began = perf_counter()
    plan = decide(world, Memo(), MINUTE_MS)
    decided = perf_counter()
    fold(world, (plan.cycle, *plan.starts))
    ended = perf_counter()
    times.setdefault(name, []).append((decided - began) * 1000)
    times.setdefault(f"{name}+apply", []).append((ended - began) * 1000)
    return len(plan.starts)


class Cursor:
    """The rival. It tells its times to a function of its script, which is ours here."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        functions = load_functions("decide.py", ("py_cursor",), out=lambda what, **told: self.told.append(told))
        self.cursor: Callable[[Any, Any, Any], None] = functions["py_cursor"]

    def milliseconds(self, drawn: Drawn) -> float:
        self.told.clear()
        self.cursor(drawn.nodes, drawn.requests, drawn.shape_of)
        took: float = median(told["ms"] for told in self.told)
        return took

    @property
    def placed(self) -> int:
        placed: int = self.told[-1]["placed"]
        return placed
