"""`tide queue` with ten thousand jobs, the whole process, against an interpreter that does nothing."""

import sys
from pathlib import Path

from bench.kit import TIDE, Plan, process
from bench.live import DRAIN, TRUE, Server
from bench.rows import Bound, Row, compare


def run(plan: Plan) -> list[Row]:
    jobs = plan.pick(10_000, 500)
    script = Path(sys.executable).with_name("tide")
    tide = (str(script),) if script.exists() else TIDE
    with Server("--nodes", "1", "--cpus", "2", "--memory", "4G") as server:
        server.client.nodes(DRAIN)
        server.client.submit_many(TRUE, jobs)
        commands = ((*tide, "queue", "--home", str(server.home)), (sys.executable, "-c", "pass"))
        lines = process(commands[0]).out.count("\n")
        assert lines >= jobs, f"{lines} lines for {jobs} jobs"
        pairs = [(process(commands[0]).wall_s * 1000, process(commands[1]).wall_s * 1000)
                 for _ in range(plan.pick(15, 3))]  # fmt: skip
    return [compare("live/queue-10k", "ms", pairs, "python -c pass", Bound("at most", 5))]
