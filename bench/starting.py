"""How long a client takes to say anything: `tide --help` against an interpreter that does nothing."""

import sys
from pathlib import Path

from bench.kit import TIDE, Plan, process
from bench.rows import Bound, Row, compare

HELP_MS_MAX = 150


def run(plan: Plan) -> list[Row]:
    script = Path(sys.executable).with_name("tide")
    tide = (str(script),) if script.exists() else TIDE
    commands = ((*tide, "--help"), (sys.executable, "-c", "pass"))
    for command in commands:
        process(command)  # byte code is written and files are read once before
    pairs = [(process(commands[0]).wall_s * 1000, process(commands[1]).wall_s * 1000) for _ in range(plan.pick(25, 5))]
    return [
        compare("start/help", "ms", pairs, "python -c pass", Bound("at most", 6)),
        compare("start/help-ms", "ms", [(ours, HELP_MS_MAX) for ours, _ in pairs], "150 ms", Bound("at most", 1)),
    ]
