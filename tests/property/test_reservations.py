"""Reservations: nobody else is on what is reserved, promises stay kept, and who is entitled gets what is kept."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.kit.choose import Chooser, Drawn, one_in
from tests.kit.faulty_engine import FaultyEngine
from tests.kit.scenario import nodes_of, policy_of, shape_of, spec_of
from tests.kit.sim import Sim
from tidegate.model.base import ARRAY_BITS
from tidegate.model.commands import EndReservation, Reserve, SetNodeState, Submit
from tidegate.model.events import JobStarted
from tidegate.model.jobs import Shape
from tidegate.model.nodes import NodeState
from tidegate.model.policy import DEPTH_ALL, Estimate, Preempt
from tidegate.model.reservations import ReservationSpec
from tidegate.world.world import World


def run_time(task: int, attempt: int) -> int:
    """Never longer than the shortest limit, and often shorter."""
    return (1, 3, 5, 10, 10, 10)[(task // 7 + task + attempt) % 6]


def reservation_of(sim: Sim, chooser: Chooser, *, even: bool) -> Reserve:
    nodes: tuple[str, ...] = ()
    shape: Shape | None = replace(shape_of(chooser, even=even), count=chooser.integer(1, 3))
    if one_in(chooser, 3):
        nodes, shape = (chooser.pick(sorted(sim.nodes)),), None
    elif one_in(chooser, 3):
        shape = Shape((), chooser.integer(1, 2))
    start = sim.now + chooser.integer(1, 50) if one_in(chooser, 2) else 0
    spec = ReservationSpec(
        chooser.pick(("r1", "r2", "r3")), max(start, sim.now) + chooser.integer(10, 150), start, "p", nodes, shape,
        chooser.pick(((), ("u", "v", "w"), ("u", "v"))),
    )  # fmt: skip
    return Reserve(spec, operator=True)


def step(sim: Sim, chooser: Chooser, *, even: bool, certain: bool = False) -> None:
    """`certain`: no run outlives what was planned."""
    for _ in range(chooser.integer(0, 2)):
        spec = replace(spec_of(chooser, ["p"], even=even), user=chooser.pick("uvw"))
        if certain:
            spec = replace(spec, expected_ms=0)
        if sim.world.reservations and one_in(chooser, 2):
            name = chooser.pick(sorted(sim.world.reservations))
            shape = replace(spec.shape, count=1, where=())
            spec = replace(spec, reservation=name, pool="", limit_ms=chooser.pick((10, 20)), shape=shape)
        sim.send(Submit(spec))
    if one_in(chooser, 3):
        sim.send(reservation_of(sim, chooser, even=even))
    sim.advance(chooser.pick((1, 4, 9, 25)))


class WatchedSim(Sim):
    def inspect(self) -> None:
        super().inspect()
        found = list(intruders(self.world, self.now))
        assert not found, found


def intruders(world: World, now: int) -> Iterator[str]:
    """On every node there is room for all that is reserved there now beside whoever is in none of the reservations."""
    left = {name: dict(node.capacity) for name, node in world.nodes.items()}
    for run in world.runs.values():
        job = world.jobs[run.task >> ARRAY_BITS]
        if job.spec.reservation not in world.reservations:
            for name, count in run.nodes:
                for resource, amount in job.spec.shape.chunk:
                    left[name][resource] -= amount * count
        else:
            kept = world.reservations[job.spec.reservation].spec
            if not kept.entitles(job.spec.user, job.spec.queue) or not kept.start_ms <= run.start_ms < kept.end_ms:
                yield f"job {job.id} is in reservation {kept.name}"
    for known in world.reservations.values():
        if known.spec.start_ms <= now < known.spec.end_ms:
            shape = known.spec.shape
            for name, count in known.nodes:
                chunk = shape.chunk if shape is not None and shape.chunk else world.nodes[name].capacity
                for resource, amount in chunk:
                    left[name][resource] -= amount * count
    yield from (f"{name} lacks {has}" for name, has in left.items() if any(amount < 0 for amount in has.values()))


@given(st.data(), st.booleans())
def test_nobody_else_is_on_what_is_reserved(data: st.DataObject, even: bool):
    """Whatever the policy predicts, with nodes that go and come back, and reservations that are given back."""
    chooser = Drawn(data)
    sim = WatchedSim(FaultyEngine(run_time, 0), nodes_of(chooser, even=even), policy_of(chooser, cut=False))
    for _ in range(chooser.integer(1, 12)):
        if one_in(chooser, 6):
            state = chooser.pick((NodeState.UP, NodeState.DRAINING, NodeState.DOWN))
            sim.send(SetNodeState(chooser.pick(sorted(sim.nodes)), state))
        if sim.world.reservations and one_in(chooser, 8):
            sim.send(EndReservation(chooser.pick(sorted(sim.world.reservations))))
        step(sim, chooser, even=even)
    sim.drain()


@given(st.data(), st.booleans())
def test_promises_stay_kept(data: st.DataObject, even: bool):
    """What is reserved later delays no start that was promised, and none that is promised from then on."""
    chooser = Drawn(data)
    drawn = policy_of(chooser, cut=False)
    policy = replace(
        drawn, backfill=replace(drawn.backfill, depth=DEPTH_ALL), estimate=Estimate(),
        classes={name: replace(known, preempt=Preempt.NEVER) for name, known in drawn.classes.items()},
    )  # fmt: skip
    sim = WatchedSim(FaultyEngine(run_time, 0), nodes_of(chooser, even=even), policy)
    for _ in range(chooser.integer(1, 12)):
        step(sim, chooser, even=even, certain=True)
    sim.advance(400)  # none is released before its time
    sim.drain()
    told = sim.ledger.first_promise
    late = {task: (at, told[task]) for task, at in sim.ledger.first_start.items() if at > told.get(task, at)}
    assert not late, f"task: (start, first promise) {late}"


@given(st.data(), st.booleans())
def test_what_is_kept_is_there(data: st.DataObject, even: bool):
    """However full the pool is: a job that takes all of a reservation starts when that begins."""
    chooser = Drawn(data)
    sim = WatchedSim(FaultyEngine(run_time, 0), nodes_of(chooser, even=even), policy_of(chooser, cut=False))
    for _ in range(chooser.integer(1, 5)):
        sim.send(*(Submit(spec_of(chooser, ["p"], even=even)) for _ in range(3)))
        sim.advance(chooser.pick((1, 4, 9)))
    shape = Shape((("cpus", 1000),), chooser.integer(1, 4), stack=True)
    start = sim.now + chooser.integer(1, 120)
    sim.send(Reserve(ReservationSpec("mine", start + 10, start, "p", (), shape, ("zed",)), operator=True))
    job = sim.world.next_job
    sim.send(Submit(replace(spec_of(chooser, ["p"], plain=True), user="zed", queue="z", shape=shape, limit_ms=10,
                            reservation="mine", pool="")))  # fmt: skip
    if "mine" not in sim.world.reservations or job not in sim.world.jobs:
        return  # there was no room that is certain, or the policy has no such queue
    sim.send(*(Submit(spec_of(chooser, ["p"], even=even)) for _ in range(3)))
    sim.advance(start - sim.now)
    sim.drain()
    starts = [event.at for event in sim.journal.events if isinstance(event, JobStarted) and event.task >> 20 == job]
    assert starts == [start]
