"""Blame: a node on which jobs fail one after the other is drained, tried again later, and cleared by a success.

See docs/decisions/0010. `world.nodes` keeps the marks; what follows from them is said here.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS
from tidegate.model.nodes import Node, NodeState
from tidegate.world.nodes import MARKS_MAX
from tidegate.world.records import Run
from tidegate.world.world import World

TRIED_AFTER_MS = 600_000
"""Doubled with every strike."""
TRIED_AFTER_MAX_MS = 24 * 3_600_000
DOUBLINGS_MAX = 40


def failed(world: World, run: Run, now: int) -> tuple[ev.Event, ...]:
    """What follows for nodes from a failure that is held against the one node of this run."""
    job, name = run.task >> ARRAY_BITS, run.nodes[0][0]
    known = world.failed_on.get(job)
    if known is not None and known != name:  # the job fails anywhere: what it was a reason for is looked at again
        suspect = world.suspects.get(known)
        return () if suspect is None or suspect.tried else (tried(world, known, now),)
    node = world.nodes[name]
    if node.state is not NodeState.UP or not _has_peer(world, node):
        return ()
    suspect = world.suspects.get(name)
    if suspect is not None:
        return (_suspected(world, run, suspect.strikes + 1, f"job {job} failed when the node was tried again", now),)
    row = world.marks.get(name, ())
    if job not in row:
        row = (*row, job)[-MARKS_MAX:]
    if len(row) < MARKS_MAX:
        return ()
    *others, last = map(str, row)
    return (_suspected(world, run, 1, f"jobs {', '.join(others)} and {last} failed here one after the other", now),)


def _suspected(world: World, run: Run, strikes: int, why: str, now: int) -> ev.NodeSuspected:
    name = run.nodes[0][0]
    others = any(other.task != run.task for other in world.runs_on(name))
    state = NodeState.DRAINING if others else NodeState.DRAINED
    wait = min(TRIED_AFTER_MS << min(strikes - 1, DOUBLINGS_MAX), TRIED_AFTER_MAX_MS)
    return ev.NodeSuspected(now, replace(world.nodes[name], state=state, why=why), now + wait, strikes)


def _has_peer(world: World, node: Node) -> bool:
    """Is there another node to compare it with?"""
    return any(
        other.state is NodeState.UP and other.name != node.name and other.name not in world.suspects
        for other in world.pools[node.pool].nodes
    )


def tried(world: World, name: str, now: int) -> ev.NodeTried:
    """From now on. A node that is down is tried when it is back."""
    node = world.nodes[name]
    if node.state is not NodeState.DOWN:
        node = replace(node, state=NodeState.UP, why=world.suspects[name].why)
    return ev.NodeTried(now, node)


def succeeded(world: World, run: Run, now: int) -> tuple[ev.Event, ...]:
    """Nodes that are tried and did well."""
    names = [name for name, _ in run.nodes if name in world.suspects and world.suspects[name].tried]
    return tuple([ev.NodeCleared(now, name) for name in names])


def one_run_where_tried(world: World, starts: Sequence[ev.JobStarted]) -> list[ev.JobStarted]:
    """A node that is tried takes one run: of several starts there the first counts, and the next cycle goes on."""
    on_trial = {pool.names[row] for pool in world.stirred.values() for row in pool.tried}
    taken: set[str] = set()
    put_off: set[int] = set()  # jobs: tasks of an array start in order
    kept = []
    for start in starts:
        job, here = start.task >> ARRAY_BITS, [name for name, _ in start.nodes if name in on_trial]
        if job in put_off or not taken.isdisjoint(here):
            put_off.add(job)
        else:
            taken.update(here)
            kept.append(start)
    return kept
