"""Nodes: what they have, whether they take work, and what is held against them (docs/decisions/0010)."""

from typing import assert_never

from msgspec.structs import replace

from tidegate.model import events as ev
from tidegate.model.nodes import Node, NodeState
from tidegate.world.kept import kept_rows
from tidegate.world.pool import Pool
from tidegate.world.records import Run, Suspect
from tidegate.world.world import World

MARKS_MAX = 3
"""So many different jobs that failed on a node in a row, the latest, are held against it."""


def change_node(world: World, event: ev.NodeChanged | ev.NodeSuspected | ev.NodeTried | ev.NodeCleared) -> None:
    match event:
        case ev.NodeChanged():
            _set_node(world, event.node)
        case ev.NodeSuspected():
            node = event.node
            _suspect(world, node, Suspect(event.until, event.strikes, False, node.why))
        case ev.NodeTried():
            node = event.node
            _suspect(world, node, replace(world.suspects[node.name], tried=True))
        case ev.NodeCleared():
            _clear(world, event.name)
        case _:
            assert_never(event)


def _set_node(world: World, node: Node) -> None:
    for name, _ in node.capacity:
        world.columns.setdefault(name, len(world.columns))
    world.nodes[node.name] = node
    world.digest.nodes.touched.add(node.name)
    pool = world.pools.get(node.pool)
    if pool is None:
        pool = world.pools[node.pool] = Pool(node.pool)
    capacity = [0] * len(world.columns)
    for name, amount in node.capacity:
        capacity[world.columns[name]] = amount
    pool.set_node(node, capacity)
    if world.has_kept:
        pool.keep(kept_rows(world.policy, pool))
    if pool.reserved:
        world.emptying[node.name] = None
    world.stirred[pool.name] = pool


def _suspect(world: World, node: Node, suspect: Suspect) -> None:
    world.suspects[node.name] = suspect
    world.digest.suspects.touched.add(node.name)
    pool = world.pools[node.pool]
    pool.set_tried(node.name, len(world.runs_on(node.name)) if suspect.tried else None)
    _set_node(world, node)


def _clear(world: World, name: str) -> None:
    if world.marks.pop(name, None) is not None:
        world.digest.marks.gone(name)
    suspect = world.suspects.pop(name, None)
    if suspect is None:
        return
    world.digest.suspects.gone(name)
    node = world.nodes[name]
    world.pools[node.pool].set_tried(name, None)
    if node.state is NodeState.UP or (not suspect.tried and node.state is not NodeState.DOWN):
        node = replace(node, state=NodeState.UP, why="")
    _set_node(world, node)


# -- marks -------------------------------------------------------------------------------------------------


def blame(world: World, job: int, run: Run) -> None:
    """The job failed there. One that fails on a second node is at fault itself, and its mark is taken off."""
    name = run.nodes[0][0]
    known = world.failed_on.get(job)
    if known is None or known == name:
        world.failed_on[job] = name
        row = world.marks.get(name, ())
        if job not in row:
            world.marks[name] = (*row, job)[-MARKS_MAX:]
            world.digest.marks.touched.add(name)
    else:
        world.failed_on[job] = ""
        _take_off(world, known, job)
    world.digest.failed_on.touched.add(job)


def _take_off(world: World, name: str, job: int) -> None:
    row = tuple([other for other in world.marks.get(name, ()) if other != job])
    if row:
        world.marks[name] = row
        world.digest.marks.touched.add(name)
    elif world.marks.pop(name, None) is not None:
        world.digest.marks.gone(name)


def forgive(world: World, run: Run) -> None:
    """A job succeeded there."""
    for name, _ in run.nodes:
        if world.marks.pop(name, None) is not None:
            world.digest.marks.gone(name)
