"""Seeds: long simulations, each drawn from one number. A failure prints the command that repeats it.

SEEDS=200 runs more of them, SEED=123 just that one.
"""

import os
import random

import pytest

from tests.kit.choose import Seeded
from tests.kit.faulty_engine import CALM, STORM, FaultyEngine
from tests.kit.play import STEPS, STEPS_OF_BLAME
from tests.kit.scenario import nodes_of, policy_of
from tests.kit.sim import Sim
from tidegate.loop.loop import Cadence

STEPS_PER_SEED = int(os.environ.get("STEPS", "120"))
FIRST = 1
COUNT = int(os.environ.get("SEEDS", "100"))
SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else list(range(FIRST, FIRST + COUNT))


def run_time(task: int, attempt: int) -> int:
    """The same for the same attempt, whatever came before; some outlive their limit."""
    return random.Random(task * 1000 + attempt).choice((1, 5, 10, 20, 20, 50, 130))


def simulated(seed: int, steps: int = STEPS_PER_SEED) -> Sim:
    chooser = Seeded(seed)
    even = seed % 3 == 0
    blaming = seed % 4 == 2
    nodes = nodes_of(chooser, even=even, least=3 if blaming else 1)
    if seed % 4 == 1:
        nodes += nodes_of(chooser, pool="q")
    engine = FaultyEngine(run_time, seed, CALM if seed % 5 == 2 else STORM)
    sim = Sim(engine, nodes, policy_of(chooser), Cadence.PER_EVENT if seed % 7 == 6 else Cadence.BATCHED)
    if blaming:
        engine.spoiled.add(chooser.pick(sorted(sim.nodes)))
    for _ in range(steps):
        chooser.pick(STEPS_OF_BLAME if blaming else STEPS)(sim, chooser, even=even)
    sim.drain()
    numbers = sorted(sim.digests)
    sim.check_recovery([chooser.pick(numbers) for _ in range(20)])
    return sim


@pytest.mark.parametrize("seed", SEEDS)
def test_seed(seed: int):
    try:
        simulated(seed)
    except BaseException as failure:
        failure.add_note(f"repeat: SEED={seed} STEPS={STEPS_PER_SEED} .venv/bin/pytest tests/property/test_seeds.py")
        raise
