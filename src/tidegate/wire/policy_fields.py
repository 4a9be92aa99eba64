"""The fields of a policy file, read off PolicySpec: a new field there is a new entry here, by itself.

In the file a field is called as in the record, but `_ms` is left out (durations carry their unit) and the
tables below say what else differs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from tidegate.model.policy import DEPTH_ALL, Bound, Hours, InTide, PolicySpec
from tidegate.wire.bounds import format_bound
from tidegate.wire.hours import format_hours
from tidegate.wire.units import DURATION_MAX_MS, format_duration
from tidegate.wire.yaml_text import quoted

COUNT_MAX = 1 << 53
"""Whole numbers beyond this are a mistake, and would not survive JSON."""

RENAMED = {("Estimate", "source"): "from", ("Backfill", "slip_percent"): "slip"}
"""(record, field) -> its name in the file, where the two differ by more than the unit."""

WORDS: Mapping[tuple[str, str], Mapping[str, int]] = {("Backfill", "depth"): {"all": DEPTH_ALL, "none": 0}}
"""Words for numbers; the first one that fits is the one that is written."""

MAIN = {
    "Order": "by",
    "Backfill": "depth",
    "Fit": "by",
    "Estimate": "source",
    "JobClass": "head_start_ms",
    "Queue": "weight",
    "Share": "half_life_ms",
}
"""What a value means that stands in place of a whole section: `fit: pack` is `fit: {by: pack}`."""

TEXTS = {
    "PolicySpec.name": "what reports and comparisons call the policy",
    "PolicySpec.classes": "priority classes by name; a job of no class listed here has level 0 and no head start",
    "PolicySpec.queues": "the tree of queues, by path; none: all jobs stand in one line, whatever queue they name",
    "PolicySpec.kept": "what is kept of the nodes for jobs of some classes at any time, by name",
    "PolicySpec.admission": "rules by name; a job that one of them meets is refused",
    "PolicySpec.tide": "when demand is a burst, and what it changes; none: nothing is measured",
    "Fit.by": "which nodes are taken first: in order, fewest more of the same, least free, most free",
    "JobClass.head_start_ms": "under `order: priority` the job counts as submitted that much earlier; may be negative",
    "why": "for the reader; it changes nothing",
}
"""Descriptions that the records do not carry."""


class Kind(StrEnum):
    TEXT = "text"
    COUNT = "count"
    DURATION = "duration"
    DURATIONS = "list of durations"
    PIECE = "one of"
    AMOUNTS = "amounts"
    NAMES = "list of names"
    HOURS = "list of hours"
    SECTION = "section"
    SECTIONS = "sections by name"


@dataclass(frozen=True, slots=True)
class Field:
    key: str  # in the file
    attr: str  # in the record
    kind: Kind
    required: bool
    default: Any  # None where it is required
    about: str
    low: int | None = None
    high: int | None = None
    pieces: type[Enum] | None = None
    words: Mapping[str, int] | None = None
    section: "Section | None" = None
    is_partial: bool = False  # a section that says only what differs from the one of its name in the file

    @property
    def signed(self) -> bool:
        return self.low is None or self.low < 0

    def says(self) -> str:
        """The type, for people."""
        match self.kind:
            case Kind.PIECE:
                return f"one of {', '.join(names_of(self))}"
            case Kind.COUNT:
                words = "".join(f" or {word}" for word in self.words or ())
                return f"whole number{f' from {self.low}' if self.low is not None else ''}{words}"
            case Kind.DURATION:
                return "duration, also negative" if self.signed else "duration"
            case _:
                return self.kind.value


@dataclass(frozen=True, slots=True)
class Section:
    record: type[msgspec.Struct]
    fields: tuple[Field, ...]
    main: Field | None

    def find(self, key: str) -> Field | None:
        return next((field for field in self.fields if field.key == key), None)


class Row(NamedTuple):
    """One line of a reference: what may stand at `path`."""

    path: str
    type: str
    default: str
    description: str


def names_of(field: Field) -> list[str]:
    return [piece.value for piece in field.pieces or ()]


@cache
def policy_section() -> Section:
    """The whole file."""
    return _section(inspect.type_info(PolicySpec))


def _section(info: inspect.Type) -> Section:
    assert isinstance(info, inspect.StructType)
    name = info.cls.__name__
    fields = tuple(_field(name, field) for field in info.fields)
    main = next((field for field in fields if field.attr == MAIN.get(name)), None)
    # `why` is read last, and `name` first, wherever the record has them.
    fields = tuple(sorted(fields, key=lambda field: {"name": 0, "why": 2}.get(field.key, 1)))
    return Section(info.cls, fields, main)


def _field(record: str, field: inspect.Field) -> Field:
    info, about = _unwrapped(field.type)
    if isinstance(info, inspect.UnionType):  # None: there is no such section
        (info,) = (one for one in info.types if not isinstance(one, inspect.NoneType))
    about = about or TEXTS.get(f"{record}.{field.name}", "") or TEXTS.get(field.name, "")
    key = RENAMED.get((record, field.name), field.name.removesuffix("_ms"))
    timed = field.name.endswith("_ms")
    default = field.default if field.default is not msgspec.NODEFAULT else None
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    text = Field(key, field.name, Kind.TEXT, field.required, default, about)
    match info:
        case inspect.StrType():
            return text
        case inspect.EnumType():
            return replace(text, kind=Kind.PIECE, pieces=info.cls)
        case inspect.IntType():
            kind, most = (Kind.DURATION, DURATION_MAX_MS) if timed else (Kind.COUNT, COUNT_MAX)
            words = WORDS.get((record, field.name))
            return replace(text, kind=kind, low=info.ge, high=most if info.le is None else info.le, words=words)
        case inspect.VarTupleType(item_type=inspect.StructType(cls=item_class)) if item_class is Bound:
            return replace(text, kind=Kind.AMOUNTS)
        case inspect.VarTupleType(item_type=inspect.StructType(cls=item_class)) if item_class is Hours:
            return replace(text, kind=Kind.HOURS)
        case inspect.VarTupleType(item_type=inspect.StrType()):
            return replace(text, kind=Kind.NAMES)
        case inspect.VarTupleType(item_type=item) if timed:
            number, _ = _unwrapped(item)
            assert isinstance(number, inspect.IntType)
            low = 0 if number.ge is None else number.ge
            return replace(text, kind=Kind.DURATIONS, low=low, high=DURATION_MAX_MS)
        case inspect.StructType():
            return replace(text, kind=Kind.SECTION, section=_section(info), is_partial=record == InTide.__name__)
        case inspect.DictType(key_type=inspect.StrType(), value_type=value):
            return replace(text, kind=Kind.SECTIONS, section=_section(value))
        case _:
            raise TypeError(f"{record}.{field.name}: teach the policy file how to write {info}")


def _unwrapped(info: inspect.Type) -> tuple[inspect.Type, str]:
    about = ""
    while isinstance(info, inspect.Metadata):
        about = about or (info.extra_json_schema or {}).get("description", "")
        info = info.type
    return info, about


def shown(field: Field, value: Any) -> str:
    """A value as it is written, but texts, which the writer quotes, and sections."""
    match field.kind:
        case Kind.COUNT:
            return next((word for word, number in (field.words or {}).items() if number == value), str(value))
        case Kind.DURATION:
            return format_duration(value)
        case Kind.DURATIONS:
            return f"[{', '.join(map(format_duration, value))}]"
        case Kind.AMOUNTS:
            return f"{{{', '.join(f'{bound.resource}: {format_bound(bound)}' for bound in value)}}}"
        case Kind.NAMES:
            return f"[{', '.join(quoted(name, in_list=True) for name in value)}]"
        case Kind.HOURS:
            return f"[{', '.join(map(format_hours, value))}]"
        case Kind.PIECE:
            return str(value.value)
        case _:
            return str(value)


def describe(section: Section | None = None, at: str = "") -> Iterator[Row]:
    """The reference, in the order of the file."""
    for field in (section or policy_section()).fields:
        path = f"{at}{field.key}"
        if field.section is not None:
            deeper = f"{path}.<name>." if field.kind is Kind.SECTIONS else f"{path}."
            if field.about:
                yield Row(path, field.kind.value, "none", field.about)
            if not field.is_partial:
                yield from describe(field.section, deeper)
        else:
            default = "required" if field.required else shown(field, field.default) or "none"
            yield Row(path, field.says(), default, field.about)
