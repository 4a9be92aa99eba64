"""Writes the golden journals: `python -m tests.golden.record`. Only when the kernel was changed on purpose.

A golden journal is text, so that a change of it can be read: a line an event, and a last line with the digest of the
state after them and the snapshot of it. It stops in the middle, where much is alive.
"""

from base64 import b64encode
from pathlib import Path

import msgspec

from tests.kit.choose import Seeded
from tests.kit.faulty_engine import CALM, STORM, FaultyEngine
from tests.kit.play import STEPS
from tests.kit.scenario import nodes_of, policy_of
from tests.kit.sim import Sim
from tests.property.test_seeds import run_time
from tidegate.model.events import Event
from tidegate.world.snapshot import dump

FOLDER = Path(__file__).parent
STEPS_PER_JOURNAL = 80
JOURNALS = {"storm": 305, "even": 315, "pools": 307}


class End(msgspec.Struct):
    digest: str
    snapshot: str  # base64


def simulated(seed: int) -> Sim:
    chooser = Seeded(seed)
    even = seed % 3 == 0
    nodes = nodes_of(chooser, even=even)
    if seed == JOURNALS["pools"]:
        nodes += nodes_of(chooser, pool="q")
    sim = Sim(FaultyEngine(run_time, seed, CALM if even else STORM), nodes, policy_of(chooser))
    for _ in range(STEPS_PER_JOURNAL):
        chooser.pick(STEPS)(sim, chooser, even=even)
    return sim


def main() -> None:
    encode = msgspec.json.Encoder().encode
    for name, seed in JOURNALS.items():
        sim = simulated(seed)
        end = End(sim.world.full_digest(), b64encode(dump(sim.world)).decode())
        lines = [encode(event) for event in sim.journal.events]
        (FOLDER / f"{name}.jsonl").write_bytes(b"\n".join((*lines, encode(end), b"")))


def read(name: str) -> tuple[list[Event], End]:
    *lines, end = (FOLDER / f"{name}.jsonl").read_bytes().splitlines()
    decoder = msgspec.json.Decoder(Event)
    return [decoder.decode(line) for line in lines], msgspec.json.decode(end, type=End)


if __name__ == "__main__":
    main()
