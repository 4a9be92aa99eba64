"""Starting a job must not cost more in a server that holds much memory: a fork would copy its page tables.

The local engine is asked directly, in a process that holds 500 MiB more than it needs and in one that does not,
launch by launch in turns. What is timed is /bin/true, from the directive to the report of its end.
"""

import subprocess
import sys
from statistics import median

from bench.kit import Plan
from bench.rows import Bound, Pair, Row, compare

MIB = 500
WARM_UP = 20


class Host:
    def __init__(self, mib: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.spawn_child", str(mib)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self.resident_mib = self.answer()

    def answer(self) -> float:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the host of the engine ended with {self.process.wait()}")
        return float(line)

    def milliseconds(self) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        return self.answer()

    def close(self) -> None:
        """It cleans up when there is nothing more to read."""
        self.process.communicate()


def run(plan: Plan) -> list[Row]:
    launches = plan.pick(200, 20)
    pairs: list[Pair] = []
    large, small = Host(MIB), Host(0)
    try:
        assert large.resident_mib >= small.resident_mib + MIB * 0.9, "the memory is really held"
        for number in range(plan.rounds + 1):
            count = launches if number else WARM_UP
            times = [(large.milliseconds(), small.milliseconds()) for _ in range(count)]
            pairs.append((median(one for one, _ in times), median(other for _, other in times)))
            plan.say(f"round {number}: {pairs[-1][0]:.2f} ms with {MIB} MiB more, {pairs[-1][1]:.2f} ms without")
    finally:
        large.close()
        small.close()
    return [compare("live/spawn-500mib", "ms", pairs[1:], "ours without", Bound("at most", 1.3))]
