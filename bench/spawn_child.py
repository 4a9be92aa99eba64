"""How long the engine takes for /bin/true, in a process that holds much memory: `python -m bench.spawn_child MIB`."""

import os
import pwd
import select
import sys
import tempfile
from pathlib import Path
from time import monotonic, perf_counter, time_ns

from bench.live import end, memory_kib
from tidegate.engines.local.engine import LocalEngine
from tidegate.engines.local.nodes import declare
from tidegate.model.base import task_key
from tidegate.model.engine import Ended, Inventory, Launch
from tidegate.model.jobs import CPUS, Job, JobSpec, Outcome, Shape, Work, amounts

HOUR_MS = 3_600_000
WAIT_S_MAX = 30


class Host:
    """What a server is to its engine."""

    def __init__(self, home: Path) -> None:
        machine = declare(1, 2, 4096)
        self.node = machine.nodes[0].name
        self.engine = LocalEngine(home, machine.nodes, machine.devices)
        self.user = pwd.getpwuid(os.getuid()).pw_name

    def until_up(self) -> None:
        """Its first inventory says that the keeper is there."""
        give_up = monotonic() + WAIT_S_MAX
        while not any(isinstance(report, Inventory) for report in self.engine.reports(time_ns() // 1_000_000)):
            if monotonic() > give_up:
                raise RuntimeError(f"no keeper within {WAIT_S_MAX} s: {self.engine.notes()}")
            select.select([self.engine.fileno()], [], [], 0.05)

    def hear_end(self, task: int) -> None:
        give_up = monotonic() + WAIT_S_MAX
        while monotonic() < give_up:
            for report in self.engine.reports(time_ns() // 1_000_000):
                if isinstance(report, Ended) and report.task == task:
                    assert report.outcome is Outcome.COMPLETED, report
                    return
            select.select([self.engine.fileno()], [], [], 0.05)
        raise RuntimeError(f"task {task} did not end within {WAIT_S_MAX} s: {self.engine.notes()}")

    def milliseconds(self, number: int) -> float:
        """From the directive to the report of its end. The engine holds back that it runs, for jobs as short."""
        work = Work(("/bin/true",), stdout="/dev/null")
        spec = JobSpec(self.user, Shape(amounts(**{CPUS: 1000})), HOUR_MS, work=work)
        task = task_key(number)
        launch = Launch(task, 1, Job(number, 0, HOUR_MS, "main", spec), ((self.node, 1),))
        began = perf_counter()
        self.engine.deliver([launch], time_ns() // 1_000_000)
        self.hear_end(task)
        return (perf_counter() - began) * 1000


def main() -> None:
    """For every line it is sent, one launch: the answer is the milliseconds it took."""
    ballast = b"\xff" * (int(sys.argv[1]) << 20)
    with tempfile.TemporaryDirectory(prefix="tide-bench-") as folder:
        host = Host(Path(folder))
        host.until_up()
        keeper = int((Path(folder) / "keeper" / "lock").read_text().split()[0])
        print(memory_kib(os.getpid(), "Rss") // 1024, flush=True)
        try:
            for number, _ in enumerate(sys.stdin, 1):
                print(host.milliseconds(number), flush=True)
        finally:
            host.engine.close(stop=True)
            end(keeper)
    del ballast


if __name__ == "__main__":
    main()
