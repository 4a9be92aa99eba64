"""An array is one wish: durable in the time of a few single submits, and small while it waits."""

import gc
from statistics import median
from time import perf_counter

from bench.kit import Plan
from bench.live import DRAIN, TRUE, Client, Server, memory_kib
from bench.rows import Bound, Pair, Row, compare

OCTETS_MAX = 256
ARRAYS = 20


def run(plan: Plan) -> list[Row]:
    tasks, singles = plan.pick(10_000, 1_000), plan.pick(100, 10)
    times: list[Pair] = []
    with Server("--nodes", "1", "--cpus", "2", "--memory", "4G") as server:
        client = server.client
        client.nodes(DRAIN)
        for number in plan.each_round():
            single = median(milliseconds(client, "") for _ in range(singles))
            array = milliseconds(client, f"0-{tasks - 1}")
            times.append((array, single))
            plan.say(f"round {number}: an array of {tasks:,} {array:.1f} ms, one job {single:.2f} ms")
    arrays = [held(plan, tasks, ARRAYS) for _ in range(plan.pick(2, 1))]
    jobs = [held(plan, 0, plan.pick(100_000, 2_000)) for _ in range(plan.pick(2, 1))]
    return [
        compare("live/array-10000", "ms", times, "one single submit", Bound("at most", 20)),
        compare("live/queued-bytes", "octets", arrays, "0.25 KiB", Bound("at most", 1),
                note=f"a task of {ARRAYS} arrays, by the growth of the server's memory"),
        compare("live/queued-bytes-single", "octets", jobs, "0.25 KiB", note="a job of its own"),
    ]  # fmt: skip


def milliseconds(client: Client, array: str) -> float:
    began = perf_counter()
    client.ask("POST", "/v1/jobs", {**TRUE, "array": array})
    return (perf_counter() - began) * 1000


def held(plan: Plan, tasks: int, count: int) -> Pair:
    """Octets of memory for each task that waits."""
    with Server("--nodes", "1", "--cpus", "2", "--memory", "4G") as server:
        client = server.client
        client.nodes(DRAIN)
        body = {**TRUE, "array": f"0-{tasks - 1}"} if tasks else TRUE
        client.submit_many(body, 2, 1)  # what the first ones need is there
        before = memory_kib(server.process.pid, "Rss")
        client.submit_many(body, count, 1 if tasks else 1000)
        after = memory_kib(server.process.pid, "Rss")
        each = (after - before) * 1024 / (count * max(1, tasks))
        plan.say(f"{count:,} x {max(1, tasks):,} waiting: {each:.0f} octets each, {after / 1024:.0f} MiB in all")
    gc.collect()
    return each, OCTETS_MAX
