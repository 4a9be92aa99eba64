"""Which engine the live loop has, with its nodes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tidegate.app.home import HomeError
from tidegate.engines.virtual import VirtualEngine
from tidegate.model.base import job_of
from tidegate.model.jobs import CPUS, GPUS, MEMORY, amounts
from tidegate.model.nodes import Node
from tidegate.ports import Engine
from tidegate.world.world import World

if TYPE_CHECKING:
    from tidegate.app.serve import ServeWish

VIRTUAL_CPUS = 8
VIRTUAL_MEMORY_MIB = 16 << 10
MILLI = 1000
ENGINES = ("local", "virtual")


def no_signals(task: int, attempt: int, number: int, to: str) -> None:
    """Nothing runs that could hear them."""


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
    close: Callable[[bool], None]  # True: and what outlives the server, unless it is busy
    signal: Callable[[int, int, int, str], None] = no_signals  # task, attempt, signal, and to whom


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
        words=f"virtual jobs on {words_of(nodes)}", fileno=lambda: -1, notes=list, close=lambda _: None,
    )  # fmt: skip


def local(wish: "ServeWish", home: Path) -> Fleet:
    from tidegate.engines.local.engine import LocalEngine
    from tidegate.engines.local.nodes import declare, detect

    if wish.nodes:
        if not wish.milli_cpus or not wish.memory_mib:
            raise HomeError("declared nodes have a size: give --cpus and --memory with --nodes")
        machine = declare(wish.nodes, wish.milli_cpus, wish.memory_mib, max(0, wish.gpus))
    else:
        machine = detect(None if wish.gpus < 0 else wish.gpus)
        machine = machine._replace(nodes=tuple(less(node, wish) for node in machine.nodes))
    engine = LocalEngine(home, machine.nodes, machine.devices)
    return Fleet(
        name="local", engine=engine, nodes=machine.nodes, declared=machine.declared, words=words_of(machine.nodes),
        fileno=engine.fileno, notes=lambda: [*machine.notes, *engine.notes()],
        close=lambda stop: engine.close(stop=stop), signal=engine.signal,
    )  # fmt: skip


def less(node: Node, wish: "ServeWish") -> Node:
    """Of this machine, so much as the jobs may use."""
    have = dict(node.capacity)
    wanted = {CPUS: wish.milli_cpus, MEMORY: wish.memory_mib}
    return replace(node, capacity=amounts(**{**have, **{name: amount for name, amount in wanted.items() if amount}}))


def words_of(nodes: Sequence[Node]) -> str:
    """What a server offers, in a few words."""
    have = dict(nodes[0].capacity)
    size = f"{have.get(CPUS, 0) / MILLI:g} cpus, {have.get(MEMORY, 0) / 1024:.1f} GiB"
    if have.get(GPUS):
        size += f", {have[GPUS] // MILLI} GPUs"
    return f"{len(nodes)} nodes of {size} each" if len(nodes) > 1 else f"{nodes[0].name}: {size}"
