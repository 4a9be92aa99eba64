"""Policies as YAML files: read with every fault named and placed, written with every entry, and the built-in ones."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from tidegate.model.policy import DAY_MS, Bound, PolicySpec
from tidegate.wire.bounds import parse_bound
from tidegate.wire.hours import parse_hours
from tidegate.wire.policy_faults import faults
from tidegate.wire.policy_fields import Field, Kind, Section, describe, names_of, policy_section, shown
from tidegate.wire.policy_hints import hints, may_starve
from tidegate.wire.units import UnitError, format_duration, parse_duration
from tidegate.wire.yaml_text import BYTES_MAX, Entries, Finding, Items, Node, Scalar, TextError, quoted, read_tree

__all__ = [
    "Finding", "Inspection", "PolicyError", "builtin_names", "describe", "dump_policy", "inspect_policy",
    "load_builtin", "load_policy", "read_policy",
]  # fmt: skip

PATH_SHOWN_MAX = 120
BOUND_MS = 7 * DAY_MS
"""What the large pay at most under an order that favours the small, where the policy does not say."""
EXAMPLES = {Kind.NAMES: "[one, another]", Kind.HOURS: "[mon-fri 08:00-18:00]"}

_COUNT = re.compile(r"[+-]?(?:0|[1-9]\d{0,2}(?:_?\d{3})+|[1-9]\d*)", re.ASCII)
_COUNT_TEXT_MAX = 40


class PolicyError(Exception):
    """Everything that is wrong with a policy, in the order of the file."""

    def __init__(self, source: str, errors: Iterable[Finding]) -> None:
        self.source = source
        self.errors = tuple(sorted(errors))
        super().__init__("\n".join(f"{source}:{' ' if not e.line else ''}{e}" for e in self.errors))


class Inspection(NamedTuple):
    """A policy text, looked at: either errors or a policy, and warnings with it."""

    spec: PolicySpec | None
    errors: tuple[Finding, ...]
    warnings: tuple[Finding, ...]


def load_policy(text: str | bytes, source: str) -> PolicySpec:
    """The policy in the text. Raises PolicyError with all that is wrong; `source` is what messages call it."""
    found = inspect_policy(text)
    if found.spec is None:
        raise PolicyError(source, found.errors)
    return found.spec


def inspect_policy(text: str | bytes) -> Inspection:
    try:
        root = read_tree(text)
    except TextError as error:
        return Inspection(None, error.findings, ())
    reader = _Reader()
    spec = reader.section(policy_section(), root, "")
    if reader.errors or spec is None:
        return Inspection(None, tuple(sorted(reader.errors)), ())
    assert isinstance(spec, PolicySpec)
    if may_starve(spec.order) and "order.ageing_bound" not in reader.places:
        spec = replace(spec, order=replace(spec.order, ageing_bound_ms=BOUND_MS))
    for path, message, cure in faults(spec):
        reader.errors.append(Finding(*reader.place(path), path, message, cure))
    if reader.errors:
        return Inspection(None, tuple(sorted(reader.errors)), ())
    warnings = [Finding(*reader.place(path), path, message, cure) for path, message, cure in hints(spec)]
    return Inspection(spec, (), tuple(sorted(warnings)))


# -- reading -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reader:
    """Goes down the tree beside the table of fields; whatever is wrong is noted, and the rest read on."""

    errors: list[Finding] = field(default_factory=list)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)  # of the policy, as far as they are read

    def place(self, path: str) -> tuple[int, int]:
        """Where the path stands, or the nearest above it that does."""
        while path and path not in self.places:
            path = path.rpartition(".")[0]
        return self.places.get(path, (1, 1))

    def wrong(self, node: Node, path: str, message: str, cure: str) -> None:
        if len(path) > PATH_SHOWN_MAX or not path.isprintable():
            path = ascii(path[:PATH_SHOWN_MAX])
        self.errors.append(Finding(node.line, node.column, path, message, cure))

    def section(self, section: Section, node: Node, path: str, base: Any = None) -> Any:
        """The record, or None where something kept it from being made. `base`: what it says where the file does not."""
        if isinstance(node, Scalar) and section.main is not None and not node.empty:
            value = self.value(section.main, node, path)
            return None if value is None else _made(section, {section.main.attr: value}, base)
        if not isinstance(node, Entries):
            self._not_a_map(section, node, path)
            return None
        values: dict[str, Any] = {}
        whole = True
        for key, key_node, child in self.in_order(self.entries(node, path)):
            known = section.find(key)
            if known is None:
                self._unknown(section, key, key_node, path)
                continue
            value = self.value(known, child, f"{path}.{key}" if path else key)
            whole = whole and value is not None
            values[known.attr] = value
            if not path:
                self.parts[known.attr] = value
        for known in section.fields:
            if known.required and known.attr not in values:
                whole = False
                self.wrong(node, known.key, "is missing", f"write '{known.key}: …'")
        return _made(section, values, base) if whole else None

    def in_order(self, entries: list[tuple[str, Node, Node]]) -> list[tuple[str, Node, Node]]:
        """The tide says what differs from the other sections, so it is read after them."""
        return sorted(entries, key=lambda entry: entry[0] == "tide")

    def entries(self, node: Entries, path: str) -> list[tuple[str, Node, Node]]:
        """The entries with a good key that comes for the first time."""
        first: dict[str, int] = {}
        good: list[tuple[str, Node, Node]] = []
        for key, child in node.entries:
            if not isinstance(key, Scalar) or key.empty or not key.text:
                self.wrong(key, path, "a key is a word", "write 'key: value'")
                continue
            at = f"{path}.{key.text}" if path else key.text
            if key.text in first:
                self.wrong(key, at, f"is given twice, first in line {first[key.text]}", "keep one of them")
                continue
            first[key.text] = key.line
            self.places[at] = (key.line, key.column)
            good.append((key.text, key, child))
        return good

    def value(self, known: Field, node: Node, path: str) -> Any:
        """The value, or None where it is wrong."""
        if isinstance(node, Scalar) and node.empty:
            self.wrong(node, path, "has no value", "write one, or leave the line out")
            return None
        if known.section is not None:
            if known.kind is Kind.SECTIONS:
                return self.sections(known.section, node, path)
            base = (self.parts.get(known.attr) or known.section.record()) if known.is_partial else None
            return self.section(known.section, node, path, base)
        if known.kind is Kind.DURATIONS:
            return self.durations(known, node, path)
        if known.kind is Kind.AMOUNTS:
            return self.amounts(node, path)
        if known.kind in {Kind.NAMES, Kind.HOURS}:
            return self.several(known, node, path)
        if not isinstance(node, Scalar):
            self.wrong(node, path, f"is a {_called(node)}", f"write {_wanted(known)}")
            return None
        match known.kind:
            case Kind.DURATION:
                return self.duration(known, node, path)
            case Kind.COUNT:
                return self.count(known, node, path)
            case Kind.PIECE:
                return self.piece(known, node, path)
            case _:
                return self.text(known, node, path)

    def sections(self, section: Section, node: Node, path: str) -> dict[str, Any] | None:
        if not isinstance(node, Entries):
            self.wrong(node, path, f"is a {_called(node)}", "write one 'name: …' a line, indented")
            return None
        read = {key: self.section(section, child, f"{path}.{key}") for key, _, child in self.entries(node, path)}
        return None if any(value is None for value in read.values()) else read

    def durations(self, known: Field, node: Node, path: str) -> tuple[int, ...] | None:
        if not isinstance(node, Items):
            self.wrong(node, path, f"is a {_called(node)}", "write a list, such as [1m, 5m, 15m]")
            return None
        read: list[int | None] = []
        for at, item in enumerate(node.items):
            here = f"{path}[{at}]"
            if isinstance(item, Scalar):
                read.append(self.duration(known, item, here))
            else:
                self.wrong(item, here, f"is a {_called(item)}", "write a duration, such as 15m")
                read.append(None)
        return None if None in read else tuple(value for value in read if value is not None)

    def several(self, known: Field, node: Node, path: str) -> tuple[Any, ...] | None:
        """Names or hours; one may stand without brackets."""
        if isinstance(node, Entries):
            self.wrong(node, path, "is a map", f"write a {known.says()}, such as {EXAMPLES[known.kind]}")
            return None
        items = node.items if isinstance(node, Items) else [node]
        read: list[Any] = []
        for at, item in enumerate(items):
            here = f"{path}[{at}]" if isinstance(node, Items) else path
            if not isinstance(item, Scalar) or item.empty or not item.text.strip():
                self.wrong(item, here, "is no text", f"write such as {EXAMPLES[known.kind]}")
                continue
            try:
                read.append(parse_hours(item.text) if known.kind is Kind.HOURS else item.text)
            except UnitError as error:
                self.wrong(item, here, error.message, error.cure)
        return tuple(read) if len(read) == len(items) else None

    def amounts(self, node: Node, path: str) -> tuple[Bound, ...] | None:
        if not isinstance(node, Entries):
            self.wrong(node, path, f"is a {_called(node)}", "write amounts, such as {cpus: 40, gpus: 25%}")
            return None
        read: list[Bound] = []
        entries = self.entries(node, path)
        for key, _, child in entries:
            here = f"{path}.{key}"
            if not isinstance(child, Scalar) or child.empty:
                self.wrong(child, here, "is no amount", "write a number, or a part such as 25%")
                continue
            try:
                read.append(parse_bound(key, child.text))
            except UnitError as error:
                self.wrong(child, here, error.message, error.cure)
        return tuple(sorted(read, key=lambda bound: bound.resource)) if len(read) == len(entries) else None

    def duration(self, known: Field, node: Scalar, path: str) -> int | None:
        try:
            value = parse_duration(node.text, signed=known.signed)
        except UnitError as error:
            self.wrong(node, path, error.message, error.cure)
            return None
        return value if self._in_range(known, value, node, path) else None

    def count(self, known: Field, node: Scalar, path: str) -> int | None:
        if known.words and node.text in known.words:
            return known.words[node.text]
        if len(node.text) > _COUNT_TEXT_MAX or not _COUNT.fullmatch(node.text):
            self.wrong(node, path, f"{_cut(node.text)} is not a whole number", f"write {_wanted(known)}")
            return None
        if not node.plain:
            self.wrong(node, path, "a number in quotes is a text", "remove the quotes")
            return None
        value = int(node.text)
        return value if self._in_range(known, value, node, path) else None

    def piece(self, known: Field, node: Scalar, path: str) -> Any:
        names = names_of(known)
        if node.text not in names:
            near = _near(node.text, names)
            self.wrong(node, path, f"there is no {_cut(node.text)} here", f"{near}write {_wanted(known)}")
            return None
        assert known.pieces is not None
        return known.pieces(node.text)

    def text(self, known: Field, node: Scalar, path: str) -> str | None:
        if known.required and not node.text.strip():
            self.wrong(node, path, "is an empty text", "write at least one letter")
            return None
        return node.text

    def _in_range(self, known: Field, value: int, node: Scalar, path: str) -> bool:
        write = format_duration if known.kind is not Kind.COUNT else str
        if known.low is not None and value < known.low:
            self.wrong(node, path, f"{node.text} is too small", f"write {write(known.low)} or more")
            return False
        if known.high is not None and value > known.high:
            self.wrong(node, path, f"{node.text} is too large", f"write {write(known.high)} or less")
            return False
        return True

    def _not_a_map(self, section: Section, node: Node, path: str) -> None:
        keys = ", ".join(known.key for known in section.fields)
        message = "has no value" if isinstance(node, Scalar) and node.empty else f"is a {_called(node)}"
        if not path:
            message = f"the file {message}, not entries"
        self.wrong(node, path, message, f"write 'key: value' lines; keys here: {keys}")

    def _unknown(self, section: Section, key: str, node: Node, path: str) -> None:
        keys = [known.key for known in section.fields]
        elsewhere = [
            f"{parent.key}.{known.key}"
            for parent in policy_section().fields
            if parent.section is not None and parent.section is not section
            for known in parent.section.fields
            if known.key == key
        ]
        if elsewhere and key != "why":
            cure = f"it belongs to {' or '.join(elsewhere)}"
        else:
            cure = f"{_near(key, keys)}keys here: {', '.join(keys)}"
        at = f"{path}.{_short(key)}" if path else _short(key)
        self.wrong(node, at, "is not a field of a policy", cure)


def _made(section: Section, values: dict[str, Any], base: Any) -> Any:
    return section.record(**values) if base is None else replace(base, **values)


def _near(word: str, names: Iterable[str]) -> str:
    near = get_close_matches(word[:60], list(names), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}? " if near else ""


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "…"


def _cut(text: str) -> str:
    return repr(_short(text))


def _called(node: Node) -> str:
    match node:
        case Entries():
            return "map"
        case Items():
            return "list"
        case Scalar():
            return f"plain value ({_cut(node.text)})"


def _wanted(known: Field) -> str:
    says = known.says()
    return says if known.kind is Kind.PIECE else f"a {says}"


# -- writing -------------------------------------------------------------------------------------------


def dump_policy(spec: PolicySpec) -> str:
    """YAML with every entry, defaults included; it loads back to an equal spec."""
    return "".join(_lines(policy_section(), spec, ""))


def _lines(section: Section, record: Any, indent: str) -> Iterable[str]:
    for known in section.fields:
        value = getattr(record, known.attr)
        if value is None:
            continue
        if known.section is None:
            text = quoted(value) if known.kind is Kind.TEXT else shown(known, value)
            yield f"{indent}{known.key}: {text}\n"
        elif known.kind is Kind.SECTION:
            yield f"{indent}{known.key}:\n"
            yield from _lines(known.section, value, indent + "  ")
        elif not value:
            yield f"{indent}{known.key}: {{}}\n"
        else:
            yield f"{indent}{known.key}:\n"
            for name, inner in value.items():
                yield f"{indent}  {quoted(name)}:\n"
                yield from _lines(known.section, inner, indent + "    ")


# -- built-in policies and files -------------------------------------------------------------------------


def builtin_names() -> list[str]:
    found = (entry.name for entry in (files("tidegate.wire") / "policies").iterdir())
    return sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml"))


def load_builtin(name: str) -> PolicySpec:
    names = builtin_names()
    if name not in names:
        cure = f"{_near(name, names)}built-in policies: {', '.join(names)}; or give the path of a file"
        raise PolicyError(name, [Finding(0, 0, "", "there is no such policy", cure)])
    text = (files("tidegate.wire") / "policies" / f"{name}.yaml").read_bytes()
    return load_policy(text, f"{name}.yaml")


def read_policy(name_or_path: str | Path) -> PolicySpec:
    """A built-in policy by its name, else the policy in that file. `./easy` is always a file."""
    path = Path(name_or_path)
    if isinstance(name_or_path, str):
        looks_like_a_path = any(mark in name_or_path for mark in "/\\.")
        if name_or_path in builtin_names() or not (looks_like_a_path or (name_or_path and path.exists())):
            return load_builtin(name_or_path)
    try:
        with path.open("rb") as stream:
            text = stream.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        why = getattr(error, "strerror", None) or str(error)
        cure = f"check the path, or name a built-in policy: {', '.join(builtin_names())}"
        raise PolicyError(str(name_or_path), [Finding(0, 0, "", f"cannot be read ({why})", cure)]) from error
    return load_policy(text, str(name_or_path))
