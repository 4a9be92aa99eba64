"""What happens to a node, and to what runs there."""

from tests.kit.deep import deep
from tidegate.core.accept import accept
from tidegate.core.due import due
from tidegate.core.reconcile import reconcile
from tidegate.model.commands import Refused, SetNode, SetNodeState, Submit
from tidegate.model.engine import Ended, NodeSeen
from tidegate.model.events import CycleRan, JobStarted
from tidegate.model.jobs import JobSpec, Outcome, Shape, amounts
from tidegate.model.nodes import Node, NodeState
from tidegate.world.apply import apply
from tidegate.world.check import check
from tidegate.world.world import World

NODE = Node("n1", "p", amounts(cpus=4000))
TASK = 1 << 20


def running() -> World:
    """One job runs on the one node."""
    world = World()
    tell(world, SetNode(NODE))
    tell(world, Submit(JobSpec("ann", Shape(amounts(cpus=1000)), 60_000)))
    apply(world, CycleRan(0, 1, 0, 1, ""))
    apply(world, JobStarted(0, TASK, 1, 60_000, (("n1", 1),), False))
    return world


def tell(world: World, command, now: int = 0) -> None:
    answer = accept(world, command, now)
    assert not isinstance(answer, Refused), answer
    for event in answer:
        apply(world, event)


def test_a_draining_node_is_drained_when_the_last_run_has_left():
    world = running()
    tell(world, SetNodeState("n1", NodeState.DRAINING, "new disk"))
    assert world.nodes["n1"].state is NodeState.DRAINING
    for event in reconcile(world, Ended(TASK, 1, Outcome.COMPLETED), 10):
        apply(world, event)
    for event in due(world, 10):
        apply(world, event)
    assert (world.nodes["n1"].state, world.nodes["n1"].why) == (NodeState.DRAINED, "new disk")
    assert due(world, 10) == ()
    assert check(world) == []


def test_draining_an_empty_node_drains_it_at_once():
    world = World()
    tell(world, SetNode(NODE))
    tell(world, SetNodeState("n1", NodeState.DRAINING))
    assert world.nodes["n1"].state is NodeState.DRAINED


def test_a_node_with_runs_cannot_be_drained_yet():
    world = running()
    tell(world, SetNodeState("n1", NodeState.DRAINED))
    assert world.nodes["n1"].state is NodeState.DRAINING


def test_an_engine_that_sees_the_node_up_does_not_undo_a_drain():
    world = running()
    tell(world, SetNodeState("n1", NodeState.DRAINING, "new disk"))
    before = deep(world)
    assert reconcile(world, NodeSeen(NODE), 5) == ()
    assert deep(world) == before
