"""`sinfo`: partitions and nodes."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.slurm import getopt
from tidegate.slurm.ask import pool_named
from tidegate.slurm.desk import VERSION, Answer, Call, Desk
from tidegate.slurm.nodes import COMPACT, ORDER, NodeView, Partition, load, partitions
from tidegate.slurm.queue_json import nodes_document
from tidegate.slurm.squeue import fitted, words
from tidegate.slurm.words import FaultError, fault, moment
from tidegate.wire.hostlist import HostlistError, compress, expand
from tidegate.wire.slurm import CLUSTER

OPTIONS = getopt.table("""
    all,a bg clusters=,M cluster= dead,d exact,e federation format=,o Format=,O future,F help hide iterate=,i
    json? list-reasons,R local long,l noconvert Node,N nodes=,n noheader,h partition=,p reservation,T responding,r
    sort=,S state= states=,t summarize,s usage verbose,v version,V yaml?
""")  # fmt: skip
USAGE = "Usage: sinfo [-abdelNRrsv] [-i seconds] [-t states] [-p partition] [-n nodes] [-S fields] [-o format]\n"
BY_PARTITION = "%#P %.5a %.10l %.6D %.6t %N"
LONG = "%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
SUMMARY = "%#P %.5a %.10l %.16F %N"
BY_NODE = "%#N %.6D %#.P %6t"
BY_NODE_LONG = "%#N %.6D %#.P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E"
REASONS = "%20E %9u %19H %N"
PIECE = re.compile(r"%(#?)(\.?)(\d*)(.)", re.DOTALL)
NAME = re.compile(r"([A-Za-z_]+)(?::(\.?)(\d*)([^,]*))?\Z")
NAME_WIDTH = 20
GROWS_MIN = 9


@dataclass(slots=True)
class Group:
    """Nodes of a partition that look the same."""

    partition: Partition
    nodes: list[NodeView]
    now: int

    @property
    def first(self) -> NodeView | None:
        return self.nodes[0] if self.nodes else None

    def states(self) -> tuple[int, int, int, int]:
        """Nodes that are taken, idle, neither, and all."""
        taken = sum(node.state in {"allocated", "mixed"} for node in self.nodes)
        idle = sum(node.state == "idle" for node in self.nodes)
        return taken, idle, len(self.nodes) - taken - idle, len(self.nodes)

    def processors(self) -> tuple[int, int, int, int]:
        used, other = sum(node.cpus_used for node in self.nodes), sum(node.cpus_other for node in self.nodes)
        whole = sum(node.cpus for node in self.nodes)
        return used, whole - used - other, other, whole


Value = Callable[[Group], str]
Of = Callable[[NodeView], str]


class Field(NamedTuple):
    name: str
    header: str
    value: Value
    of_node: bool  # its value tells groups apart


def each(name: str, header: str, value: Of) -> Field:
    return Field(name, header, lambda group: value(group.first) if group.first is not None else "n/a", True)


def fixed(name: str, header: str, text: str) -> Field:
    return Field(name, header, lambda group: text, False)


def slashed(numbers: tuple[int, ...]) -> str:
    return "/".join(str(number) for number in numbers)


def reason_time(group: Group) -> str:
    return moment(group.now) if group.first is not None and group.first.why != "none" else "Unknown"


def reason_user(node: NodeView) -> str:
    return node.row.why.rpartition("drained by ")[2] if "drained by" in node.row.why else "root"


def names(group: Group) -> str:
    return compress([node.name for node in group.nodes])


LETTERS: dict[str, Field] = {
    "a": fixed("available", "AVAIL", "up"),
    "A": Field("nodeai", "NODES(A/I)", lambda g: slashed(g.states()[:2]), False),
    "B": fixed("maxcpuspernode", "MAX_CPUS_PER_NODE", "UNLIMITED"),
    "c": each("cpus", "CPUS", lambda n: str(n.cpus)),
    "C": Field("cpusstate", "CPUS(A/I/O/T)", lambda g: slashed(g.processors()), False),
    "d": each("disk", "TMP_DISK", lambda n: "0"),
    "D": Field("nodes", "NODES", lambda g: str(len(g.nodes)), False),
    "e": each("freemem", "FREE_MEM", lambda n: str(n.memory - n.memory_used)),
    "E": each("reason", "REASON", lambda n: n.why.replace("_", " ")),
    "f": each("features", "AVAIL_FEATURES", lambda n: n.features),
    "b": each("features_act", "ACTIVE_FEATURES", lambda n: n.features),
    "F": Field("nodeaiot", "NODES(A/I/O/T)", lambda g: slashed(g.states()), False),
    "g": fixed("groups", "GROUPS", "all"),
    "G": each("gres", "GRES", lambda n: n.gres),
    "h": fixed("oversubscribe", "OVERSUBSCRIBE", "NO"),
    "H": Field("timestamp", "TIMESTAMP", reason_time, False),
    "I": fixed("priorityjobfactor", "PRIO_JOB_FACTOR", "1"),
    "l": fixed("time", "TIMELIMIT", "infinite"),
    "L": fixed("defaulttime", "DEFAULTTIME", "n/a"),
    "m": each("memory", "MEMORY", lambda n: str(n.memory)),
    "M": fixed("preemptmode", "PREEMPT_MODE", "OFF"),
    "n": each("nodehost", "HOSTNAMES", lambda n: n.name),
    "N": Field("nodelist", "NODELIST", names, False),
    "o": each("nodeaddr", "NODE_ADDR", lambda n: n.name),
    "O": each("cpusload", "CPU_LOAD", lambda n: f"{load():.2f}"),
    "p": fixed("prioritytier", "PRIO_TIER", "1"),
    "P": Field("partition", "PARTITION", lambda g: g.partition.starred, False),
    "r": fixed("root", "ROOT", "no"),
    "R": Field("partitionname", "PARTITION", lambda g: g.partition.name, False),
    "s": fixed("size", "JOB_SIZE", "1-infinite"),
    "S": fixed("allocnodes", "ALLOCNODES", "all"),
    "t": each("statecompact", "STATE", lambda n: n.compact),
    "T": each("statelong", "STATE", lambda n: n.state),
    "u": each("user", "USER", reason_user),
    "U": each("userlong", "USER", lambda n: f"{reason_user(n)}(0)"),
    "v": each("version", "VERSION", lambda n: VERSION.rpartition(" ")[2]),
    "V": fixed("cluster", "CLUSTER", CLUSTER),
    "w": each("weight", "WEIGHT", lambda n: "1"),
    "X": each("sockets", "SOCKETS", lambda n: str(n.cpus)),
    "Y": each("cores", "CORES", lambda n: "1"),
    "Z": each("threads", "THREADS", lambda n: "1"),
    "z": each("socketcorethread", "S:C:T", lambda n: f"{n.cpus}:1:1"),
}
NAMED = {field.name: field for field in LETTERS.values()} | {
    "gresused": each("gresused", "GRES_USED", lambda n: n.gres_used),
    "allocmem": each("allocmem", "ALLOCMEM", lambda n: str(n.memory_used)),
    "allocnodes": fixed("allocnodes", "ALLOCNODES", "all"),
    "comment": each("comment", "COMMENT", lambda n: ""),
    "extra": each("extra", "EXTRA", lambda n: ""),
    "port": each("port", "PORT", lambda n: "6818"),
    "maxcpuspernode": LETTERS["B"],
    "statecomplete": each("statecomplete", "STATECOMPLETE", lambda n: n.state),
    "state": LETTERS["T"],
}
Part = tuple[str, Field | None, int, bool, bool, str]
"""Literal before, the field, its width, to the right, as wide as it needs, what follows."""


def sinfo(desk: Desk, call: Call) -> None:
    given, _ = getopt.parse("sinfo", call.words, OPTIONS, ordered=False)
    told = dict(given)
    if "version" in told or "help" in told or "usage" in told:
        call.answer(f"{VERSION}\n" if "version" in told else USAGE)
        return
    if "Format" not in told:
        told.setdefault("format", call.env.get("SINFO_FORMAT", ""))
    found = list(chosen_partitions(desk, told))
    if "json" in told:
        call.say(Answer(nodes_document([node for one in found for node in one.nodes], desk.began_ms)))
        return
    if "partition" in told and not found:
        call.answer()
        return
    parts = parts_of(told)
    groups = groups_of(found, parts, told, call.now)
    call.answer(table(groups, parts, told, call.now))


def chosen_partitions(desk: Desk, told: dict[str, str]) -> list[Partition]:
    wanted = [pool_named(desk.world, name) or name for name in words(told.get("partition", ""))]
    try:
        hosts = expand(told.get("nodes", ""))
    except HostlistError as error:
        raise fault("sinfo", str(error)) from None
    states = [state.lower() for state in words(told.get("states", told.get("state", "")))]
    found = []
    for one in partitions(desk.world):
        if wanted and one.name not in wanted:
            continue
        nodes = [node for node in one.nodes if (not hosts or node.name in hosts) and is_in(node, states, told)]
        if nodes or not (hosts or states or "list-reasons" in told):
            found.append(Partition(one.name, nodes, is_default=one.is_default))
    return found


def is_in(node: NodeView, states: list[str], told: dict[str, str]) -> bool:
    if "list-reasons" in told:
        return node.why != "none"
    if "responding" in told and node.state == "down":
        return False
    if "dead" in told and node.state != "down":
        return False
    if not states or "all" in states:
        return True
    near = {node.state, COMPACT[node.state]} | ({"drain"} if node.state.startswith("drain") else set())
    return bool(near & set(states))


def parts_of(told: dict[str, str]) -> list[Part]:
    if told.get("Format"):
        return by_names(told["Format"])
    if told.get("format"):
        return by_letters(told["format"])
    if "list-reasons" in told:
        return by_letters(REASONS)
    if "Node" in told:
        return by_letters(BY_NODE_LONG if "long" in told else BY_NODE)
    if "summarize" in told:
        return by_letters(SUMMARY)
    return by_letters(LONG if "long" in told else BY_PARTITION)


def by_letters(text: str) -> list[Part]:
    parts: list[Part] = []
    at = 0
    for found in PIECE.finditer(text):
        field = LETTERS.get(found[4])
        literal = text[at : found.start()] + ("" if field is not None else found[0])
        parts.append((literal, field, int(found[3] or 0), bool(found[2]), bool(found[1]), ""))
        at = found.end()
    parts.append((text[at:], None, 0, False, False, ""))
    return parts


def by_names(text: str) -> list[Part]:
    parts: list[Part] = []
    for word in text.split(","):
        found = NAME.match(word.strip())
        field = NAMED.get(found[1].lower()) if found is not None else None
        if found is None or field is None:
            raise FaultError(f"sinfo: error: Invalid node format specification: {word.strip()}\n")
        width = int(found[3]) if found[3] else (0 if found[4] else NAME_WIDTH)
        parts.append(("", field, width, bool(found[2]), False, found[4] or ""))
    return parts


def groups_of(found: list[Partition], parts: list[Part], told: dict[str, str], now: int) -> list[Group]:
    telling = [field for _, field, _, _, _, _ in parts if field is not None and field.of_node]
    by_node = "Node" in told
    groups: list[Group] = []
    for one in found:
        here: dict[tuple[str, ...], Group] = {}
        for node in one.nodes:
            single = Group(one, [node], now)
            key = (node.name,) if by_node else tuple(field.value(single) for field in telling)
            if key in here:
                here[key].nodes.append(node)
            else:
                here[key] = single
        if not here:
            here[()] = Group(one, [], now)
        rows = list(here.values())
        if not by_node:
            rows.sort(key=lambda group: ORDER[group.first.state] if group.first is not None else 9)
        groups += rows
    if by_node:
        groups.sort(key=lambda group: (natural_key(group), not group.partition.is_default))
    return groups


def natural_key(group: Group) -> tuple[str, int]:
    name = group.first.name if group.first is not None else ""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def table(groups: list[Group], parts: list[Part], told: dict[str, str], now: int) -> str:
    widths = []
    for _, field, width, _, grows, _ in parts:
        longest = max((len(field.value(group)) for group in groups), default=0) if field is not None and grows else 0
        widths.append(max(GROWS_MIN, longest) if grows else width)
    lines = []
    if "noheader" not in told:
        if "long" in told and not (told.get("format") or told.get("Format")):
            lines.append(moment(now, "%a %b %d %H:%M:%S %Y"))
        lines.append(line(parts, widths, lambda field: field.header))
    lines += [line(parts, widths, value_of(group)) for group in groups]
    return "\n".join([*lines, ""]) if lines else ""


def value_of(group: Group) -> Callable[[Field], str]:
    return lambda field: field.value(group)


def line(parts: list[Part], widths: list[int], text: Callable[[Field], str]) -> str:
    return "".join(
        literal + (fitted(text(field), width, right) + tail if field is not None else "")
        for (literal, field, _, right, _, tail), width in zip(parts, widths, strict=True)
    )
