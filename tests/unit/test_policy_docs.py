"""docs/policy.md says of every field of a policy file what the reader of the file says."""

import re
from pathlib import Path

import pytest

from tidegate.wire.policy_file import builtin_names, describe, inspect_policy

TEXT = (Path(__file__).parents[2] / "docs" / "policy.md").read_text(encoding="utf-8")


def rows_of(text: str) -> list[tuple[str, ...]]:
    """The rows of its tables, cell by cell; the first cell without its backquotes."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return [(cells[0].strip("`"), *cells[1:]) for cells in lines]


def test_every_field_stands_there_with_type_default_and_meaning():
    fields = [row for row in rows_of(TEXT) if len(row) == 4]
    assert sorted(fields) == sorted(map(tuple, describe()))


def test_every_built_in_policy_stands_there():
    names = [row[0] for row in rows_of(TEXT) if len(row) == 3]
    assert sorted(names) == builtin_names()


@pytest.mark.parametrize("example", re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL))
def test_every_example_is_a_policy_that_deserves_no_warning(example: str):
    found = inspect_policy(example)
    assert not found.errors
    assert not found.warnings
