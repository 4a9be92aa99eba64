"""One random step of a simulation. The state machine and the seeds choose among the same ones."""

from msgspec.structs import replace

from tests.kit.choose import Chooser, one_in
from tests.kit.faulty_engine import CALM, STORM
from tests.kit.scenario import QUEUES, conditions_of, policy_of, shape_of, spec_of
from tests.kit.sim import Sim
from tidegate.core.blame import TRIED_AFTER_MS
from tidegate.model.commands import (
    ApproveExcess,
    AskCheckpoint,
    Cancel,
    Change,
    ChangePolicy,
    Command,
    EndReservation,
    Hold,
    Release,
    Requeue,
    Reserve,
    Resume,
    RevokeExcess,
    SetNode,
    SetNodeState,
    Submit,
    Suspend,
)
from tidegate.model.jobs import Shape
from tidegate.model.nodes import NodeState
from tidegate.model.reservations import ReservationSpec


def submit(sim: Sim, chooser: Chooser, *, even: bool = False) -> None:
    pools = sorted({node.pool for node in sim.nodes.values()})
    jobs = sorted(sim.world.jobs)[-6:]
    commands = []
    for _ in range(chooser.integer(1, 3)):
        spec = spec_of(chooser, pools, even=even)
        if sim.world.reservations and one_in(chooser, 2):
            spec = replace(spec, reservation=chooser.pick(sorted(sim.world.reservations)), pool="")
        if one_in(chooser, 2):
            spec = replace(spec, **conditions_of(chooser, jobs, sim.now))
        key = chooser.pick(("", "", "", "k1", "k2"))
        env = (("A", "1"),) if spec.work is not None and spec.work.env and not one_in(chooser, 3) else ()
        commands.append(Submit(spec, key=key, env=env))
    sim.send(*commands)


def command_a_job(sim: Sim, chooser: Chooser, *, even: bool = False) -> None:
    jobs = sorted(sim.world.jobs)
    job = chooser.pick(jobs) if jobs else 99
    index = chooser.integer(0, 3) if one_in(chooser, 3) else -1
    commands: tuple[Command, ...] = (
        Cancel(job, index), Cancel(job), Hold(job), changed(sim, job), Release(job), Requeue(job), Requeue(job, index),
        AskCheckpoint(job, index), Suspend(job, index), Suspend(job), Resume(job, index), Resume(job),
    )  # fmt: skip
    sim.send(chooser.pick(commands))


