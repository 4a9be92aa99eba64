"""The machine beside a trace: its nodes from a CSV file, and whether a shape could ever fit there."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tidegate.lab.traces.fields import AMOUNT_MAX, BadLineError, count, quoted
from tidegate.lab.traces.table import Row, Table, TakeRow, parse_header, read_rows
from tidegate.lab.traces.text import Text
from tidegate.lab.workload import Kind, Problems, TraceError
from tidegate.model.jobs import CPUS, GPUS, MEMORY, Amounts, Shape, amounts
from tidegate.model.nodes import Node

NODES_MAX = 1_000_000
ONLY_POOL = "default"  # of a node list, which names none; jobs that name none go there
GPU_MILLI = 1000
CPU_MILLI = 1000
POOL_NAMES = ("pool", "vc")
COUNT_NAMES = ("nodes", "node num")

NodeKind = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, str], ...]]


class Machine:
    """Answers for empty nodes: what does not fit here is no job for this machine at any time."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.nodes = tuple(nodes)
        self.resources = frozenset(name for node in self.nodes for name, _ in node.capacity)
        self._kinds: dict[str, Counter[NodeKind]] = {}
        for node in self.nodes:
            self._kinds.setdefault(node.pool, Counter())[node.capacity, node.labels] += 1
        self._known: dict[tuple[str, Shape], bool] = {}

    @property
    def pools(self) -> tuple[str, ...]:
        return tuple(self._kinds)

    def check(self, pool: str, shape: Shape) -> None:
        if not self.nodes:
            return
        fits = self._known.get((pool, shape))
        if fits is None:
            fits = self._known[pool, shape] = self._fits(pool, shape)
        if not fits:
            asked = ", ".join(f"{name} {value}" for name, value in shape.chunk)
            where = "".join(f" with {label} {'|'.join(values)}" for label, values in shape.where)
            raise BadLineError(
                Kind.TOO_LARGE,
                f"asks for {shape.count} × ({asked}){where}: no nodes{f' of {pool}' * bool(pool)} hold that",
            )

    def _fits(self, pool: str, shape: Shape) -> bool:
        places = 0
        for (capacity, labels), nodes in self._kinds.get(pool, Counter()).items():
            has, tags = dict(capacity), dict(labels)
            if all(tags.get(label) in values for label, values in shape.where):
                each = min((has.get(name, 0) // value for name, value in shape.chunk), default=0)
                places += nodes * (each if shape.stack else min(each, 1))
        return places >= shape.count

    def declared(self, chunk: Amounts) -> Amounts:
        """Without the resources that the machine's file says nothing about."""
        return tuple(part for part in chunk if part[0] in self.resources) if self.nodes else chunk


def gang(gpus: int, per_node: int) -> Shape:
    """One chunk if a node can hold it, else the smallest number of equal chunks, each on its own node."""
    chunks = -(-gpus // per_node)
    while gpus % chunks:
        chunks += 1
    return Shape(chunk=((GPUS, gpus // chunks * GPU_MILLI),), count=chunks)


def read_pools(path: Path, gpus_per_node: int) -> Machine:
    """CSV `pool,nodes,gpus_per_node[,cpus_per_node,memory_mib_per_node]`; `vc,node num` is understood too."""
    table = _open_table(path)
    header = table.header
    pool_at = next((header.at(name) for name in POOL_NAMES if header.has(name)), None)
    nodes_at = next((header.at(name) for name in COUNT_NAMES if header.has(name)), None)
    if pool_at is None or nodes_at is None:
        raise TraceError(f"{path} is no pools file: its first line must name pool,nodes,gpus_per_node")
    gpus_at, cpus_at, memory_at = (header.at(f"{n}_per_node") for n in ("gpus", "cpus", "memory_mib"))
    nodes: list[Node] = []

    def take(line: int, row: Row) -> None:
        del line
        name, many = row[pool_at], count(row[nodes_at], "nodes")
        if not name or many < 0 or len(nodes) + many > NODES_MAX:
            raise BadLineError(Kind.OUT_OF_RANGE, f"pool {quoted(name)} with {many} nodes")
        capacity = amounts(
            **{
                CPUS: _at_least_0(row[cpus_at], "cpus_per_node") * CPU_MILLI,
                MEMORY: _at_least_0(row[memory_at], "memory_mib_per_node"),
                GPUS: _at_least_0(row[gpus_at], "gpus_per_node", gpus_per_node) * GPU_MILLI,
            }
        )
        width = len(str(max(many - 1, 0)))  # so that names sort as they are numbered
        nodes.extend(Node(f"{name}-{number:0{width}d}", name, capacity) for number in range(many))

    _read_strictly(table, take)
    return Machine(nodes)


def read_nodes(path: Path) -> Machine:
    """An openb node list: `sn,cpu_milli,memory_mib,gpu,model`. The model becomes the label `gpu`."""
    table = _open_table(path)
    header = table.header
    header.require(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model"), "a node list")
    places = [header.at(name) for name in ("sn", "cpu_milli", "memory_mib", "gpu", "model")]
    nodes: list[Node] = []

    def take(line: int, row: Row) -> None:
        del line
        name, cpu, memory, gpu, model = (row[place] for place in places)
        if not name or len(nodes) >= NODES_MAX:
            raise BadLineError(Kind.OUT_OF_RANGE, f"a node without a name, or more than {NODES_MAX:,} nodes")
        capacity = amounts(
            **{
                CPUS: _at_least_0(cpu, "cpu_milli"),
                MEMORY: _at_least_0(memory, "memory_mib"),
                GPUS: _at_least_0(gpu, "gpu") * GPU_MILLI,
            }
        )
        nodes.append(Node(name, ONLY_POOL, capacity, (("gpu", model),) if model else ()))

    _read_strictly(table, take)
    if len({node.name for node in nodes}) < len(nodes):
        raise TraceError(f"{path} names a node twice: every node needs its own name")
    return Machine(nodes)


def _at_least_0(text: str, what: str, default: int = 0) -> int:
    value = count(text, what, AMOUNT_MAX // GPU_MILLI) if text else default
    if value < 0:
        raise BadLineError(Kind.OUT_OF_RANGE, f"{what} is {quoted(text)}")
    return value


def _open_table(path: Path) -> Table:
    with Text(path, Problems()) as text:
        lines = list(text.lines())
    if text.problems:
        raise TraceError(f"{path}: {text.problems.shown[0][1]}")
    return Table(path, parse_header(lines[0][1]), 1, lines)


def _read_strictly(table: Table, take: TakeRow) -> None:
    """A machine with a node missing would give wrong results in silence, so one bad line is too many."""
    problems = Problems()
    read_rows(table, problems, take)
    if problems.errors:
        line, message = problems.shown[0]
        raise TraceError(f"{table.path}, line {line}: {message}; mend the file")
