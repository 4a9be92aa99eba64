"""Which engine the live loop has, with its nodes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.app.home import HomeError
from tidegate.engines.virtual import VirtualEngine
from tidegate.model.base import job_of
from tidegate.model.jobs import amounts
from tidegate.model.nodes import Node
from tidegate.ports import Engine
from tidegate.world.world import World

if TYPE_CHECKING:
    from tidegate.app.serve import ServeWish

VIRTUAL_CPUS = 8
VIRTUAL_MEMORY_MIB = 16 << 10
MILLI = 1000
ENGINES = ("local", "virtual")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """An engine and what it offers."""

    name: str
    engine: Engine
    nodes: Sequence[Node]
    declared: bool
    words: str
    fileno: Callable[[], int]
    notes: Callable[[], Sequence[str]]
    close: Callable[[], None]


def fleet_of(wish: "ServeWish", home: Path, world: World) -> Fleet:
    if wish.engine == "virtual":
        return virtual(wish, world)
    if wish.engine == "local":
        return local(wish, home)
    raise HomeError(f"there is no engine {wish.engine!r}; use one of: {', '.join(ENGINES)}")


def virtual(wish: "ServeWish", world: World) -> Fleet:
    """Nothing runs: jobs end after the time they are expected to take, else at their limit."""
    count = wish.nodes or 1
    nodes = tuple(
        Node(
            f"node{number}",
            "main",
            amounts(
                cpus=wish.milli_cpus or VIRTUAL_CPUS * MILLI,
                memory=wish.memory_mib or VIRTUAL_MEMORY_MIB,
                gpus=max(0, wish.gpus) * MILLI,
            ),
        )
        for number in range(1, count + 1)
    )

    def run_time(task: int, attempt: int) -> int:
        spec = world.jobs[job_of(task)].spec
        return min(spec.expected_ms or spec.limit_ms, spec.limit_ms)

    return Fleet(
        name="virtual", engine=VirtualEngine(run_time), nodes=nodes, declared=True,
        words=f"{count} virtual node{'s' if count > 1 else ''}", fileno=lambda: -1, notes=list, close=lambda: None,
    )  # fmt: skip


def local(wish: "ServeWish", home: Path) -> Fleet:
    from tidegate.engines.local.engine import LocalEngine
    from tidegate.engines.local.nodes import declare, detect

    if wish.nodes:
        offer = declare(wish.nodes, wish.milli_cpus, wish.memory_mib, max(0, wish.gpus))
    else:
        offer = detect(wish.milli_cpus, wish.memory_mib, wish.gpus)
    engine = LocalEngine(home, offer)
    words = f"{wish.nodes} declared nodes" if wish.nodes else "this machine"
    return Fleet(
        name="local", engine=engine, nodes=offer.nodes, declared=bool(wish.nodes), words=words, fileno=engine.fileno,
        notes=engine.notes, close=engine.close,
    )  # fmt: skip
