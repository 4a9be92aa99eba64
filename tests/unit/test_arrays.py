"""Arrays as people write them: what is read, what is refused and with which cure, and that writing undoes reading."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.base import ARRAY_TASKS_MAX
from tidegate.wire.arrays import INDICES_MAX, format_indices, parse_array, parse_indices
from tidegate.wire.units import UnitError


def test_an_array_is_as_large_as_the_model_allows():
    assert INDICES_MAX == ARRAY_TASKS_MAX


@pytest.mark.parametrize(
    ("text", "indices", "at_once"),
    [
        ("0-3", (0, 1, 2, 3), 0),
        ("7", (7,), 0),
        ("0-999%50", tuple(range(1000)), 50),
        ("1,3,5-9:2", (1, 3, 5, 7, 9), 0),
        ("5-10:2", (5, 7, 9), 0),
        ("3, 1", (1, 3), 0),
        ("1-4,2-6%1", (1, 2, 3, 4, 5, 6), 1),
        ("0-0", (0,), 0),
        (f"{INDICES_MAX - 1}", (INDICES_MAX - 1,), 0),
    ],
)
def test_arrays_are_read(text: str, indices: tuple[int, ...], at_once: int):
    assert parse_array(text) == (indices, at_once)


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("", "such as 0-99"),
        ("%5", "such as 0-99"),
        ("a", "whole numbers"),
        ("-1", "whole numbers"),
        ("1-", "whole numbers"),
        ("1:2", "whole numbers"),
        ("1-5:", "whole numbers"),
        ("1,,2", "whole numbers"),
        ("1.5", "whole numbers"),
        ("9-1", "1-9"),
        ("0-9:0", "1 or more"),
        ("0-9%", "0-999%50"),
        ("0-9%0", "0-999%50"),
        ("0-9%a%b", "0-999%50"),
        (f"{INDICES_MAX}", "below 1,048,576"),
        ("9" * 5000, "below 1,048,576"),
        (",".join(["0-1048575"] * 2), "several arrays"),
        ("0," * (1 << 20), "write ranges"),
    ],
)
def test_a_bad_array_says_what_to_write(text: str, cure: str):
    with pytest.raises(UnitError) as caught:
        parse_array(text)
    assert cure in caught.value.cure
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ((), ""),
        ((4,), "4"),
        ((4, 5), "4-5"),
        ((4, 6), "4,6"),
        ((*range(10), 12), "0-9,12"),
        (tuple(range(0, 1000, 2)), "0-998:2"),
        ((0, 2, 4, 5, 6, 9), "0-4:2,5-6,9"),
    ],
)
def test_indices_are_written(indices: tuple[int, ...], text: str):
    assert format_indices(indices) == text


@given(st.sets(st.integers(0, 300), min_size=1))
def test_written_indices_read_back(chosen: set[int]):
    indices = tuple(sorted(chosen))
    assert parse_indices(format_indices(indices)) == indices


@given(st.text(alphabet="0123456789,-:%a ", max_size=30) | st.text(max_size=30))
def test_any_text_is_an_array_or_a_unit_error(text: str):
    try:
        indices, at_once = parse_array(text)
    except UnitError:
        return
    assert indices == tuple(sorted(set(indices)))
    assert 0 <= at_once < INDICES_MAX
