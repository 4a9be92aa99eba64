"""The tide: it never flutters, comes to a calm by itself, and is told of bursts, not of what is usual."""

from itertools import pairwise
from random import Random

import pytest

from tests.kit.choose import Seeded
from tests.kit.scenario import CPU, tide_of
from tidegate.engines.virtual import VirtualEngine
from tidegate.journals.memory import MemoryJournal, Tee
from tidegate.lab.detect import Counts, trials
from tidegate.lab.modes import trial
from tidegate.lab.ports import TraceInbox, VirtualClock
from tidegate.lab.replay import set_up
from tidegate.lab.workload import Arrival
from tidegate.loop.loop import Loop
from tidegate.loop.recovery import recover
from tidegate.model.commands import Submit
from tidegate.model.events import TideTurned
from tidegate.model.jobs import Array, JobSpec, Shape, amounts
from tidegate.model.nodes import Node
from tidegate.model.policy import PolicySpec, Tide, Tides
from tidegate.wire.policy_file import read_policy
from tidegate.world.check import check
from tidegate.world.world import World

SEEDS = range(60)
TURNS_MAX = 20_000
MODES_SEEDS = 4
STEP_MS = 600_000
QUIET, BUSY = 6, 90
"""Arrivals in ten minutes."""


def flooded(tide: Tides, seed: int) -> tuple[World, MemoryJournal]:
    """Waves of jobs, some as arrays, on a small machine, until nothing can ever happen again."""
    chooser = Seeded(seed)
    at, arrivals = 0, []
    for job in range(1, 80):
        at += chooser.pick((0, 0, 0, 1, 2, 5, 40))
        array = Array(tuple(range(chooser.integer(2, 6)))) if chooser.integer(0, 3) == 0 else None
        spec = JobSpec("u", Shape(amounts(cpus=CPU), 1), 50, pool=chooser.pick(("p", "q")), array=array)
        arrivals.append(Arrival(at, Submit(spec, job=job), chooser.integer(1, 30), job))
    inbox = TraceInbox(iter(arrivals))
    journal = MemoryJournal()
    loop = Loop(World(), VirtualClock(), journal, VirtualEngine(inbox.run_time), inbox)
    nodes = [Node(f"{pool}1", pool, amounts(cpus=2 * CPU)) for pool in "pq"]
    set_up(loop, nodes, PolicySpec("drawn", tide=tide))
    turns = 0
    while loop.turn():
        turns += 1
        assert turns < TURNS_MAX, "it has no end"
    return loop.world, journal


@pytest.mark.parametrize("seed", SEEDS)
def test_it_never_flutters_and_is_calm_when_all_is_quiet(seed: int):
    tide = tide_of(Seeded(seed))
    world, journal = flooded(tide, seed)
    turns = [event for event in journal.events if isinstance(event, TideTurned)]
    for pool in world.pools:
        assert world.gauges[pool].state is Tide.CALM
        mine = [turn for turn in turns if turn.pool == pool]
        for one, other in pairwise(mine):
            assert one.after is other.before
            if other.before in {Tide.RISING, Tide.SURGE}:
                assert other.at - one.at >= tide.hold_ms
            elif other.after is Tide.CALM:
                assert other.at - one.at >= tide.ebb_ms
        for one, fourth in zip(mine, mine[3:], strict=False):
            assert fourth.at - one.at >= tide.hold_ms
        assert list(world.gauges[pool].turns) == [type(world.gauges[pool].turns[0])(t.at, t.before, t.after, t.why)
                                                  for t in mine[-8:]]  # fmt: skip
        assert all(turn.why for turn in mine)
    assert not check(world)
    assert recover(journal).full_digest() == world.full_digest()


def test_a_burst_is_told_soon_and_a_quiet_month_brings_few_alarms():
    random = Random(1)
    counts = [sum(random.random() < QUIET / 100 for _ in range(100)) for _ in range(4 * 1008)]
    burst = len(counts) // 2
    counts[burst : burst + 12] = [BUSY] * 12
    found = trials(Counts("made", STEP_MS, tuple(counts)), Tides(), VirtualEngine, Tee, 1)
    assert found["labelled"]["found_part"] == 1.0
    assert found["labelled"]["false_alarms_a_week"] <= 0.5
    assert found["quiet"]["false_alarms_a_week"] <= 0.5
    assert found["put_in"]["x20"]["found"] == found["put_in"]["x20"]["bursts"]
    assert found["put_in"]["all"]["rising_delay_median_s"] <= 600


@pytest.mark.slow
def test_a_policy_with_a_tide_beats_both_of_its_own_modes():
    """On the mean wait of critical and of small jobs; see lab.modes for what counts as waiting."""
    policy = read_policy("./examples/policies/surge.yaml")
    waits: dict[tuple[str, str], list[float]] = {}
    for seed in range(1, MODES_SEEDS + 1):
        for row in trial(policy, seed, VirtualEngine, Tee):
            for who in ("critical", "small"):
                waits.setdefault((row["mode"], who), []).append(row[f"{who}_wait_mean_s"])
    for who in ("critical", "small"):
        tide = waits["tide", who]
        for mode in ("always calm", "always surge"):
            other = waits[mode, who]
            assert sum(tide) < 0.9 * sum(other), (who, mode, tide, other)
            assert sum(a < b for a, b in zip(tide, other, strict=True)) > MODES_SEEDS // 2, (who, mode, tide, other)
