"""Nodes that the policy keeps for some classes, at any time: the last ones of a pool that take work.

To jobs of other classes that is one more label they have to match: who is kept out needs no rule of its own.
"""

from msgspec.structs import replace

from tidegate.model.jobs import Shape
from tidegate.model.nodes import NodeState
from tidegate.model.policy import PolicySpec
from tidegate.world.pool import KEPT, Pool


def kept_rows(policy: PolicySpec, pool: Pool) -> dict[int, str]:
    """Row -> which entry of the policy keeps it. Entries take their nodes one after the other, by name."""
    rows = [row for row, node in enumerate(pool.nodes) if node.state is NodeState.UP]
    found: dict[int, str] = {}
    for name in sorted(policy.kept):
        entry = policy.kept[name]
        if entry.pool in {"", pool.name}:
            many = max(entry.nodes, -(-len(pool.nodes) * entry.percent // 100))
            for _ in range(min(many, len(rows))):
                found[rows.pop()] = name
    return found


def shape_within(policy: PolicySpec, pool: str, klass: str, shape: Shape) -> Shape:
    """As a job of such a class may be placed in the pool."""
    here = [name for name, entry in policy.kept.items() if entry.pool in {"", pool}]
    mine = [name for name in here if klass in policy.kept[name].classes]
    if len(mine) == len(here):
        return shape
    return replace(shape, where=tuple(sorted((*shape.where, (KEPT, ("", *sorted(mine)))))))
