"""An idle server and its keeper, after they have run something, in memory."""

from bench.kit import Plan
from bench.live import TRUE, Server, memory_kib, pause
from bench.rows import Bound, Pair, Row, compare

MIB_MAX = 80
SETTLE_S = 2


def run(plan: Plan) -> list[Row]:
    resident: list[Pair] = []
    shared: list[Pair] = []
    parts: list[str] = []
    for _ in range(plan.pick(3, 1)):
        with Server() as server:
            server.client.submit_many(TRUE, 10)
            server.client.wait(lambda status: status["ended"] == 10)
            pause(plan.pick(SETTLE_S, 0))
            pids = server.pids()
            of_each = [memory_kib(pid, "Rss") / 1024 for pid in pids]
            parts = [f"{mib:.0f}" for mib in of_each]
            resident.append((sum(of_each), MIB_MAX))
            shared.append((sum(memory_kib(pid, "Pss") for pid in pids) / 1024, MIB_MAX))
    note = f"resident memory of each process added up, in MiB: {' + '.join(parts)}"
    return [
        compare("live/idle-memory", "MiB", resident, "80 MiB", Bound("at most", 1), note=note),
        compare("live/idle-memory-pss", "MiB", shared, "80 MiB", note="what processes share is counted once"),
    ]
