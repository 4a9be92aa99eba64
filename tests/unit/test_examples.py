"""Every example of a policy is read without a warning, says why, and is played by a scenario of its name."""

from pathlib import Path

import pytest

from tidegate.wire.policy_file import inspect_policy

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "policies").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_a_good_policy(path: Path):
    spec, errors, warnings = inspect_policy(path.read_bytes())
    assert not errors
    assert not warnings
    assert spec is not None
    assert spec.name == path.stem
    assert spec.why


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_played(path: Path):
    scenario = ROOT / "tests" / "scenarios" / f"example-{path.stem}.yaml"
    assert f"policy: {path.relative_to(ROOT)}\n" in scenario.read_text(encoding="utf-8")
