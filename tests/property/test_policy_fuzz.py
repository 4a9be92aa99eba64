"""Whatever policy is written reads back equal, and whatever text is read gives a policy or placed errors."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.policy import (
    DEPTH_ALL,
    LEVEL_MAX,
    PART_BITS,
    WEIGHT_MAX,
    Backfill,
    Bound,
    CandidateOrder,
    Cycle,
    Estimate,
    EstimateFrom,
    Fit,
    FitBy,
    Hours,
    JobClass,
    Order,
    OrderBy,
    PolicySpec,
    Preempt,
    Queue,
    Rule,
    Share,
    Users,
)
from tidegate.wire.policy_fields import COUNT_MAX, describe
from tidegate.wire.policy_file import builtin_names, dump_policy, inspect_policy, load_builtin, load_policy
from tidegate.wire.units import DURATION_MAX_MS

texts = st.text(max_size=30) | st.sampled_from(["no", "~", "null", "1", "12:30", "a: b", "#", "- x", " x ", "\n", "é"])
names = texts.filter(lambda text: bool(text.strip()))
waits = st.integers(0, DURATION_MAX_MS)
counts = st.integers(1, COUNT_MAX)


def bounds_of(amounts: st.SearchStrategy[int], parts: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[Bound, ...]]:
    resources = st.lists(st.sampled_from(["cpus", "disks", "gpus", "memory"]), unique=True, max_size=3).map(sorted)
    return resources.flatmap(
        lambda names: st.tuples(*(st.builds(Bound, st.just(name), amounts, parts) for name in names))
    )


queues = st.builds(  # what could contradict is written in different ways: amounts here, parts there
    Queue,
    weight=st.integers(1, WEIGHT_MAX),
    limit=bounds_of(st.integers(0, 1 << 40), st.just(0)),
    users=st.sampled_from(Users),
    user_limit=bounds_of(st.just(0), st.integers(1, 1 << PART_BITS)),
    run_max_ms=waits,
    approvers=st.lists(names, max_size=2).map(tuple),
    why=texts,
)
hours = st.builds(Hours, st.integers(1, 127), st.integers(0, 700), st.integers(701, 1440))
rules = st.builds(
    Rule,
    at_least=bounds_of(st.integers(1, 1 << 40), st.just(0)),
    time_from_ms=waits,
    classes=st.lists(names, max_size=2).map(tuple),
    unless_classes=st.lists(names, max_size=2).map(tuple),
    needs_tags=st.lists(names, max_size=2).map(tuple),
    closed=st.lists(hours, max_size=2).map(tuple),
    utc_offset_ms=st.integers(-DURATION_MAX_MS, DURATION_MAX_MS),
    why=texts,
)
specs = st.builds(
    PolicySpec,
    name=names,
    order=st.builds(
        Order,
        st.sampled_from(OrderBy),
        waits,
        counts,
        st.sampled_from(OrderBy),
        waits,
        st.integers(1, DURATION_MAX_MS),
        st.integers(0, COUNT_MAX),
        waits,
        texts,
    ),
    backfill=st.builds(
        Backfill,
        st.integers(0, 3) | st.just(DEPTH_ALL) | counts,
        st.sampled_from(CandidateOrder),
        st.integers(0, 100),
        waits,
        texts,
    ),
    fit=st.builds(Fit, st.sampled_from(FitBy), texts),
    estimate=st.builds(Estimate, st.sampled_from(EstimateFrom), st.lists(waits, max_size=4).map(tuple), texts),
    classes=st.dictionaries(
        texts.filter(bool),
        st.builds(
            JobClass,
            st.integers(-LEVEL_MAX, LEVEL_MAX),
            st.integers(-DURATION_MAX_MS, DURATION_MAX_MS),
            waits,
            st.sampled_from(Preempt),
            waits,
            texts,
        ),
        max_size=4,
    ),
    queues=st.dictionaries(st.sampled_from(["a", "a/b", "a/b/c-1", "D_2", "0"]), queues, max_size=4),
    share=st.builds(Share, waits, texts),
    cycle=st.builds(Cycle, counts, texts),
    admission=st.dictionaries(texts.filter(bool), rules, max_size=3),
    why=texts,
)


@given(specs)
def test_a_written_policy_reads_back_equal(spec: PolicySpec):
    text = dump_policy(spec)
    assert load_policy(text, "dumped") == spec
    assert load_policy(text.encode(), "dumped") == spec


KEYS = sorted({key for row in describe() for key in row.path.split(".")} | {"ordr", "<<", "''", "1"})
VALUES = [
    "",
    "24h",
    "5",
    "-1",
    "all",
    "fcfs",
    "pakc",
    "[1m]",
    "[",
    "{",
    "}",
    "'x",
    "*a",
    "&a x",
    "!t x",
    "|",
    "~",
    "\t",
]
lines = st.builds(
    lambda indent, key, value: f"{' ' * indent}{key}: {value}",
    st.integers(0, 4),
    st.sampled_from(KEYS),
    st.sampled_from(VALUES) | st.text(max_size=8),
)


def assert_answered(text: str | bytes) -> None:
    spec, errors, warnings = inspect_policy(text)
    assert (spec is None) == bool(errors)
    lines_max = len(text.splitlines()) + 2
    for found in (*errors, *warnings):
        assert 0 <= found.line <= lines_max
        assert found.message
        assert found.cure
    if spec is not None:
        assert load_policy(dump_policy(spec), "again") == spec


@given(st.lists(lines, max_size=8).map("\n".join))
def test_any_lines_are_answered(text: str):
    assert_answered(text)


@given(st.text() | st.binary())
def test_any_text_is_answered(text: str | bytes):
    assert_answered(text)


@given(st.sampled_from(builtin_names()), st.data())
def test_a_policy_with_a_hole_or_a_stain_is_answered(name: str, data: st.DataObject):
    text = dump_policy(load_builtin(name))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    assert_answered(text[:start] + data.draw(st.text(max_size=5)) + text[end:])
