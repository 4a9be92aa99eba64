"""Nodes that spoil jobs: the books (`tests/kit/node_books.py`) say who may be suspected, and one run a trial."""

from functools import cache

import pytest
from msgspec.structs import replace

from tests.kit.choose import Seeded, one_in
from tests.kit.faulty_engine import FaultyEngine
from tests.kit.scenario import nodes_of, policy_of, retry_of, spec_of
from tests.kit.sim import Sim
from tidegate.core.blame import TRIED_AFTER_MS
from tidegate.loop.loop import Cadence
from tidegate.model import events as ev
from tidegate.model.commands import Submit
from tidegate.model.jobs import Shape, amounts

SEEDS = range(12)


def run_time(task: int, attempt: int) -> int:
    return (1, 5, 10, 20, 50)[(task // 7 + task + attempt) % 5]


@cache
def spoiled(seed: int) -> Sim:
    """Small jobs, some nodes on which all of them fail for a while, and time to try again."""
    chooser = Seeded(seed)
    even = bool(seed % 2)
    nodes = [replace(node, capacity=amounts(cpus=4000)) for node in nodes_of(chooser, even=even, least=3)]
    cadence = Cadence.PER_EVENT if seed % 6 == 5 else Cadence.BATCHED
    sim = Sim(FaultyEngine(run_time, seed), nodes, policy_of(chooser, cut=seed % 3 == 0), cadence)
    for _ in range(30):
        if one_in(chooser, 4):
            sim.engine.spoiled ^= {chooser.pick(nodes[:2]).name}
        shape = Shape(amounts(cpus=1000), chooser.pick((1, 1, 1, 2)), stack=even)
        specs = [replace(spec_of(chooser, ["p"]), shape=shape, retry=retry_of(chooser)) for _ in range(4)]
        sim.send(*(Submit(spec) for spec in specs))
        sim.advance(chooser.pick((5, 20, 60, TRIED_AFTER_MS)))
        if one_in(chooser, 8):
            sim.restart()
    return sim


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_left_in_the_end(seed: int):
    spoiled(seed).drain()


def test_all_of_it_has_happened():
    events = [event for seed in SEEDS for event in spoiled(seed).journal.events]
    strikes = {event.strikes for event in events if isinstance(event, ev.NodeSuspected)}
    assert {1, 2, 3} <= strikes
    assert any(isinstance(event, ev.NodeCleared) for event in events)
    assert any(isinstance(event, ev.CycleRan) and event.cut == "trials" for event in events)
    assert any(isinstance(event, ev.TaskRested) for event in events)
