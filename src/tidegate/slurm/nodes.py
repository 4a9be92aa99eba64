"""Nodes as Slurm's commands see them."""

import os
from collections.abc import Iterator

from tidegate.api.rows import natural, node_rows
from tidegate.model.jobs import CPUS, GPU_LABEL, GPUS, MEMORY
from tidegate.wire.api import NodeRow
from tidegate.world.world import World

MILLI = 1000
COMPACT = {"idle": "idle", "mixed": "mix", "allocated": "alloc", "drained": "drain", "draining": "drng", "down": "down"}
ORDER = {name: place for place, name in enumerate(("drained", "draining", "mixed", "allocated", "idle", "down"))}


class NodeView:
    """One node, with what is taken of it."""

    __slots__ = ("cpus", "cpus_used", "gpus", "gpus_used", "memory", "memory_used", "name", "pool", "row", "state")

    def __init__(self, row: NodeRow) -> None:
        self.row = row
        self.name = row.name
        self.pool = row.pool
        have, free = row.capacity, row.free
        self.cpus = have.get(CPUS, 0) // MILLI
        self.memory = have.get(MEMORY, 0)
        self.gpus = have.get(GPUS, 0) // MILLI
        self.cpus_used = -(-(have.get(CPUS, 0) - free.get(CPUS, 0)) // MILLI)
        self.memory_used = have.get(MEMORY, 0) - free.get(MEMORY, 0)
        self.gpus_used = -(-(have.get(GPUS, 0) - free.get(GPUS, 0)) // MILLI)
        self.state = self._state()

    def _state(self) -> str:
        if self.row.state == "up":
            if not self.row.jobs:
                return "idle"
            return "allocated" if self.cpus_used >= self.cpus else "mixed"
        if self.row.state in {"draining", "drained"}:
            return "draining" if self.row.jobs else "drained"
        return "down"

    @property
    def compact(self) -> str:
        return COMPACT[self.state]

    @property
    def cpus_other(self) -> int:
        """Neither taken nor to be had."""
        return 0 if self.state in {"idle", "mixed", "allocated"} else self.cpus - self.cpus_used

    @property
    def gres(self) -> str:
        model = self.row.labels.get(GPU_LABEL, "").replace(" ", "_").lower()
        return (f"gpu:{model}:{self.gpus}" if model else f"gpu:{self.gpus}") if self.gpus else "(null)"

    @property
    def gres_used(self) -> str:
        return f"gpu:{self.gpus_used}" if self.gpus else "gpu:0"

    @property
    def features(self) -> str:
        return ",".join(value for _, value in sorted(self.row.labels.items())) or "(null)"

    @property
    def tres(self) -> str:
        return tres_text(self.cpus, self.memory, 0, self.gpus)

    @property
    def why(self) -> str:
        return self.row.why.replace(" ", "_") if self.row.state != "up" and self.row.why else "none"


def node_views(world: World) -> list[NodeView]:
    return [NodeView(row) for row in node_rows(world)]


def tres_text(cpus: int, memory: int, nodes: int, gpus: int) -> str:
    parts = [f"cpu={cpus}"]
    if memory:
        parts.append(f"mem={memory}M")
    if nodes:
        parts.append(f"node={nodes}")
    parts.append(f"billing={cpus}")
    if gpus:
        parts.append(f"gres/gpu={gpus}")
    return ",".join(parts)


class Partition:
    """A pool, with its nodes."""

    def __init__(self, name: str, nodes: list[NodeView], *, is_default: bool) -> None:
        self.name = name
        self.nodes = nodes
        self.is_default = is_default

    @property
    def starred(self) -> str:
        return self.name + "*" * self.is_default

    @property
    def cpus(self) -> int:
        return sum(node.cpus for node in self.nodes)

    @property
    def tres(self) -> str:
        memory, gpus = sum(node.memory for node in self.nodes), sum(node.gpus for node in self.nodes)
        return tres_text(self.cpus, memory, len(self.nodes), gpus)


def partitions(world: World) -> Iterator[Partition]:
    """The default one first."""
    nodes = node_views(world)
    for place, name in enumerate(sorted(world.pools)):
        yield Partition(name, [node for node in nodes if node.pool == name], is_default=not place)


def load() -> float:
    return os.getloadavg()[0]


def by_name(nodes: list[NodeView]) -> list[NodeView]:
    return sorted(nodes, key=lambda node: natural(node.name))
