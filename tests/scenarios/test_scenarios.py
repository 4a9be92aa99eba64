"""Every scenario comes out as it says: what happened is compared with what its file expects."""

from pathlib import Path

import pytest

from tests.scenarios.player import Played, check_replay, differences
from tests.scenarios.scenario import read_scenario

FOLDER = Path(__file__).parent
SCENARIOS = sorted(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path):
    scenario = read_scenario(path)
    played = Played(scenario)
    found = [*differences(scenario, played), *check_replay(scenario, played)]
    if found:
        pytest.fail("\n".join([f"{path.name}: {scenario.why}", *found]), pytrace=False)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("why: x\nnodes: []\nexpect: {}\nnods: 1", "nods"),
        ("why: x\nnodes: []\nexpect: {start: {}}", "start"),
        ("why: x\nnodes: []\nexpect: {}\njobs: [{id: 1, cpu: 2}]", "cpu"),
        ("why: x\nnodes: []\nnodes: []\nexpect: {}", "given twice"),
    ],
)
def test_a_slip_in_a_scenario_is_no_pass(text: str, fault: str, tmp_path: Path):
    path = tmp_path / "slip.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=fault):
        read_scenario(path)


def test_a_difference_is_told(tmp_path: Path):
    path = tmp_path / "wrong.yaml"
    path.write_text("why: x\nnodes: [{name: n, cpus: 1}]\njobs: [{id: 1, cpus: 1}]\nexpect: {starts: {1: 5m}}")
    scenario = read_scenario(path)
    assert differences(scenario, Played(scenario)) == ["1 starts: wanted [('5m', '')], got [('0s', '')]"]
