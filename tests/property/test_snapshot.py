"""A world that was dumped and loaded is the world: it decides the same, and goes on the same."""

import msgspec
import pytest

from tests.kit import play
from tests.kit.choose import Seeded
from tests.kit.faulty_engine import CALM, STORM, FaultyEngine
from tests.kit.scenario import nodes_of, policy_of
from tests.kit.sim import Sim
from tests.property.test_seeds import run_time
from tidegate.core.decide import decide
from tidegate.core.memo import Memo
from tidegate.journals.memory import MemoryJournal
from tidegate.loop.loop import Cadence
from tidegate.loop.recovery import recovered
from tidegate.policy.order import moves_with_time
from tidegate.world.apply import apply
from tidegate.world.snapshot import FORMAT, SnapshotError, dump, load
from tidegate.world.world import SCALARS, TABLES, World

SEEDS = range(40)
STEPS_PER_SEED = 60
BUSY = (*play.STEPS, play.restart, play.restart)


def simulated(seed: int, restart, *more) -> Sim:
    """`restart` in place of each restart there would be."""
    chooser = Seeded(seed)
    even = seed % 3 == 0
    nodes = nodes_of(chooser, even=even)
    if seed % 4 == 1:
        nodes += nodes_of(chooser, pool="q")
    engine = FaultyEngine(run_time, seed, CALM if seed % 5 == 2 else STORM)
    sim = Sim(engine, nodes, policy_of(chooser), Cadence.PER_EVENT if seed % 7 == 6 else Cadence.BATCHED)
    for _ in range(STEPS_PER_SEED):
        step = chooser.pick((*BUSY, *more))
        (restart if step is play.restart else step)(sim, chooser, even=even)
    return sim


@pytest.mark.parametrize("seed", SEEDS)
def test_it_goes_on_to_the_end_as_the_one_that_was_folded(seed: int):
    folded, loaded = simulated(seed, play.restart), simulated(seed, play.restart_from_snapshot)
    folded.drain()
    loaded.drain()
    assert loaded.journal.events == folded.journal.events
    assert loaded.world.full_digest() == folded.world.full_digest()
    numbers = sorted(loaded.digests)
    loaded.check_recovery(numbers[:: max(1, len(numbers) // 10)])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fold_may_begin_at_any_snapshot(seed: int):
    sim = simulated(seed, play.restart, play.keep_snapshot, play.keep_snapshot)
    sim.drain()
    found = recovered(sim.journal)
    assert found.world.full_digest() == sim.world.full_digest()
    assert found.snapshot == (sim.journal.kept[-1][0] if sim.journal.kept else 0)
    assert (found.folded, found.notes) == (sim.world.seq - found.snapshot, [])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cold_memo_decides_the_same_on_both(seed: int):
    sim = simulated(seed, play.restart)
    live, loaded = sim.world, load(dump(sim.world))
    for later in (0, 1, 20, 100):
        one, other = (decide(world, Memo(), sim.now + later) for world in (live, loaded))
        assert one == other
    if not any(moves_with_time(live.policy_in(pool)) for pool in live.pools):
        plan = decide(loaded, Memo(), sim.now)
        for world in (live, loaded):
            apply(world, plan.cycle)
            for start in plan.starts:
                apply(world, start)
        assert live.full_digest() == loaded.full_digest() == loaded.read_digest()


def test_dumping_twice_gives_the_same_octets():
    world = simulated(7, play.restart).world
    octets = dump(world)
    assert dump(load(octets)) == dump(load(dump(load(octets))))
    assert load(octets).full_digest() == world.full_digest()


def test_every_table_is_told():
    world = World()
    image = msgspec.msgpack.decode(dump(world).partition(b"\n")[2])
    assert image.keys() == {*SCALARS, *TABLES, "pools", "stirred"}
    of_policy = {"in_force", "has_queues", "has_standings", "has_kept", "shapes", "in_tides"}  # set by the property,
    of_policy |= {"swayed"}  # or follow
    kept = {"pools", "stirred", "digest", "paths", "token", *of_policy, *SCALARS, *TABLES} - {"policy"}
    known = getattr(World, "__mypyc_attrs__", None) or vars(world)
    assert {name for name in known if not name.startswith("__")} == kept


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\n",
        b"tide%d\n" % FORMAT,
        b"tide%d\n\xc1" % FORMAT,
        b"tide%d\n" % (FORMAT + 1) + dump(World()).partition(b"\n")[2],
        dump(World())[:-1],
        dump(World()).replace(b"next_job\x01", b"next_job\xc0"),
    ],
)
def test_what_cannot_be_read_is_said(octets: bytes):
    with pytest.raises(SnapshotError):
        load(octets)


def test_a_snapshot_that_cannot_be_used_is_passed_over():
    sim = simulated(3, play.restart)
    journal, seq = sim.journal, sim.world.seq
    journal.kept = [(seq, dump(sim.world)), (seq + 5, dump(sim.world))]
    found = recovered(journal)
    assert (found.snapshot, len(found.notes)) == (seq, 1)
    journal.kept = [(seq - 1, dump(sim.world)), (seq, b"")]
    found = recovered(journal)
    assert (found.snapshot, found.folded, len(found.notes)) == (0, seq, 2)
    assert found.world.full_digest() == sim.world.full_digest()


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_rows_that_a_crash_kept_from_being_written_are_found_again(seed: int):
    sim = simulated(seed, play.restart, play.keep_snapshot)
    sim.drain()
    whole = sim.journal
    for recorded in range(0, whole.seq, 7):
        cut = MemoryJournal(history=True)
        cut.events, cut.kept, cut.recorded = whole.events, whole.kept, recorded
        found = recovered(cut)
        assert found.snapshot <= recorded
        assert (cut.recorded, found.notes) == (whole.seq, [])
        assert cut.endings == whole.endings[len(whole.endings) - len(cut.endings) :]
        assert len([row for row in whole.endings if row.end_ms > whole.events[recorded].at]) <= len(cut.endings)
