"""Runs the benchmarks, each in a process of its own, one after the other; prints one table.

The exit code is 1 when a bound is missed in a full run. A smoke run shows that everything runs: it is too short
to judge by, so it only reports.
"""

import argparse
import importlib.util
import json
import os
import platform
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from bench.benches import BENCHES, apart
from bench.kit import Plan
from bench.rows import Row, table


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    names = options.only or list(BENCHES)
    print(f"bench: {machine()}", file=sys.stderr)
    rows: list[Row] = []
    broken: list[str] = []
    for name in names:
        try:
            rows.extend(apart(Plan(name=name, smoke=options.smoke)))
        except Exception:  # noqa: BLE001 - whatever it was, what the others measured is told
            traceback.print_exc()
            broken.append(name)
    print(table(rows))
    if options.json:
        objects = [{**row.as_json(), "smoke": options.smoke, "kernel": kernel()} for row in rows]
        options.json.write_text(json.dumps(objects, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    missed = [row.name for row in rows if row.met is False]
    absent = [row.name for row in rows if row.ratio is None]
    if absent:
        print(f"bench: SKIPPED, not measured: {', '.join(absent)}", file=sys.stderr)
    if broken:
        print(f"bench: BROKEN: {', '.join(broken)}", file=sys.stderr)
        return 1
    if missed and options.smoke:
        print(f"bench: too short a run to judge by; outside its bound: {', '.join(missed)}", file=sys.stderr)
    elif missed:
        print(f"bench: MISSED: {', '.join(missed)}", file=sys.stderr)
        return 1
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Tidegate against its rivals.")
    parser.add_argument("--smoke", action="store_true", help="short: shows that everything runs, judges nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--only", action="append", choices=BENCHES, metavar="NAME",
                        help=f"only this one; may be repeated: {', '.join(BENCHES)}")  # fmt: skip
    return parser.parse_args(argv)


def kernel() -> str:
    spec = importlib.util.find_spec("tidegate.core.decide")
    return "pure" if spec is None or str(spec.origin).endswith(".py") else "compiled"


def machine() -> str:
    load = os.getloadavg()[0]
    return f"Python {platform.python_version()}, {kernel()} kernel, {os.cpu_count()} cores, load {load:.1f}"


if __name__ == "__main__":
    sys.exit(main())