def changed(sim: Sim, job: int) -> Command:
    """It asks for half as much, or for more time."""
    known = sim.world.jobs.get(job)
    if known is None:
        return Hold(job)
    spec = known.spec
    if job % 2:
        return Change(job, replace(spec, limit_ms=spec.limit_ms + 5))
    chunk = tuple((name, max(1, amount // 2)) for name, amount in spec.shape.chunk)
    return Change(job, replace(spec, shape=replace(spec.shape, chunk=chunk)))


def command_a_node(sim: Sim, chooser: Chooser, *, even: bool = False) -> None:
    name = chooser.pick(sorted(sim.nodes))
    states = (NodeState.UP, NodeState.UP, NodeState.DRAINING, NodeState.DRAINED, NodeState.DOWN)
    sim.send(SetNodeState(name, chooser.pick(states), "drawn"))


def change_a_node(sim: Sim, chooser: Chooser, *, even: bool = False) -> None:
    node = sim.nodes[chooser.pick(sorted(sim.nodes))]
    if one_in(chooser, 2):
        capacity = tuple((name, max(1, amount // 2)) for name, amount in node.capacity)
        node = replace(node, capacity=capacity)
        sim.overfull = True
    sim.send(SetNode(node))


def change_policy(sim: Sim, chooser: Chooser, *, even: bool = False) -> None:
    sim.send(ChangePolicy(policy_of(chooser)))


def exceed(sim: Sim, chooser: Chooser, *, even: bool = False) -> None:
    queue = chooser.pick(QUEUES)
    more = (("cpus", chooser.integer(0, 2) * 1000),)
    approve = ApproveExcess(queue, more, sim.now + chooser.integer(0, 40), "drawn")
    sim.send(RevokeExcess(queue, "drawn") if one_in(chooser, 4) else approve)


def reserve(sim: Sim, chooser: Chooser, *, even: bool = False) -> None:
    """Named nodes, whole nodes or chunks; soon or at once; for somebody, or for nobody."""
    name = chooser.pick(("r1", "r2", "r3"))
    if one_in(chooser, 4):
        sim.send(EndReservation(name, "drawn"))
        return
    pools = sorted({node.pool for node in sim.nodes.values()})
    pool, start = chooser.pick(pools), chooser.pick((0, sim.now + chooser.integer(1, 60)))
    nodes: tuple[str, ...] = ()
    shape: Shape | None = replace(shape_of(chooser, even=even), count=chooser.integer(1, 3))
    if one_in(chooser, 3):
        nodes, shape = (chooser.pick(sorted(node.name for node in sim.nodes.values() if node.pool == pool)),), None
    elif one_in(chooser, 3):
        shape = Shape((), chooser.integer(1, 2))
    spec = ReservationSpec(
        name, max(start, sim.now) + chooser.integer(1, 80), start, pool, nodes, shape,
        chooser.pick(((), ("u",), ("u", "v"))), chooser.pick(((), ("default", "a"))), chooser.pick("uvw"),
    )  # fmt: skip
    force = one_in(chooser, 5)
    sim.forced |= force
    sim.send(Reserve(spec, operator=force or not one_in(chooser, 3), force=force))


def break_a_node(sim: Sim, chooser: Chooser, *, even: bool = False) -> None:
    node = sim.nodes[chooser.pick(sorted(sim.nodes))]
    sim.engine.lose_node(node, sim.now, truly=not one_in(chooser, 3))
    sim.advance(0)


def spoil_a_node(sim: Sim, chooser: Chooser, *, even: bool = False) -> None:
    """Jobs fail there, or no more."""
    sim.engine.spoiled ^= {chooser.pick(sorted(sim.nodes))}


def mend_the_nodes(sim: Sim, chooser: Chooser, *, even: bool = False) -> None:
    sim.engine.return_nodes(sim.now)
    sim.advance(0)


def weather(sim: Sim, chooser: Chooser, *, even: bool = False) -> None:
    sim.engine.faults = chooser.pick((CALM, STORM))


def wait(sim: Sim, chooser: Chooser, *, even: bool = False) -> None:
    sim.advance(chooser.pick((1, 5, 10, 25, 60)))


def wait_long(sim: Sim, chooser: Chooser, *, even: bool = False) -> None:
    """Until suspected nodes are tried. With a node down or a run stopped the engine would look all the while."""
    if not sim.engine.down and not any(pause.stopped for pause in sim.world.pauses.values()):
        sim.advance(TRIED_AFTER_MS)


def restart(sim: Sim, chooser: Chooser, *, even: bool = False) -> None:
    sim.restart()


def keep_snapshot(sim: Sim, chooser: Chooser, *, even: bool = False) -> None:
    sim.keep_snapshot()


def restart_from_snapshot(sim: Sim, chooser: Chooser, *, even: bool = False) -> None:
    sim.restart_from_snapshot()


STEPS = (submit, submit, submit, wait, wait, wait, command_a_job, command_a_job, command_a_node, change_a_node,
         change_policy, exceed, reserve, reserve, break_a_node, mend_the_nodes, weather, restart, wait_long,
         spoil_a_node)  # fmt: skip
STEPS_OF_BLAME = (submit, submit, submit, submit, wait, wait, wait, wait, command_a_job, spoil_a_node, spoil_a_node,
                  wait_long, wait_long, restart, weather, mend_the_nodes)  # fmt: skip
"""Where nobody but the kernel itself touches the nodes."""
