"""Large worlds for the benchmarks of the kernel, made by folding events as the live ones are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.kit import Plan
from tidegate.core.accept import accept
from tidegate.core.decide import decide
from tidegate.core.memo import Memo
from tidegate.core.reconcile import reconcile
from tidegate.model.commands import Cancel, ChangePolicy, Command, Refused, SetNode, Submit
from tidegate.model.engine import Ended
from tidegate.model.events import Event, JobLaunched
from tidegate.model.jobs import Amounts, JobSpec, Outcome, Shape
from tidegate.model.nodes import Node
from tidegate.wire.policy_file import load_builtin
from tidegate.world.apply import apply
from tidegate.world.world import World

NODE = (64, 256, 8, 1000)
"""Processors, GiB of memory, GPUs, and a named resource: what every node has."""
RESOURCES = (("cpus", 0, 1000), ("gpus", 2, 1000), ("memory", 1, 1024), ("scratch", 3, 1))
"""Name, where it stands in NODE, unit; sorted by name."""
SEED = 3
MINUTE_MS = 60_000
POOL = "default"
ARRIVALS = 100
"""In so many parts, a minute apart, the jobs of a busy cluster came."""


@dataclass(frozen=True, slots=True)
class Size:
    nodes: int
    waiting: int
    lanes: int
    many_lanes: int


def size_of(plan: Plan) -> Size:
    return Size(1_000, 10_000, 100, 1_000) if plan.smoke else Size(10_000, 100_000, 100, 10_000)


def amounts_of(amounts: Sequence[int]) -> Amounts:
    return tuple((name, amounts[at] * unit) for name, at, unit in RESOURCES if amounts[at])


class Kind:
    """What the jobs of one lane ask for."""

    __slots__ = ("limit_ms", "queue", "shape")

    def __init__(self, request: Sequence[int], limit_ms: int) -> None:
        self.queue = "default"
        self.shape = Shape(amounts_of(request))
        self.limit_ms = limit_ms


@dataclass(frozen=True, slots=True)
class Drawn:
    """The same for the rival and for us. An amount a resource, in the order of NODE."""

    nodes: list[list[int]]
    requests: list[list[int]]  # by shape
    shape_of: list[int]  # by job


def draw(size: Size) -> Drawn:
    """The distributions are those of the rival script, so its published figures are about the same queue."""
    rng = np.random.default_rng(SEED)
    wanted = requests(rng, size.lanes)
    assert len(set(map(tuple, wanted))) == size.lanes, "with this seed all shapes are different"
    return Drawn([list(NODE)] * size.nodes, wanted, rng.integers(0, size.lanes, size.waiting).tolist())


def requests(rng: np.random.Generator, shapes: int) -> list[list[int]]:
    """Processors and memory in powers of two, GPUs in less than two thirds, a little of the named resource."""
    columns = (
        2 ** rng.integers(0, 7, shapes),
        2 ** rng.integers(1, 8, shapes),
        rng.choice((0, 0, 0, 1, 2, 4, 8), shapes),
        rng.integers(0, 50, shapes),
    )
    return [list(request) for request in zip(*(column.tolist() for column in columns), strict=True)]


def one_limit(drawn: Drawn) -> list[Kind]:
    """A lane a shape."""
    return [Kind(request, 60 * MINUTE_MS) for request in drawn.requests]


def mixed_limits(drawn: Drawn, lanes: int) -> list[Kind]:
    """The same shapes, each with so many limits (a day and more) that there are as many lanes: as in real logs."""
    wanted = drawn.requests
    return [Kind(wanted[at % len(wanted)], (1440 + 7 * (at * 37 % lanes)) * MINUTE_MS) for at in range(lanes)]


def mixed_shapes(lanes: int) -> list[Kind]:
    """Shapes and limits drawn alone for every lane: hardly two ask for the same nodes."""
    rng = np.random.default_rng(SEED)
    limits = rng.integers(1, 1440, lanes).tolist()
    return [Kind(request, limit * MINUTE_MS) for request, limit in zip(requests(rng, lanes), limits, strict=True)]


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
    for row, amounts in enumerate(drawn.nodes):
        tell(world, SetNode(Node(f"n{row:05}", POOL, amounts_of(amounts))), 0)
    return world


def submit(world: World, kinds: Sequence[Kind], lane_of: Sequence[int], now: int) -> None:
    """One job each, in this order."""
    for lane in lane_of:
        kind = kinds[lane]
        tell(world, Submit(JobSpec(f"user{lane % 50}", kind.shape, kind.limit_ms, queue=kind.queue)), now)


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
    """A full cluster and so many jobs waiting, as many in every lane, each refused once; and the time.

    Jobs came over some hours, so thousands of instants are known at which runs should end.
    """
    world = cluster(drawn)
    each, rng = waiting // len(kinds), np.random.default_rng(4)
    memo, now = Memo(), 0
    for arriving in np.array_split(rng.integers(0, len(kinds), waiting), ARRIVALS):
        submit(world, kinds, arriving.tolist(), now)
        cycle(world, memo, now)
        now += MINUTE_MS
    started = 1
    while started:
        submit(world, kinds, rng.permutation(_missing(world, kinds, each)).tolist(), now)
        started = cycle(world, memo, now)
        now += MINUTE_MS
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
