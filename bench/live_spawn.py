"""Starting a job must not cost more in a server that holds much memory: a fork would copy its page tables.

The local engine is asked directly, in a process that holds 500 MiB more than it needs and in one that does not.
What is timed is from the directive to the report that the job runs.
"""

import sys

from bench.kit import Done, Plan, process
from bench.rows import Bound, Pair, Row, compare

MIB = 500


def run(plan: Plan) -> list[Row]:
    launches = plan.pick(200, 20)
    pairs: list[Pair] = []
    for number in plan.each_round():
        large, small = host(MIB, launches), host(0, launches)
        assert large.figures["resident_mib"] >= small.figures["resident_mib"] + MIB * 0.9, "the memory is really held"
        pairs.append((large.figures["ms"], small.figures["ms"]))
        plan.say(f"round {number}: {pairs[-1][0]:.2f} ms with {MIB} MiB more, {pairs[-1][1]:.2f} ms without")
    return [compare("live/spawn-500mib", "ms", pairs, "ours without", Bound("at most", 1.3))]


def host(mib: int, launches: int) -> Done:
    return process([sys.executable, "-m", "bench.spawn_child", str(mib), str(launches)])
