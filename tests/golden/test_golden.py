"""What was once written is folded to the same state, decided the same again, and its snapshot loads.

After a change of the kernel that is meant to change decisions or records: raise KERNEL, then
`python -m tests.golden.record`, and say so in the change log.
"""

from base64 import b64decode

import pytest

from tests.golden.record import JOURNALS, read
from tidegate.core.decide import decide
from tidegate.core.memo import Memo
from tidegate.model.events import CycleRan
from tidegate.world.apply import apply
from tidegate.world.check import check
from tidegate.world.snapshot import load
from tidegate.world.world import World


@pytest.mark.parametrize("name", JOURNALS)
def test_the_fold_gives_the_same_state(name: str):
    events, end = read(name)
    world = World()
    for event in events:
        apply(world, event)
    assert world.full_digest() == end.digest
    assert world.jobs, "a state in which nothing is alive says little"


@pytest.mark.parametrize("name", JOURNALS)
def test_each_cycle_decides_the_same_again(name: str):
    events, _ = read(name)
    world, cycles = World(), 0
    for at, event in enumerate(events):
        if isinstance(event, CycleRan):
            plan = decide(world, Memo(), event.at)
            assert [plan.cycle, *plan.starts] == events[at : at + 1 + len(plan.starts)], f"event {at + 1}"
            cycles += 1
        apply(world, event)
    assert cycles > 10


@pytest.mark.parametrize("name", JOURNALS)
def test_the_snapshot_loads(name: str):
    _, end = read(name)
    world = load(b64decode(end.snapshot))
    assert world.full_digest() == end.digest
    assert not check(world, may_be_overfull=True)
