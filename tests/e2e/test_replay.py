"""`tide` as a user runs it: real processes, real files."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidegate.journals.sqlite import SqliteJournal
from tidegate.loop.recovery import recover
from tidegate.world.check import check

FIELDS = {
    "policy", "jobs", "makespan_s", "wait_mean_s", "wait_p50_s", "wait_p95_s", "wait_max_s", "completion_mean_s",
    "bsld_mean", "bsld_max", "utilization", "backfilled", "preemptions", "digest", "wall_s", "jobs_per_s",
    "peak_rss_mb", "wait_mean_largest_s",
}  # fmt: skip
JOBS, PROCS = 400, 64


def tide(*words: object, hash_seed: str = "random") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidegate.cli.main", *map(str, words)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": hash_seed}, timeout=60,
    )  # fmt: skip


def replayed(*words: object, hash_seed: str = "random") -> Any:
    done = tide("replay", *words, "--json", hash_seed=hash_seed)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "burst.swf"
    options = ("--jobs", JOBS, "--procs", PROCS, "--bursts", 2, "--burst-factor", 8, "--seed", 5, "--out", path)
    assert tide("generate", *options).returncode == 0
    return path


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_the_figures_are_those_of_the_schedule(trace: Path, tmp_path: Path):
    out = tmp_path / "out.csv"
    figures = replayed(trace, "--nodes", 8, "--cpus-per-node", 8, "--policy", "tide", "--schedule", out)
    assert figures.keys() >= FIELDS
    jobs = rows(out)
    waits = [int(job["wait"]) for job in jobs]
    runs = [int(job["end"]) - int(job["start"]) for job in jobs]
    slowdowns = [max(1.0, (wait + run) / max(10, run)) for wait, run in zip(waits, runs, strict=True)]
    assert figures["jobs"] == len(jobs) == JOBS
    assert figures["wait_mean_s"] == pytest.approx(sum(waits) / JOBS)
    assert figures["wait_max_s"] == max(waits)
    assert figures["bsld_mean"] == pytest.approx(sum(slowdowns) / JOBS)
    assert figures["bsld_max"] == pytest.approx(max(slowdowns))
    assert all(int(job["start"]) - int(job["submit"]) == int(job["wait"]) for job in jobs)


def test_no_node_is_given_away_twice(trace: Path, tmp_path: Path):
    out = tmp_path / "out.csv"
    replayed(trace, "--nodes", 8, "--cpus-per-node", 8, "--policy", "easy", "--schedule", out)
    changes: dict[str, list[tuple[int, int]]] = {}
    for job in rows(out):
        for word in job["nodes"].split():
            node, _, count = word.partition("*")
            changes.setdefault(node, []).extend(
                ((int(job["start"]), int(count or 1)), (int(job["end"]), -int(count or 1)))
            )
    for node, at_node in changes.items():
        used = 0
        for _, change in sorted(at_node):  # at one second what ends comes before what starts
            used += change
            assert 0 <= used <= 8, node


def test_the_digest_does_not_depend_on_the_hash_seed(trace: Path):
    words = (trace, "--capacity", PROCS, "--policy", "tide")
    first, second = (replayed(*words, hash_seed=seed) for seed in ("0", "4242"))
    assert first["digest"] == second["digest"]


def test_several_policies_give_a_list_in_order(trace: Path):
    several = replayed(trace, "--capacity", PROCS, "--policy", "fcfs", "--policy", "easy")
    assert [figures["policy"] for figures in several] == ["fcfs", "easy"]
    assert several[0]["backfilled"] == 0 < several[1]["backfilled"]


def test_a_journal_is_a_trace_and_a_state(trace: Path, tmp_path: Path):
    kept = tmp_path / "journal.db"
    words = ("--capacity", PROCS, "--policy", "easy")
    figures = replayed(trace, *words, "--journal", kept)
    again = replayed(kept, "--policy", "easy")
    assert (again["jobs"], again["wait_mean_s"], again["bsld_mean"]) == (
        figures["jobs"], figures["wait_mean_s"], figures["bsld_mean"],
    )  # fmt: skip
    world = recover(SqliteJournal(kept, readonly=True))
    assert (check(world), world.jobs, world.runs) == ([], {}, {})


def test_a_file_that_is_no_journal_is_not_written_over(trace: Path, tmp_path: Path):
    dear = tmp_path / "thesis.txt"
    dear.write_text("years of work")
    for option in ("--journal", "--schedule"):
        done = tide("replay", trace, "--capacity", PROCS, option, dear)
        assert done.returncode == 1, option
        assert "thesis.txt" in done.stderr
        assert dear.read_text() == "years of work"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("replay", "no-such-file.swf"), "no-such-file.swf"),
        (("replay", "{trace}", "--policy", "eazy"), "easy"),
        (("replay", "{trace}", "--nodes", "4"), "--cpus-per-node"),
        (("replay", "{trace}", "--nodes", "4", "--cpus-per-node", "2", "--capacity", "8"), "give one"),
        (("policy", "show", "eazy"), "easy"),
        (("policy", "check", "no-such-policy.yaml"), "no-such-policy.yaml"),
        (("generate", "--load", "-1"), "load"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_without_a_traceback(trace: Path, words: tuple[str, ...], said: str):
    done = tide(*(word.replace("{trace}", str(trace)) for word in words))
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_demo_tells_its_story():
    done = tide("demo", "--replay")
    assert done.returncode == 0, done.stderr
    assert "What the people waiting notice" in done.stdout
    assert "shorter by" in done.stdout
