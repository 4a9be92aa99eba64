"""What one client waits for its submit while others keep the server busy.

First on this machine, while another client pours in a hundred thousand jobs in batches and jobs run. Then on
ten thousand virtual nodes, all busy, where a hundred thousand jobs wait and hundreds end every second.
"""

import subprocess
import sys
from collections.abc import Callable
from time import monotonic, perf_counter

from bench.kit import Plan
from bench.live import TRUE, Client, Server, pause
from bench.rows import Bound, Pair, Row, compare

P99_MS_MAX = 50
BATCH = 1000
BETWEEN_S = 0.005
"""One client's submits come one after the other with a short rest: it wants answers, not load."""


def run(plan: Plan) -> list[Row]:
    return [burst(plan), virtual(plan)]


def burst(plan: Plan) -> Row:
    jobs = plan.pick(100_000, 3_000)
    pairs: list[Pair] = []
    for number in range(1, plan.pick(3, 1) + 1):
        with Server("--nodes", "1", "--cpus", "2", "--memory", "4G") as server:
            probe(server.client, lambda done: done < 20)
            command = [sys.executable, "-m", "bench.burst_child", f"{server.home}/tide.sock", str(jobs), str(BATCH)]
            with subprocess.Popen(command) as other:
                times = probe(server.client, lambda _: other.poll() is None)
            assert other.returncode == 0, "the burst came to an end by itself"
            status = server.client.status()
        pairs.append((p99(plan, times), P99_MS_MAX))
        plan.say(f"burst {number}: p99 {pairs[-1][0]:.1f} ms, most {max(times):.0f} ms of {len(times)} submits; "
                 f"{status['ended']:,} of {status['ended'] + status['waiting']:,} jobs ended meanwhile")  # fmt: skip
    note = f"while another client submits {jobs:,} jobs, {BATCH:,} a request, and jobs run"
    return compare("live/submit-p99-burst", "ms", pairs, "50 ms", Bound("at most", 1), note=note)


def virtual(plan: Plan) -> Row:
    nodes, waiting, lasts_s = plan.pick(10_000, 100), plan.pick(100_000, 1_000), plan.pick(10, 1)
    pairs: list[Pair] = []
    with Server("--engine", "virtual", "--nodes", str(nodes), "--cpus", "8", "--memory", "16G") as server:
        client = server.client
        while client.status()["waiting"] < waiting:
            client.ask("POST", "/v1/jobs/batch", {"jobs": [a_job(number) for number in range(BATCH)]})
        for number in plan.each_round():
            began = monotonic()
            ended = client.status()["ended"]
            times = probe(client, until(began + lasts_s))
            pairs.append((p99(plan, times), P99_MS_MAX))
            status = client.status()
            rate = (status["ended"] - ended) / (monotonic() - began)
            plan.say(f"virtual {number}: p99 {pairs[-1][0]:.1f} ms, most {max(times):.0f} ms of {len(times)}; "
                     f"{status['waiting']:,} wait, {status['running']:,} run, {rate:.0f} end a second")  # fmt: skip
    note = f"{nodes:,} virtual nodes of 8, at least {waiting:,} waiting"
    return compare("live/submit-p99-virtual", "ms", pairs, "50 ms", Bound("at most", 1), note=note)


def until(then: float) -> Callable[[int], bool]:
    return lambda _: monotonic() < then


def a_job(number: int) -> dict[str, object]:
    """Sizes and times of many kinds, so that ends never come in waves."""
    runs_ms = 20_000 + 1_000 * (number * 37 % 61)
    return {"command": ["work"], "cpus": (8, 4, 2)[number % 3], "time_ms": 2 * runs_ms, "expected_ms": runs_ms}


def probe(client: Client, go_on: Callable[[int], bool]) -> list[float]:
    """Milliseconds of each submit."""
    times: list[float] = []
    while go_on(len(times)):
        began = perf_counter()
        client.ask("POST", "/v1/jobs", TRUE)
        times.append((perf_counter() - began) * 1000)
        pause(BETWEEN_S)
    return times


def p99(plan: Plan, times: list[float]) -> float:
    assert len(times) >= plan.pick(20, 1), f"only {len(times)} submits in that time"
    return sorted(times)[len(times) * 99 // 100]
