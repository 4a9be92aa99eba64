"""How fast the queue drains must not depend on its length.

Two servers, one with a hundred times as many jobs waiting. In turns each is let go until as many jobs have ended.
"""

from time import monotonic

from bench.kit import Plan
from bench.live import DRAIN, RESUME, TRUE, Server
from bench.rows import Bound, Pair, Row, compare

MACHINE = ("--nodes", "1", "--cpus", "2", "--memory", "4G")


def run(plan: Plan) -> list[Row]:
    short = plan.pick(1000, 100)
    many = 100 * short
    pairs: list[Pair] = []
    with Server(*MACHINE) as large, Server(*MACHINE) as small:
        for server in (large, small):
            jobs_a_second(server, short)
        large.client.submit_many(TRUE, many)
        for number in plan.each_round():
            pairs.append((jobs_a_second(large, short), jobs_a_second(small, short)))
            left = large.client.status()["waiting"]
            assert left >= many - short, f"{left} wait"
            plan.say(f"round {number}: {left:,} waiting {pairs[-1][0]:.0f}/s, {short:,} waiting {pairs[-1][1]:.0f}/s")
    return [compare("live/drain-100k", "jobs/s", pairs, f"ours, {short:,} queued", Bound("at least", 0.9))]


def jobs_a_second(server: Server, jobs: int) -> float:
    """Submits as many as are going to end, so the queue is as long after as before."""
    client = server.client
    client.nodes(DRAIN)
    client.submit_many(TRUE, jobs)
    client.wait(lambda status: status["running"] == 0)
    done = client.status()["ended"] + jobs
    began = monotonic()
    client.nodes(RESUME)
    took = client.wait(lambda status: status["ended"] >= done) - began
    client.nodes(DRAIN)
    return jobs / took
