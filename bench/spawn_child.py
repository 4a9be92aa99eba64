"""How soon the engine reports a launch, in a process that holds much memory: `python -m bench.spawn_child MIB N`."""

import json
import os
import pwd
import select
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter, time_ns

from bench.live import end, memory_kib
from tidegate.engines.local.engine import LocalEngine
from tidegate.engines.local.nodes import declare
from tidegate.model.base import task_key
from tidegate.model.engine import Ended, Halt, Inventory, Launch, Launched, Report
from tidegate.model.jobs import CPUS, Job, JobSpec, Outcome, Shape, Work, amounts

HOUR_MS = 3_600_000
WAIT_S_MAX = 30
WARM_UP = 20


class Host:
    """What a server is to its engine."""

    def __init__(self, home: Path) -> None:
        machine = declare(1, 2, 4096)
        self.node = machine.nodes[0].name
        self.engine = LocalEngine(home, machine.nodes, machine.devices)
        self.user = pwd.getpwuid(os.getuid()).pw_name
        self.unheard: list[tuple[type[Report], int]] = []

    def until_up(self) -> None:
        """Its first inventory says that the keeper is there."""
        give_up = monotonic() + WAIT_S_MAX
        while not any(isinstance(report, Inventory) for report in self.engine.reports(time_ns() // 1_000_000)):
            if monotonic() > give_up:
                raise RuntimeError(f"no keeper within {WAIT_S_MAX} s: {self.engine.notes()}")
            select.select([self.engine.fileno()], [], [], 0.05)

    def hear(self, wanted: type[Report], task: int) -> float:
        """When it was heard."""
        give_up = monotonic() + WAIT_S_MAX
        while monotonic() < give_up:
            reports = self.engine.reports(time_ns() // 1_000_000)
            self.unheard += [(type(report), report.task) for report in reports if isinstance(report, Launched | Ended)]
            if (wanted, task) in self.unheard:
                self.unheard.remove((wanted, task))
                return perf_counter()
            select.select([self.engine.fileno()], [], [], 0.05)
        raise RuntimeError(f"no {wanted.__name__} of task {task} within {WAIT_S_MAX} s: {self.engine.notes()}")

    def milliseconds(self, number: int) -> float:
        """From the directive to the report that it runs."""
        work = Work(("/bin/sleep", "60"), stdout="/dev/null")
        spec = JobSpec(self.user, Shape(amounts(**{CPUS: 1000})), HOUR_MS, work=work)
        task = task_key(number)
        launch = Launch(task, 1, Job(number, 0, HOUR_MS, "main", spec), ((self.node, 1),))
        began = perf_counter()
        self.engine.deliver([launch], time_ns() // 1_000_000)
        took = self.hear(Launched, task) - began
        self.engine.deliver([Halt(task, 1, Outcome.CANCELLED)], time_ns() // 1_000_000)
        self.hear(Ended, task)
        return took * 1000


def main() -> None:
    mib, launches = int(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="tide-bench-") as folder:
        ballast = b"\xff" * (mib << 20)
        host = Host(Path(folder))
        host.until_up()
        keeper = int((Path(folder) / "keeper" / "lock").read_text().split()[0])
        try:
            times = [host.milliseconds(number) for number in range(1, WARM_UP + launches + 1)][WARM_UP:]
        finally:
            host.engine.close(stop=True)
            end(keeper)
    assert len(ballast) == mib << 20
    print(json.dumps({"ms": median(times), "resident_mib": memory_kib(os.getpid(), "Rss") / 1024}))


if __name__ == "__main__":
    main()
