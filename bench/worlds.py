"""Large worlds for the benchmarks of the kernel, made by folding events as the live ones are.

Nodes and shapes are drawn by the functions of the rival `decide.py`, so that both schedule the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.kit import Plan
from bench.peers import load_functions
from tidegate.core.accept import accept
from tidegate.core.decide import decide
from tidegate.core.memo import Memo
from tidegate.core.reconcile import reconcile
from tidegate.model.commands import Cancel, ChangePolicy, Command, Refused, SetNode, Submit
from tidegate.model.engine import Ended
from tidegate.model.events import Event, JobLaunched
from tidegate.model.jobs import JobSpec, Outcome, Shape
from tidegate.model.nodes import Node
from tidegate.wire.policy_file import load_builtin
from tidegate.world.apply import apply
from tidegate.world.world import World

RESOURCES = (("cpus", 1000), ("gpus", 1000), ("memory", 1024), ("scratch", 1))
"""Name and unit, sorted by name; `scratch` is a named resource."""
COLUMN = {"cpus": 0, "memory": 1, "gpus": 2, "scratch": 3}
"""Where the rival has them."""
MINUTE_MS = 60_000
POOL = "default"


@dataclass(frozen=True, slots=True)
class Size:
    nodes: int
    waiting: int
    lanes: int
    many_lanes: int


def size_of(plan: Plan) -> Size:
    return Size(1_000, 10_000, 100, 1_000) if plan.smoke else Size(10_000, 100_000, 100, 10_000)


class Kind:
    """What the jobs of one lane ask for."""

    __slots__ = ("limit_ms", "shape")

    def __init__(self, request: Sequence[int], limit_ms: int) -> None:
        chunk = tuple((name, request[COLUMN[name]] * unit) for name, unit in RESOURCES if request[COLUMN[name]])
        self.shape = Shape(chunk)
        self.limit_ms = limit_ms


@dataclass(frozen=True, slots=True)
class Drawn:
    """What the rival's functions drew: the same for it and for us."""

    nodes: Any  # by resource, then by node
    shapes: Any  # by shape, then by resource
    shape_of: Any  # by job


def draw(size: Size) -> Drawn:
    functions = load_functions("decide.py", ("nodes", "shapes"))
    rng = np.random.default_rng(3)  # with this seed a hundred shapes are all different
    wanted = functions["shapes"](rng, size.lanes)
    shape_of = rng.integers(0, size.lanes, size.waiting).astype(np.int32)
    empty = np.ascontiguousarray(functions["nodes"](size.nodes, rng, 0.0).T)
    return Drawn(empty, wanted, shape_of)


def one_limit(drawn: Drawn) -> list[Kind]:
    """A lane a shape."""
    return [Kind(request, 60 * MINUTE_MS) for request in drawn.shapes.tolist()]


def mixed_limits(drawn: Drawn, lanes: int) -> list[Kind]:
    """The same shapes with many limits each: as real logs are."""
    requests = drawn.shapes.tolist()
    limits = lanes // len(requests)
    return [Kind(request, (1 + which) * 7 * MINUTE_MS) for which in range(limits) for request in requests]


def mixed_shapes(lanes: int) -> list[Kind]:
    """Shapes and limits drawn alone for every lane: hardly two ask for the same nodes."""
    rng = np.random.default_rng(2)
    requests = load_functions("decide.py", ("shapes",))["shapes"](rng, lanes).tolist()
    limits = rng.integers(1, 1440, lanes).tolist()
    return [Kind(request, limit * MINUTE_MS) for request, limit in zip(requests, limits, strict=True)]


# -- folding -----------------------------------------------------------------------------------------------


def tell(world: World, command: Command, now: int) -> None:
    """The command is taken, and folded."""
    answer = accept(world, command, now)
    assert not isinstance(answer, Refused), answer
    fold(world, answer)


def fold(world: World, events: Iterable[Event]) -> None:
    for event in events:
        apply(world, event)


def cluster(drawn: Drawn) -> World:
    """The nodes, empty, under EASY with first fit."""
    world = World()
    tell(world, ChangePolicy(load_builtin("easy")), 0)
    for row, free in enumerate(drawn.nodes.T.tolist()):
        capacity = tuple((name, free[COLUMN[name]] * unit) for name, unit in RESOURCES)
        tell(world, SetNode(Node(f"n{row:05}", POOL, capacity)), 0)
    return world


def submit(world: World, kinds: Sequence[Kind], lane_of: Sequence[int], now: int) -> None:
    """One job each, in this order."""
    for lane in lane_of:
        kind = kinds[lane]
        tell(world, Submit(JobSpec(f"user{lane % 50}", kind.shape, kind.limit_ms)), now)


def cycle(world: World, memo: Memo, now: int) -> int:
    """One cycle into the state, with its starts confirmed by an engine; how many there were."""
    plan = decide(world, memo, now)
    fold(world, (plan.cycle, *plan.starts))
    fold(world, (JobLaunched(now, start.task, start.attempt) for start in plan.starts))
    return len(plan.starts)


def end_one(world: World, task: int, now: int) -> None:
    """That running task ends."""
    fold(world, reconcile(world, Ended(task, world.runs[task].attempt, Outcome.COMPLETED), now))


def busy_cluster(drawn: Drawn, kinds: Sequence[Kind], waiting: int) -> tuple[World, int]:
    """A full cluster and so many jobs waiting, as many in every lane, each refused once; and the time."""
    world = cluster(drawn)
    each, rng = waiting // len(kinds), np.random.default_rng(4)
    memo, now = Memo(), 0
    submit(world, kinds, rng.integers(0, len(kinds), waiting).tolist(), now)
    while cycle(world, memo, now):
        now += MINUTE_MS
        submit(world, kinds, rng.permutation(_missing(world, kinds, each)).tolist(), now)
    keep_waiting(world, each, now)
    cycle(world, memo, now)
    return world, now


def _missing(world: World, kinds: Sequence[Kind], each: int) -> list[int]:
    there = {(lane.shape, lane.estimate_ms): len(lane.jobs) for lane in world.pools[POOL].lanes.values()}
    return [at for at, kind in enumerate(kinds) for _ in range(each - there.get((kind.shape, kind.limit_ms), 0))]


def keep_waiting(world: World, each: int, now: int) -> None:
    """Cancels the youngest jobs of every lane until so many are left."""
    for lane in list(world.pools[POOL].lanes.values()):
        for job in list(lane.jobs)[each:]:
            tell(world, Cancel(job.id), now)


def waiting_jobs(world: World) -> int:
    return sum(len(lane.jobs) for lane in world.pools[POOL].lanes.values())
