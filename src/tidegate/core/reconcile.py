"""`reconcile`: what an engine saw, against what the world believes. A report is a hint, an inventory the truth.

A report may come twice, late, or for an attempt that is over: then it is no news. What an engine runs that the
world does not want is a stray: it is halted until it is gone.
"""

from typing import assert_never

from msgspec.structs import replace

from tidegate.core.accept import lose, lost_with
from tidegate.model import engine as en
from tidegate.model import events as ev
from tidegate.model.nodes import Node, NodeState
from tidegate.world.world import World


def reconcile(world: World, report: en.Report, now: int) -> tuple[ev.Event, ...]:
    match report:
        case en.Ended():
            return _ended(world, report, now)
        case en.Launched():
            return _launched(world, report, now)
        case en.NodeSeen():
            return _node_seen(world, report.node, now)
        case en.NodeLost():
            return _node_lost(world, report, now)
        case en.Inventory():
            return _inventory(world, report, now)
        case _:
            assert_never(report)


def _ended(world: World, report: en.Ended, now: int) -> tuple[ev.Event, ...]:
    run = world.runs.get(report.task)
    if run is None or run.attempt != report.attempt:
        if (report.task, report.attempt) in world.strays:
            return (ev.StrayGone(now, report.task, report.attempt),)
        return ()
    halt = world.halting.get(report.task)
    outcome = report.outcome if halt is None else halt.outcome
    return (ev.JobEnded(now, report.task, report.attempt, outcome, report.code),)


def _launched(world: World, report: en.Launched, now: int) -> tuple[ev.Event, ...]:
    run = world.runs.get(report.task)
    if run is None or run.attempt != report.attempt:
        return _stray(world, report.task, report.attempt, now)
    return (ev.JobLaunched(now, report.task, report.attempt),) if report.task in world.launching else ()


def _stray(world: World, task: int, attempt: int, now: int) -> tuple[ev.Event, ...]:
    return () if (task, attempt) in world.strays else (ev.StraySeen(now, task, attempt),)


def _node_seen(world: World, node: Node, now: int) -> tuple[ev.Event, ...]:
    """An engine may bring a node back from down; it moves none to another pool and undoes no drain."""
    known = world.nodes.get(node.name)
    if known is not None:
        drained = known.state in {NodeState.DRAINING, NodeState.DRAINED} and node.state is not NodeState.DOWN
        node = replace(
            node,
            pool=known.pool,
            state=known.state if drained else node.state,
            why=known.why if drained else node.why,
        )
    if node == known:
        return ()
    return (ev.NodeChanged(now, node), *lost_with(world, node.name, node.state, node.why, now))


def _node_lost(world: World, report: en.NodeLost, now: int) -> tuple[ev.Event, ...]:
    node = world.nodes.get(report.name)
    if node is None or node.state is NodeState.DOWN:
        return ()
    down = replace(node, state=NodeState.DOWN, why=report.why)
    return (ev.NodeChanged(now, down), *lost_with(world, node.name, NodeState.DOWN, report.why, now))


def _inventory(world: World, report: en.Inventory, now: int) -> tuple[ev.Event, ...]:
    """Launched attempts that are missing are lost; strays come and go; unconfirmed starts are confirmed."""
    seen = set(report.running)
    events: list[ev.Event] = []
    for task, run in world.runs.items():
        there = (task, run.attempt) in seen
        if there and task in world.launching:
            events.append(ev.JobLaunched(now, task, run.attempt))
        elif not there and task not in world.launching and run.start_ms < report.asked_ms:
            events.extend(lose(world, task, run.attempt, "the engine no longer has it", now))
    for task, attempt in sorted(seen):
        known = world.runs.get(task)
        if known is None or known.attempt != attempt:
            events.extend(_stray(world, task, attempt, now))
    events.extend(ev.StrayGone(now, *stray) for stray in sorted(world.strays) if stray not in seen)
    return tuple(events)
