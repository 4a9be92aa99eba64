"""The same run decides the same under any hash seed."""

import os
import subprocess
import sys
from pathlib import Path

import tidegate

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(tidegate.__file__).resolve().parents[1]
SEEDS = range(1, 9)

RUN = """
from tests.property.test_seeds import simulated
for seed in range({first}, {last}):
    sim = simulated(seed, steps=40)
    print(len(sim.journal.events), sim.world.full_digest(), sim.decisions())
"""


def test_the_hash_seed_decides_nothing():
    said = []
    for hash_seed in ("0", "1", "4711"):
        source = RUN.format(first=SEEDS.start, last=SEEDS.stop)
        path = os.pathsep.join((str(ROOT), str(SOURCE)))
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        env.pop("SEED", None)
        done = subprocess.run([sys.executable, "-c", source], env=env, check=True, capture_output=True, text=True)
        said.append(done.stdout)
    assert len(said[0].splitlines()) == len(SEEDS)
    assert said[0] == said[1] == said[2]
