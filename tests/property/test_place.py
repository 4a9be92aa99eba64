"""Placing on columns equals placing in plain Python, for every fit and shape."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.kit.choose import Chooser, Drawn, one_in
from tests.kit.scenario import nodes_of, shape_of
from tests.kit.slow_placer import Amounts, place
from tidegate.core.accept import accept
from tidegate.core.decide import decide
from tidegate.core.memo import Memo
from tidegate.core.place import ColumnPlacer, choose, placer_for
from tidegate.model.commands import ChangePolicy, Refused, SetNode, SetNodeState, Submit
from tidegate.model.jobs import JobSpec, Shape
from tidegate.model.nodes import Node, NodeState
from tidegate.model.policy import Backfill, Fit, FitBy, PolicySpec
from tidegate.world.apply import apply
from tidegate.world.lanes import Lane
from tidegate.world.world import World

FITS = st.sampled_from(FitBy)


def do(world: World, command: object, now: int = 0) -> bool:
    answer = accept(world, command, now)  # type: ignore[arg-type]  # whichever
    if isinstance(answer, Refused):
        return False
    for event in answer:
        apply(world, event)
    return True


def world_with(chooser: Chooser, *, even: bool) -> World:
    """Some nodes, some of them closed, and some jobs running on them."""
    world = World()
    for node in nodes_of(chooser, even=even) + nodes_of(chooser, even=even):
        do(world, SetNode(replace(node, name=f"n{len(world.nodes)}")))
    do(world, ChangePolicy(PolicySpec("first", backfill=Backfill(0), fit=Fit(chooser.pick(tuple(FitBy))))))
    for _ in range(chooser.integer(0, 5)):
        do(world, Submit(JobSpec("u", shape_of(chooser, even=even), 10)))
        plan = decide(world, Memo(), 0)
        apply(world, plan.cycle)
        for start in plan.starts:
            apply(world, start)
    for name in world.nodes:
        if one_in(chooser, 4):
            do(world, SetNodeState(name, chooser.pick((NodeState.DRAINING, NodeState.DRAINED))))
    return world


def room_of(world: World) -> tuple[list[Node], list[Amounts]]:
    """From the records: capacity less what runs."""
    pool = world.pools["p"]
    room = [dict(node.capacity) for node in pool.nodes]
    for run in world.runs.values():
        chunk = world.jobs[run.task >> 20].spec.shape.chunk
        for row, count in zip(run.rows, run.counts, strict=True):
            for name, amount in chunk:
                room[row][name] -= amount * count
    return pool.nodes, room


def lane_of(world: World, shape: Shape) -> Lane | None:
    """The lane of one more job of this shape, if it is accepted."""
    if not do(world, Submit(JobSpec("u", shape, 99, queue="other"))):
        return None
    return next(lane for lane in world.pools["p"].lanes.values() if lane.key[0] == "other")


@given(st.data(), FITS, st.booleans())
def test_a_start_takes_the_rows_that_plain_python_takes(data: st.DataObject, by: FitBy, even: bool):
    chooser = Drawn(data)
    world = world_with(chooser, even=even)
    shape = shape_of(chooser, even=even)
    lane = lane_of(world, shape)
    if lane is None:
        return
    pool = world.pools["p"]
    nodes, room = room_of(world)
    expected = place(nodes, room, shape, by)
    assert choose(pool, lane, pool.free, by) == expected
    assert ColumnPlacer(pool, by, 0).start(lane, 99) == expected
    assert placer_for(pool, by, 0).start(lane, 99) == expected


@given(st.data(), FITS, st.booleans())
def test_one_start_after_the_other_as_well(data: st.DataObject, by: FitBy, even: bool):
    chooser = Drawn(data)
    world = world_with(chooser, even=even)
    lanes = [lane for lane in (lane_of(world, shape_of(chooser, even=even)) for _ in range(3)) if lane]
    pool = world.pools["p"]
    nodes, room = room_of(world)
    placers = [ColumnPlacer(pool, by, 0), placer_for(pool, by, 0)]
    for _ in range(6 if lanes else 0):
        lane = chooser.pick(lanes)
        expected = place(nodes, room, lane.shape, by)
        assert [placer.start(lane, 99) for placer in placers] == [expected, expected]
        for row, count in zip(*(expected or ((), ())), strict=True):
            for name, amount in lane.shape.chunk:
                room[row][name] -= amount * count
