"""The difference of two policies: nothing is missed, whatever fields there are, and it is told in words of the file."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.property.test_policy_fuzz import specs
from tidegate.model.policy import PolicySpec
from tidegate.wire.policy_diff import Change, changes, summary
from tidegate.wire.policy_file import load_builtin, load_policy

OLD = """
name: lab
order: {by: fcfs, why: as it was}
classes:
  urgent: {head_start: 12h, why: papers}
  old: 1h
"""
NEW = """
name: lab
order: {by: priority, ageing_bound: 3d, why: deadlines}
backfill: {depth: all}
classes:
  urgent: {head_start: 1d, why: papers}
  night shift: {head_start: -1d, why: can wait}
cycle: {why: as good as any}
"""


def test_fields_are_told_as_the_file_has_them():
    assert changes(load_policy(OLD, "old"), load_policy(NEW, "new")) == [
        Change("order.by", "fcfs", "priority", "deadlines"),
        Change("order.ageing_bound", "0s", "3d", "deadlines"),
        Change("backfill.depth", "1", "all", ""),
        Change("classes.urgent.head_start", "12h", "1d", "papers"),
        Change("classes.night shift", None, "{head_start: -1d}", "can wait"),
        Change("classes.old", "{head_start: 1h}", None, ""),
        Change("cycle.why", '""', "as good as any", ""),
    ]


def test_a_list_is_told_whole():
    steps = load_policy("{name: a, estimate: {raise_steps: [5m, 30m]}}", "a")
    (found,) = changes(steps, load_policy("{name: a, estimate: {raise_steps: [5m]}}", "b"))
    assert found == Change("estimate.raise_steps", "[5m, 30m]", "[5m]", "")


def test_one_line_names_the_first_few():
    found = changes(load_builtin("fcfs"), load_builtin("tide"))
    assert summary(found).startswith("order.by fcfs → feedback, order.ageing_bound 0s → 2d12h, ")
    assert summary(found).endswith(f" and {len(found) - 4} more")
    assert summary([Change("name", "a", "b", "")]) == "name a → b"
    assert summary([Change("classes.a", None, "{}", "")]) == "classes.a (none) → {}"


@given(specs, specs)
def test_there_is_a_difference_exactly_where_two_are_not_equal(one: PolicySpec, other: PolicySpec):
    assert bool(changes(one, other)) == (one != other)
    assert changes(one, one) == []
    assert {change.path for change in changes(one, other)} == {change.path for change in changes(other, one)}


@given(specs, st.text(max_size=5))
def test_a_name_is_a_field_too(one: PolicySpec, name: str):
    other = replace(one, name=name)
    assert [change.path for change in changes(one, other)] == (["name"] if name != one.name else [])
