"""Generated workloads: the same bytes for the same options, the load and the bursts that were asked for."""

import gzip
import hashlib
import io
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import msgspec
import pytest

from tidegate.lab.generate import (
    BURST,
    DailyCycle,
    GenerateError,
    GenerateOptions,
    SwfRow,
    generate,
    make_plan,
    write_swf,
)
from tidegate.lab.traces import read_trace
from tidegate.lab.workload import QueueFrom, TraceOptions


def text_of(options: GenerateOptions) -> str:
    stream = io.StringIO()
    write_swf(stream, options)
    return stream.getvalue()


def digest(options: GenerateOptions) -> str:
    return hashlib.sha256(text_of(options).encode()).hexdigest()


def load_of(rows: list[SwfRow], procs: int) -> float:
    return sum(row.run_s * row.procs for row in rows) / (procs * (rows[-1].submit_s - rows[0].submit_s))


@dataclass
class Rates:
    """Jobs a second."""

    inside: list[float]
    outside: float


def rates(options: GenerateOptions) -> Rates:
    rows = list(generate(options))
    windows = make_plan(options).windows
    inside = [sum(low <= row.submit_s < high for row in rows) for low, high in windows]
    calm_s = rows[-1].submit_s - sum(high - low for low, high in windows)
    return Rates(
        [jobs / (high - low) for jobs, (low, high) in zip(inside, windows, strict=True)],
        (len(rows) - sum(inside)) / calm_s,
    )


@pytest.mark.parametrize(
    ("options", "pinned"),
    [
        (GenerateOptions(jobs=2000), "a61d695c31de0276"),
        (GenerateOptions(jobs=2000, bursts=2, burst_hours=0.5, seed=7), "dc7cd02e782b53f9"),
        (GenerateOptions(jobs=0, days=3, procs=100, bursts=1, burst_factor=20.0), "bc51f09c54778a93"),
    ],
)
def test_the_same_options_give_the_same_bytes_everywhere(options: GenerateOptions, pinned: str) -> None:
    assert digest(options)[:16] == pinned


def test_another_seed_gives_another_workload() -> None:
    assert digest(GenerateOptions(jobs=100, seed=1)) != digest(GenerateOptions(jobs=100, seed=2))


@pytest.mark.parametrize("load", [0.3, 0.8, 1.2])
@pytest.mark.parametrize("procs", [1, 100, 1024])
@pytest.mark.parametrize("bursts", [0, 3])
def test_the_load_is_what_was_asked_for(load: float, procs: int, bursts: int) -> None:
    rows = list(generate(GenerateOptions(jobs=5000, load=load, procs=procs, bursts=bursts, burst_hours=1)))
    assert len(rows) == 5000
    assert load_of(rows, procs) == pytest.approx(load, rel=0.01)


def test_days_say_how_long_and_the_load_how_many() -> None:
    options = GenerateOptions(jobs=0, days=60, procs=128, load=0.7, bursts=2)
    rows = list(generate(options))
    assert rows[-1].submit_s == 60 * 86_400
    assert load_of(rows, 128) == pytest.approx(0.7, rel=0.05)


@pytest.mark.parametrize("factor", [5, 20, 50])
@pytest.mark.parametrize("seed", range(5))
def test_every_burst_has_the_rate_that_was_asked_for(factor: float, seed: int) -> None:
    measured = rates(GenerateOptions(jobs=10_000, bursts=4, burst_factor=factor, seed=seed))
    assert min(measured.inside) >= factor * measured.outside
    assert fmean(measured.inside) < 2 * factor * measured.outside


def test_bursts_keep_apart_and_small_jobs_dominate_them_on_request() -> None:
    options = GenerateOptions(jobs=10_000, bursts=4, burst_factor=50, burst_small_percent=90)
    windows = make_plan(options).windows
    assert all(before < after for (_, before), (after, _) in pairwise(windows))
    burst = [row for row in generate(options) if row.queue == BURST]
    assert fmean(row.procs <= 4 and row.run_s <= 1080 for row in burst) > 0.85
    mixed = msgspec.structs.replace(options, burst_small_percent=0)
    large = [row for row in generate(mixed) if row.queue == BURST]
    assert fmean(row.procs for row in large) > 3 * fmean(row.procs for row in burst)


def test_jobs_are_valid_and_in_order() -> None:
    rows = list(generate(GenerateOptions(jobs=5000, procs=100, bursts=2, users=20)))
    assert [row.job for row in rows] == list(range(1, 5001))
    assert all(a.submit_s <= b.submit_s for a, b in pairwise(rows))
    assert all(1 <= row.procs <= 100 and row.run_s >= 1 and row.requested_s >= 1 for row in rows)
    assert {row.user for row in rows} <= set(range(1, 21))


