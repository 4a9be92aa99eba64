"""`tide lab`: how well the tide is told, and what a policy with a tide is worth against its own modes."""

import json
import sys
from pathlib import Path
from typing import Any

from tidegate.cli.failure import FailureError, UsageError
from tidegate.cli.options import Options
from tidegate.cli.table import duration, show_table

SEEDS_MAX = 1000
WAITS = (
    ("critical", "critical_wait_mean_s"), ("small", "small_wait_mean_s"),
    ("critical, never shut out", "critical_spared_wait_mean_s"), ("small, never shut out", "small_spared_wait_mean_s"),
    ("all", "wait_mean_s"),
)  # fmt: skip


def lab(options: Options) -> int:
    from tidegate.app.trials import PolicyError, TraceError

    what, *words = options.words
    if what not in {"detect", "modes"} or len(words) != 1:
        raise UsageError("tide lab: write detect COUNTS.csv, or modes POLICY")
    try:
        return detect(options, Path(words[0])) if what == "detect" else modes(options, words[0])
    except (PolicyError, TraceError, OSError) as error:
        raise FailureError(str(error)) from error


def detect(options: Options, counts: Path) -> int:
    from tidegate.app import trials

    policy = trials.read_policy(options.policy) if options.policy else None
    found = trials.detect(counts, options.column, policy, options.seed)
    if options.json:
        return _json(found)
    real, quiet = found["labelled"], found["quiet"]
    show_table(
        f"{counts.name}, {options.column}: {found['arrivals']:,} arrivals in {found['weeks']:.1f} weeks",
        ["a week", "bursts", "alarms", "false", "bursts found"],
        [
            ["as recorded, against labels", f"{real['bursts_a_week']:.2f}", f"{real['alarms_a_week']:.2f}",
             f"{real['false_alarms_a_week']:.2f}", f"{real['found_part']:.0%}"],
            ["without what is labelled", "0", f"{quiet['false_alarms_a_week']:.2f}",
             f"{quiet['false_alarms_a_week']:.2f}", ""],
        ],
    )  # fmt: skip
    rows = [
        [name, f"{row['found']} of {row['bursts']}", _late(row["rising_delay_median_s"]),
         _late(row["rising_delay_p90_s"]), _late(row["surge_delay_median_s"]), _late(row["surge_delay_p90_s"])]
        for name, row in found["put_in"].items()
    ]  # fmt: skip
    show_table(
        "bursts of an hour put in, so many times the usual: how long until they were told",
        ["", "found", "rising: median", "90 % within", "surge: median", "90 % within"],
        rows,
    )
    return 0


def _late(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)


def modes(options: Options, name: str) -> int:
    from tidegate.app import trials

    if options.seeds > SEEDS_MAX:
        raise UsageError(f"tide lab modes: at most {SEEDS_MAX} seeds")
    found = list(trials.try_modes(trials.read_policy(name), options.seeds))
    if options.json:
        return _json([{"seed": seed, **row} for seed, row in found])
    rows = [_waits(str(seed), row) for seed, row in found]
    for mode in dict.fromkeys(row["mode"] for _, row in found):
        of_mode = [row for _, row in found if row["mode"] == mode]
        mean = {key: sum(row[key] for row in of_mode) / len(of_mode) for _, key in WAITS}
        shut = sum(row["never_let_in"] for row in of_mode)
        rows.append(_waits("mean", {**mean, "mode": mode, "never_let_in": shut}))
    heads = ["seed", "mode", *(title for title, _ in WAITS), "never let in"]
    show_table(f"{name}: mean waits on bursts from the generator", heads, rows, left=(0, 1))
    return 0


def _waits(seed: str, row: dict[str, Any]) -> list[str]:
    return [seed, row["mode"], *(duration(row[key]) for _, key in WAITS), f"{row['never_let_in']:,}"]


def _json(value: Any) -> int:
    json.dump(value, sys.stdout, indent=2)
    print()
    return 0
