"""The published schedules, job by job: the same start for every job of three real logs under four policies.

The commands are those a user would type; see docs/fidelity.md for what the simulations do and how we know.
"""

import csv
import gzip
from pathlib import Path
from typing import NamedTuple

import pytest

from tidegate.app.replay import (
    Cadence,
    Filter,
    Machine,
    ReplayWish,
    Runtimes,
    TraceOptions,
    prepare,
    read_policy,
    run_replays,
)


class Log(NamedTuple):
    swf: str
    reference: str
    procs: int


KTH = Log("KTH-SP2-1996-2.swf.gz", "KTH-SP2", 100)
SDSC = Log("SDSC-BLUE-2000-4.1-cln.swf.gz", "SDSC-BLUE", 1152)
CURIE = Log("CEA-Curie-2011-2.1-cln.swf.gz", "CEA-curie", 80640)

# column of the reference: (policy, run times, published mean bounded slowdown by log)
PUBLISHED = {
    "easy": ("easy", Runtimes.LIMIT, {KTH: 92.5765, SDSC: 36.5234, CURIE: 202.1332}),
    "easypp": ("easypp", Runtimes.LIMIT, {KTH: 63.5007, SDSC: 20.9864, CURIE: 193.4713}),
    "easy_clairvoyant": ("easy", Runtimes.EXACT, {KTH: 71.7224, SDSC: 30.6215, CURIE: 69.9259}),
    "easy_sjbf_clairvoyant": ("easy-sjbf", Runtimes.EXACT, {KTH: 49.8477, SDSC: 13.1776, CURIE: 12.0798}),
}


def published_waits(path: Path, column: str) -> dict[int, int]:
    with gzip.open(path, "rt", encoding="ascii") as stream:
        return {int(row["job_id"]): int(row[f"{column}_wait"]) for row in csv.DictReader(stream)}


def check(real_trace, log: Log, column: str) -> None:
    policy, runtimes, slowdowns = PUBLISHED[column]
    waits: dict[int, int] = {}

    def on_end(_, row) -> None:
        task, submit, start, _, _ = row
        waits[task >> 20] = (start - submit) // 1000

    wish = ReplayWish(
        trace=real_trace(f"swf/{log.swf}"),
        policies=[read_policy(policy)],
        machine=Machine(capacity=log.procs),
        options=TraceOptions(filter=Filter.SC15, runtimes=runtimes, capacity=log.procs),
        cadence=Cadence.PER_EVENT,
    )
    (replayed,) = run_replays(prepare(wish), on_end=on_end)
    published = published_waits(real_trace(f"reference_schedules/{log.reference}.sc15.csv.gz"), column)
    assert waits.keys() == published.keys()
    different = [job for job, wait in waits.items() if wait != published[job]]
    assert not different, f"{len(different)} of {len(waits)} waits differ, first of job {different[0]}"
    assert replayed.figures["bsld_mean"] == pytest.approx(slowdowns[log], abs=0.00006)


@pytest.mark.parametrize("column", PUBLISHED)
def test_kth(real_trace, column: str):
    check(real_trace, KTH, column)


@pytest.mark.slow
@pytest.mark.parametrize("log", [SDSC, CURIE], ids=["SDSC-BLUE", "CEA-Curie"])
@pytest.mark.parametrize("column", PUBLISHED)
def test_larger_logs(real_trace, log: Log, column: str):
    check(real_trace, log, column)
