"""`world.check` sees a fault in each thing that is kept for speed: one is planted, and it says so."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.choose import Seeded
from tests.kit.faulty_engine import FaultyEngine
from tests.kit.scenario import nodes_of
from tests.kit.sim import Sim
from tidegate.model.commands import Submit
from tidegate.model.jobs import Array, JobSpec, Shape, amounts
from tidegate.model.policy import DEPTH_ALL, Backfill, PolicySpec, Queue
from tidegate.world.check import check
from tidegate.world.pool import Pool
from tidegate.world.records import NO_RUNS, Account, AlikeRuns, Tries
from tidegate.world.world import World


def busy() -> World:
    """Something runs, something waits in a lane with a promise, something is parked."""
    nodes = nodes_of(Seeded(3), even=True)
    policy = PolicySpec("all", backfill=Backfill(DEPTH_ALL), queues={"default": Queue()})
    sim = Sim(FaultyEngine(lambda _task, _attempt: 1000, 0), nodes, policy)
    room = sum(dict(node.capacity)["cpus"] for node in nodes) // 1000
    shape = Shape(amounts(cpus=1000), room, stack=True)
    sim.send(Submit(JobSpec("u", shape, 50, array=Array((1, 2)))), Submit(JobSpec("u", shape, 70)))
    sim.send(Submit(JobSpec("u", shape, 50, held=True)))
    world = sim.world
    assert world.runs
    assert world.promises
    assert world.parked
    assert not check(world)
    return world


def first(items: dict[Any, Any]) -> Any:
    return next(iter(items))


def twice(items: dict[Any, Any]) -> None:
    items[max(items) + 1] = items[first(items)]


def grow_unseen(world: World, pool: Pool) -> None:
    world.stirred.clear()
    pool.grown = True


FAULTS: dict[str, Callable[[World, Pool], object]] = {
    "a free amount": lambda _, pool: pool.buffer.__setitem__((0, 0), pool.buffer[0, 0] + 1),
    "free chunks": lambda _, pool: setattr(pool, "free_units", pool.free_units + 1),
    "capacity": lambda _, pool: pool.capacity.__setitem__(0, 1),
    "a closed row": lambda _, pool: pool.closed.add(0),
    "an end": lambda _, pool: pool.end_times.append(10**6),
    "runs by end": lambda _, pool: pool.runs_at.clear(),
    "chunks by end": lambda _, pool: twice(pool.units_at),
    "a lane gone": lambda _, pool: pool.lanes.popitem(),
    "a lane's job": lambda _, pool: pool.lanes[first(pool.lanes)].jobs.clear(),
    "a promise by pool": lambda _, pool: pool.promised.popitem(),
    "a promise": lambda world, _: world.promises.popitem(),
    "launching": lambda world, _: world.launching.update({10**9: 1}),
    "a run": lambda world, _: world.runs.popitem(),
    "a run twice": lambda world, _: twice(world.runs),
    "a job": lambda world, _: world.jobs.pop(first(world.jobs)),
    "an array": lambda world, _: world.arrays.clear(),
    "a parked job": lambda world, _: world.parked.popitem(),
    "tries": lambda world, _: world.tries.update({first(world.runs): Tries(1, 1, 0, 0)}),
    "the next id": lambda world, _: setattr(world, "next_job", 1),
    "the digest": lambda world, _: setattr(world.digest, "total", world.digest.total + 1),
    "a wanted stray": lambda world, _: world.strays.update({(first(world.runs), 1): 1}),
    "an outcome": lambda world, _: world.outcomes.update({first(world.jobs): "completed"}),
    "alike runs": lambda world, _: world.alike.update({("u", 1, 1): AlikeRuns(1, NO_RUNS)}),
    "a user's lanes": lambda _, pool: pool.lanes_of.update({"u": {}}),
    "a change unseen": grow_unseen,
    "an account": lambda world, _: world.accounts.popitem(),
    "an account of nothing": lambda world, _: world.accounts.update({"gone": Account(0, (0,), ())}),
    "a path": lambda world, _: world.paths.update({("default", "u"): ("other",)}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_it_finds(fault: str):
    world = busy()
    FAULTS[fault](world, world.pools["p"])
    assert check(world)
