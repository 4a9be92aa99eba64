"""`tide demo --replay`: one burst, two policies, and what the people waiting notice."""

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from tidegate.cli.options import Options
from tidegate.cli.table import duration, show_table

PROCS = 256
JOBS = 6000
POLICIES = ("fcfs", "tide")
COLUMNS = 72
BLOCKS = " ▁▂▃▄▅▆▇█"
PLAIN_BLOCKS = " ..::||##"


class Ended(NamedTuple):
    submit_s: float
    start_s: float
    run_s: float
    procs: int

    @property
    def wait_s(self) -> float:
        return self.start_s - self.submit_s


GROUPS: tuple[tuple[str, Callable[[Ended], bool]], ...] = (
    ("a test run: up to 4 processors, under 15 min", lambda job: job.procs <= 4 and job.run_s < 900),
    ("a day's work: up to 32 processors", lambda job: job.procs <= 32 and job.run_s >= 900),
    ("a large job: more than 64 processors", lambda job: job.procs > 64),
    ("everybody", lambda _: True),
)


def burst(options: Options) -> int:
    from tidegate.app.replay import (
        GenerateOptions,
        Machine,
        ReplayWish,
        TraceOptions,
        prepare,
        read_policy,
        run_replays,
        write_swf,
    )  # fmt: skip

    wish = GenerateOptions(
        jobs=JOBS, procs=PROCS, seed=options.seed, load=0.75, bursts=4, burst_factor=12, burst_hours=3, users=60
    )
    ended: dict[str, list[Ended]] = {name: [] for name in POLICIES}

    def on_end(policy: object, row: tuple[int, int, int, int, tuple[tuple[str, int], ...]]) -> None:
        _, submit, start, end, nodes = row
        job = Ended(submit / 1000, start / 1000, (end - start) / 1000, sum(count for _, count in nodes))
        ended[policy.name].append(job)  # type: ignore[attr-defined]

    with tempfile.TemporaryDirectory(prefix="tide-demo-") as folder:
        trace = Path(folder) / "burst.swf"
        write_swf(trace, wish)
        prepared = prepare(
            ReplayWish(
                trace=trace,
                policies=[read_policy(name) for name in POLICIES],
                machine=Machine(capacity=PROCS),
                options=TraceOptions(capacity=PROCS),
            )
        )
        replayed = list(run_replays(prepared, on_end=on_end))
    tell(ended, sum(one.figures["wall_s"] for one in replayed))
    return 0


def tell(ended: dict[str, list[Ended]], wall_s: float) -> None:
    first, second = (ended[name] for name in POLICIES)
    days = max(job.start_s for job in first) / 86_400
    print(f"{len(first):,} jobs of 60 people on {PROCS} processors, {days:.0f} days with four bursts of 12 times")
    print(f"the usual arrivals. Twice through the live loop, under two policies, in {wall_s:.1f} s:\n")
    rows = []
    for title, belongs in GROUPS:
        before, after = ([job for job in jobs if belongs(job)] for jobs in (first, second))
        if before:
            rows.append([title, f"{len(before):,}", *waits(before, after)])
    heads = ["mean wait of ...", "jobs", "first come", "tide", "shorter by"]
    show_table("What the people waiting notice", heads, rows)
    show_queue(first, second)
    longest = [max(job.wait_s for job in jobs) for jobs in (first, second)]
    print(f"Longest wait: {duration(longest[0])} under first come, {duration(longest[1])} under tide.")
    print("\nNext: `tide replay YOUR-TRACE --policy fcfs --policy tide`, `tide policy show tide`.")


def waits(before: Sequence[Ended], after: Sequence[Ended]) -> tuple[str, str, str]:
    old, new = mean(job.wait_s for job in before), mean(job.wait_s for job in after)
    return duration(old), duration(new), f"{1 - new / old:.0%}" if old else "-"


def show_queue(first: Sequence[Ended], second: Sequence[Ended]) -> None:
    """How many people's jobs wait, over time: the same scale for both."""
    end = max(job.start_s for job in (*first, *second))
    lines = [waiting(jobs, end) for jobs in (first, second)]
    top = max(max(line) for line in lines) or 1
    print(f"Jobs waiting over time (full height: {top:,.0f})\n")
    for name, line in zip(("first come", "tide"), lines, strict=True):
        for row in (1, 0):  # two rows of blocks a line: sixteen steps
            label = name if row == 0 else ""
            print(f"  {label:>10} ", end="")
            print("".join(block(value / top, row) for value in line))
        print()


def waiting(jobs: Sequence[Ended], end: float) -> list[float]:
    """The mean number waiting in each of COLUMNS equal spans."""
    span = end / COLUMNS
    sums = [0.0] * COLUMNS
    for job in jobs:
        at = int(job.submit_s / span)
        while at < COLUMNS and at * span < job.start_s:
            sums[at] += max(0.0, min(job.start_s, (at + 1) * span) - max(job.submit_s, at * span))
            at += 1
    return [total / span for total in sums]


def block(share: float, row: int) -> str:
    eighths = round(share * 16) - 8 * row
    blocks = BLOCKS if (sys.stdout.encoding or "").lower().startswith("utf") else PLAIN_BLOCKS
    return blocks[max(0, min(8, eighths))]
