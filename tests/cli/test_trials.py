"""`tide lab`: figures for people and programs, and clear refusals."""

import json
from pathlib import Path

from tests.cli.conftest import Tide

TIDAL = "name: tidal\ntide: {baseline: 4h, depth: 4}\n"


def counts_file(folder: Path) -> Path:
    path = folder / "counts.csv"
    steps = [f"2026-01-{1 + at // 24:02} {at % 24:02}:00:00,{600 if at == 100 else 2 + at % 3}" for at in range(24 * 8)]
    path.write_text("\n".join(["time,jobs", *steps]))
    return path


def test_how_well_bursts_are_told(tide: Tide, tmp_path: Path):
    path = counts_file(tmp_path)
    said = tide("lab", "detect", str(path), "--column", "jobs").stdout
    assert "counts.csv, jobs: " in said
    assert "90 % within" in said
    found = json.loads(tide("lab", "detect", str(path), "--column", "jobs", "--json").stdout)
    assert found["labelled"]["found_part"] == 1.0
    assert found["quiet"]["false_alarms_a_week"] == 0
    assert found["put_in"]["all"]["bursts"] == 3


def test_what_a_tide_is_worth(tide: Tide, tmp_path: Path):
    path = tmp_path / "tidal.yaml"
    path.write_text(TIDAL)
    rows = json.loads(tide("lab", "modes", str(path), "--seeds", "1", "--json").stdout)
    assert [row["mode"] for row in rows] == ["tide", "always calm", "always surge"]
    assert len({row["small_wait_mean_s"] for row in rows}) == 1, "this tide changes nothing"


def test_slips_are_told(tide: Tide, tmp_path: Path):
    path = counts_file(tmp_path)
    for words, code, said in (
        (("lab", "detect", str(path)), 1, "needs a column `time` and one of whole numbers, here 'submit_gpu_job'"),
        (("lab", "detect", str(path), "--column", "jobs", "--policy", "fcfs"), 1, "'fcfs' does not look at arrivals"),
        (("lab", "modes", "fcfs"), 1, "'fcfs' has no tide"),
        (("lab", "guess", "fcfs"), 2, "write detect COUNTS.csv, or modes POLICY"),
        (("lab", "modes", "fcfs", "--seeds", "100000"), 2, "at most 1000 seeds"),
    ):
        done = tide(*words)
        assert done.returncode == code, done.stderr
        assert said in done.stderr
    path.write_text("time,jobs\n2026-01-01 00:00:00,1\n2026-01-01 01:00:00,1\n2026-01-01 03:00:00,1\n")
    assert "not in equal steps" in tide("lab", "detect", str(path), "--column", "jobs").stderr
