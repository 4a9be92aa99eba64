"""A restart costs what came since the last snapshot, however much was before: a million past jobs against a tenth.

Both journals end as far after their snapshot as the rule of the server allows. In seconds, the file opened, the state
folded, rows of the history that were missing found again. The second row is what a past job leaves on disk.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from time import perf_counter

from bench.kit import CPUS_PER_NODE, NODES, Plan, generated, replay
from bench.rows import Bound, Pair, Row, compare
from tidegate.journals.sqlite import SqliteJournal
from tidegate.loop.recovery import EVENTS_BETWEEN_SNAPSHOTS, keep_snapshot, recovered
from tidegate.world.apply import apply
from tidegate.world.world import World

LOAD = 0.7
MACHINE = ("--nodes", str(NODES), "--cpus-per-node", str(CPUS_PER_NODE))
SECONDS_MAX = 10
OCTETS_MAX = 2048


def run(plan: Plan) -> list[Row]:
    many, few = plan.pick(1_000_000, 20_000), plan.pick(100_000, 10_000)
    tail = plan.pick(EVENTS_BETWEEN_SNAPSHOTS, 20_000)
    times: list[Pair] = []
    with tempfile.TemporaryDirectory() as folder:
        large, small = (made(plan, Path(folder), jobs, tail) for jobs in (many, few))
        for number in plan.each_round():
            times.append((restarted(large, tail), restarted(small, tail)))
            plan.say(f"round {number}: {times[-1][0]:.2f} s and {times[-1][1]:.2f} s")
        octets = [(large.stat().st_size / many, float(OCTETS_MAX))]
    return [
        compare("restart/past", "s", times, f"ours after {few:,} jobs", Bound("at most", 1.5, 1.2)),
        compare("restart/seconds", "s", [(ours, SECONDS_MAX) for ours, _ in times], "10 s", Bound("at most", 1, 0.3)),
        compare("restart/disk", "octets/job", octets, "2 KiB", Bound("at most", 1)),
    ]


def made(plan: Plan, folder: Path, jobs: int, tail: int) -> Path:
    """A journal with its history, and a snapshot `tail` events before the end."""
    path = folder / f"{jobs}.db"
    replay(generated(folder, jobs, LOAD), *MACHINE, "--journal", str(path))
    with opened(path) as journal:
        recovered(journal)
        journal.settle()
    with opened(path) as journal:
        world = World()
        for event in islice(journal.read(), max(0, journal.seq - tail)):
            apply(world, event)
        keep_snapshot(journal, world)
        plan.say(f"{jobs:,} jobs are {journal.seq:,} events and {path.stat().st_size >> 20:,} MiB")
    return path


def restarted(path: Path, tail: int) -> float:
    began = perf_counter()
    with opened(path) as journal:
        done = recovered(journal)
        took = perf_counter() - began
    assert (done.folded, done.notes) == (tail, []), "the snapshot is used"
    return took


@contextmanager
def opened(path: Path) -> Iterator[SqliteJournal]:
    journal = SqliteJournal(path, history=True)
    try:
        yield journal
    finally:
        journal.close()
