"""Placing, once more, in plain Python: which rows and how many chunks on each. No numpy, no cursor, no draft.

`core.place.choose` and both placers must give the same. Room is amounts by row and resource; a row that takes
no work has no room.
"""

from collections.abc import Sequence

from tidegate.model.jobs import NODE_LABEL, Shape
from tidegate.model.nodes import Node, NodeState
from tidegate.model.policy import FitBy
from tidegate.policy import SHARE_BITS

Amounts = dict[str, int]
Chosen = tuple[tuple[int, ...], tuple[int, ...]]


def place(nodes: Sequence[Node], room: Sequence[Amounts], shape: Shape, by: FitBy) -> Chosen | None:
    """Rows by score, then by number; each gives all it can until the shape is whole."""
    resources = sorted({name for node in nodes for name, _ in node.capacity})
    able = []
    for row, node in enumerate(nodes):
        chunks = chunks_on(node, room[row], shape)
        if chunks:
            able.append((score(by, node, room[row], chunks, resources), row, chunks if shape.stack else 1))
    wanted, taken = shape.count, {}
    for _, row, chunks in sorted(able):
        if wanted:
            taken[row] = min(chunks, wanted)
            wanted -= taken[row]
    if wanted:
        return None
    return tuple(sorted(taken)), tuple(taken[row] for row in sorted(taken))


def chunks_on(node: Node, room: Amounts, shape: Shape) -> int:
    """How many chunks the node could hold, were there no bound on their number."""
    labels = {NODE_LABEL: node.name, **dict(node.labels)}
    if node.state is not NodeState.UP or any(labels.get(label) not in values for label, values in shape.where):
        return 0
    return max(0, min(room.get(name, 0) // amount for name, amount in shape.chunk))


def score(by: FitBy, node: Node, room: Amounts, chunks: int, resources: Sequence[str]) -> int:
    """Smaller goes first."""
    capacity = dict(node.capacity)
    free = sum((room.get(name, 0) << SHARE_BITS) // max(1, capacity.get(name, 0)) for name in resources)
    return {FitBy.FIRST: 0, FitBy.BEST: chunks, FitBy.PACK: free, FitBy.SPREAD: -free}[by]