def test_sizes_and_run_times_have_the_shape_of_the_model() -> None:
    rows = list(generate(GenerateOptions(jobs=40_000, procs=256, users=1000)))
    serial = fmean(row.procs == 1 for row in rows)
    powers = fmean(row.procs > 1 and row.procs & (row.procs - 1) == 0 for row in rows)
    assert serial == pytest.approx(0.244, abs=0.02)
    assert powers == pytest.approx(0.60, abs=0.04)  # 0.576, and other sizes that happen to be powers
    assert max(row.run_s for row in rows) <= 162_754
    assert 60 < median(row.run_s for row in rows) < 400
    assert 3500 < fmean(row.run_s for row in rows) < 6500
    large = [row.run_s for row in rows if row.procs > 64]
    assert median(large) > 5 * median(row.run_s for row in rows if row.procs <= 8)


def test_users_are_few_and_have_habits() -> None:
    rows = list(generate(GenerateOptions(jobs=20_000, users=100)))
    jobs_of = [sum(row.user == user for row in rows) for user in (1, 10, 100)]
    assert jobs_of[0] > 5 * jobs_of[1] > 0
    assert jobs_of[1] > 2 * jobs_of[2]
    last: dict[int, int] = {}
    near = []
    for row in rows:
        if row.user in last:
            near.append(row.run_s <= 2 * last[row.user] + 2 and last[row.user] <= 2 * row.run_s + 2)
        last[row.user] = row.run_s
    assert fmean(near) > 0.7


def test_requested_times_are_mostly_too_long() -> None:
    rows = list(generate(GenerateOptions(jobs=20_000)))
    assert 0 < fmean(row.requested_s < row.run_s for row in rows) < 0.05
    assert 0.05 < fmean(row.requested_s == row.run_s for row in rows) < 0.2
    assert fmean(row.requested_s % 300 == 0 for row in rows) > 0.8


def test_the_day_has_a_cycle() -> None:
    rows = list(generate(GenerateOptions(jobs=20_000)))
    by_hour = [0] * 24
    for row in rows:
        by_hour[row.submit_s // 3600 % 24] += 1
    assert sum(by_hour[12:17]) > 5 * sum(by_hour[3:8])


@pytest.mark.parametrize("time", [0.0, 1.0, 19_800.0, 86_399.9, 86_400.0, 1_000_000.5])
def test_busy_time_turns_back_into_time(time: float) -> None:
    cycle = DailyCycle()
    assert cycle.time(cycle.busy(time)) == pytest.approx(time, abs=1e-3)


@pytest.mark.parametrize("name", ["w.swf", "w.swf.gz"])
def test_what_is_written_reads_back_without_a_problem(tmp_path: Path, name: str) -> None:
    options = GenerateOptions(jobs=3000, procs=64, bursts=2)
    path = tmp_path / name
    assert write_swf(path, options) == 3000
    workload = read_trace(path, options=TraceOptions(queue_from=QueueFrom.QUEUE))
    assert not workload.problems
    assert not workload.problems.left_out
    assert (len(workload), workload.max_procs, workload.format) == (3000, 64, "swf")
    for arrival, row in zip(workload, generate(options), strict=True):
        spec = arrival.submit.spec
        assert (arrival.label, arrival.at_ms, arrival.run_ms) == (row.job, row.submit_s * 1000, row.run_s * 1000)
        assert (spec.shape.count, spec.limit_ms, spec.user) == (row.procs, row.requested_s * 1000, f"u{row.user}")
        assert spec.queue == f"q{row.queue}"
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()
    assert text == text_of(options)
    assert "MaxProcs: 64" in text
    assert "bursts=2" in text


@pytest.mark.parametrize(
    "change",
    [
        {"jobs": 0},
        {"days": 3},
        {"jobs": -1},
        {"procs": 0},
        {"load": 0},
        {"load": float("nan")},
        {"users": 0},
        {"burst_factor": 51},
        {"burst_factor": 0.5},
        {"burst_hours": 0},
        {"burst_small_percent": 101},
        {"jobs": 10, "bursts": 5},
        {"jobs": 0, "days": 1, "bursts": 20},
        {"jobs": 100_000, "procs": 1, "load": 0.01},
    ],
)
def test_what_makes_no_workload_is_refused_at_once(change: dict[str, float]) -> None:
    with pytest.raises(GenerateError):
        generate(msgspec.structs.replace(GenerateOptions(), **change))


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_a_handful_of_jobs_will_do(jobs: int) -> None:
    assert len(list(generate(GenerateOptions(jobs=jobs)))) == jobs
