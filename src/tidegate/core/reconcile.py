"""`reconcile`: what an engine saw, against what the world believes. A report is a hint, an inventory the truth.

A report may come twice, late, or for an attempt that is over: then it is no news. What an engine runs that the
world does not want is a stray: it is halted until it is gone.
"""

from typing import assert_never

from msgspec.structs import replace

from tidegate.core import blame
from tidegate.core.accept import lost_with
from tidegate.core.again import ended, ended_badly, lose
from tidegate.model import engine as en
from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS
from tidegate.model.jobs import Outcome
from tidegate.model.nodes import Node, NodeState
from tidegate.world.world import World


def reconcile(world: World, report: en.Report, now: int) -> tuple[ev.Event, ...]:
    match report:
        case en.Ended():
            return _ended(world, report, now)
        case en.Launched():
            return _launched(world, report, now)
        case en.Saved():
            return _saved(world, report, now)
        case en.LaunchRefused():
            return _launch_refused(world, report, now)
        case en.Notified():
            return (ev.NoticeSent(now, report.job),) if report.job in world.notices else ()
        case en.NodeSeen():
            return _node_seen(world, report.node, now)
        case en.NodeLost():
            return _node_lost(world, report, now)
        case en.Inventory():
            return _inventory(world, report, now)
        case _:
            assert_never(report)


def _ended(world: World, report: en.Ended, now: int) -> tuple[ev.Event, ...]:
    """What completed before a halt reached it is completed; anything else ends as the halt said."""
    task, outcome = report.task, report.outcome
    run = world.runs.get(task)
    if run is None or run.attempt != report.attempt:
        return _stray_gone(world, task, report.attempt, now)
    if outcome is Outcome.COMPLETED:
        done = ended(report, outcome, now)
        return (done, *blame.succeeded(world, run, now)) if world.suspects else (done,)
    halt = world.halting.get(task)
    if halt is not None:
        if halt.again:
            asked = f"made room for job {halt.room_for >> ARRAY_BITS}" if halt.room_for else "requeued"
            return (lose(world, task, report.attempt, report.why or asked, now),)
        return (ended(report, halt.outcome, now),)
    is_unexplained = outcome is Outcome.LOST and not report.why
    if outcome is Outcome.FAILED:
        is_unexplained = not world.jobs[task >> ARRAY_BITS].spec.own_fault
    blames = is_unexplained and len(run.nodes) == 1
    over: ev.Event
    if outcome is Outcome.LOST:
        over = lose(world, task, report.attempt, report.why or "the engine lost it", now, blames=blames)
    else:
        over = ended_badly(world, report, now, blames=blames)
    return (over, *blame.failed(world, run, now)) if blames else (over,)


def _saved(world: World, report: en.Saved, now: int) -> tuple[ev.Event, ...]:
    """Never less than was kept before: what is safe stays safe. News is that more is, or that the ask is answered."""
    save = world.saves.get(report.task)
    if save is None or save.attempt != report.attempt or report.kept_ms < save.kept_ms or report.number > save.number:
        return ()
    if report.kept_ms == save.kept_ms and not (save.is_open and report.number == save.number):
        return ()
    return (ev.CheckpointKept(now, report.task, report.attempt, report.number, report.kept_ms, report.size_mib),)


def _stray_gone(world: World, task: int, attempt: int, now: int) -> tuple[ev.Event, ...]:
    return (ev.StrayGone(now, task, attempt),) if (task, attempt) in world.strays else ()


def _launch_refused(world: World, report: en.LaunchRefused, now: int) -> tuple[ev.Event, ...]:
    task = report.task
    run = world.runs.get(task)
    if run is None or run.attempt != report.attempt:
        return _stray_gone(world, task, report.attempt, now)
    blames = len(run.nodes) == 1 and task not in world.halting
    over = lose(world, task, report.attempt, f"it could not be launched: {report.why}", now, blames=blames)
    return (over, *blame.failed(world, run, now)) if blames else (over,)


def _launched(world: World, report: en.Launched, now: int) -> tuple[ev.Event, ...]:
    run = world.runs.get(report.task)
    if run is None or run.attempt != report.attempt:
        return _stray(world, report.task, report.attempt, now)
    return (ev.JobLaunched(now, report.task, report.attempt),) if report.task in world.launching else ()


def _stray(world: World, task: int, attempt: int, now: int) -> tuple[ev.Event, ...]:
    return () if (task, attempt) in world.strays else (ev.StraySeen(now, task, attempt),)


def _node_seen(world: World, node: Node, now: int) -> tuple[ev.Event, ...]:
    """An engine may bring a node back from down; it moves none to another pool and undoes no drain and no trial."""
    known = world.nodes.get(node.name)
    if known is not None:
        state, why = node.state, node.why
        suspect = world.suspects.get(node.name)
        if known.state in {NodeState.DRAINING, NodeState.DRAINED} and state is not NodeState.DOWN:
            state, why = known.state, known.why
        elif suspect is not None and state is NodeState.UP:
            state, why = (NodeState.UP if suspect.tried else NodeState.DRAINED), suspect.why
        node = replace(node, pool=known.pool, state=state, why=why)
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
            events.append(lose(world, task, run.attempt, "the engine no longer has it", now))
    for task, attempt in sorted(seen):
        known = world.runs.get(task)
        if known is None or known.attempt != attempt:
            events.extend(_stray(world, task, attempt, now))
    events.extend(ev.StrayGone(now, *stray) for stray in sorted(world.strays) if stray not in seen)
    return tuple(events)
