"""What differs between two policies, in the words of the policy file. Made of the table of its fields, so that a new
field or section is compared the moment it can be written.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tidegate.model.policy import PolicySpec
from tidegate.wire.policy_fields import Field, Kind, Section, policy_section, shown
from tidegate.wire.policy_file import quoted

NAMED_IN_A_LINE = 3


class Change(NamedTuple):
    """One field. `old` or `new` is None where there is no such section; `why` is what the new policy says of it."""

    path: str
    old: str | None
    new: str | None
    why: str


def changes(old: PolicySpec, new: PolicySpec) -> list[Change]:
    """In the order of the file; none exactly where the two are equal."""
    return [] if old == new else list(_within(policy_section(), old, new, ""))


def _within(section: Section, old: Any, new: Any, at: str) -> Iterator[Change]:
    why = str(getattr(new, "why", ""))
    others = 0
    for field in section.fields:  # `why` is the last of them
        before, after = getattr(old, field.attr), getattr(new, field.attr)
        if before == after:
            continue
        path = f"{at}{field.key}"
        if field.kind is Kind.SECTION and field.section is not None and before is not None and after is not None:
            yield from _within(field.section, before, after, f"{path}.")
        elif field.kind is Kind.SECTIONS and field.section is not None:
            yield from _named(field.section, before, after, f"{path}.")
        elif field.key != "why":
            others += 1
            yield Change(path, written(field, before), written(field, after), why)
        elif not others:  # else the changes of the section have told it
            yield Change(path, written(field, before), written(field, after), "")


def _named(section: Section, old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[Change]:
    """Those that stay, as the new policy lists them, and those that are new; then those that are gone."""
    for name, after in new.items():
        before = old.get(name)
        if before is None:
            yield Change(f"{at}{quoted(name)}", None, in_one_line(section, after), str(getattr(after, "why", "")))
        elif before != after:
            yield from _within(section, before, after, f"{at}{quoted(name)}.")
    for name, before in old.items():
        if name not in new:
            yield Change(f"{at}{quoted(name)}", in_one_line(section, before), None, "")


def written(field: Field, value: Any) -> str | None:
    """As the file has it, in one line."""
    if value is None:
        return None
    if field.section is None:
        return quoted(value) if field.kind is Kind.TEXT else shown(field, value)
    if field.kind is Kind.SECTIONS:
        inner = (f"{quoted(name)}: {in_one_line(field.section, one)}" for name, one in value.items())
        return f"{{{', '.join(inner)}}}"
    return in_one_line(field.section, value)


def in_one_line(section: Section, record: Any) -> str:
    """Without what is as it would be anyhow, and without `why`."""
    said = [
        f"{field.key}: {written(field, getattr(record, field.attr))}"
        for field in section.fields
        if field.key != "why" and (field.required or getattr(record, field.attr) != field.default)
    ]
    return f"{{{', '.join(said)}}}"


def summary(found: list[Change]) -> str:
    """In one line, for a list that has the names of the policies anyhow."""
    found = [one for one in found if one.path != "name"] or found
    said = [f"{one.path} {one.old or '(none)'} → {one.new or '(none)'}" for one in found[:NAMED_IN_A_LINE]]
    if len(found) > NAMED_IN_A_LINE:
        said.append(f"and {len(found) - NAMED_IN_A_LINE} more")
    return ", ".join(said)
