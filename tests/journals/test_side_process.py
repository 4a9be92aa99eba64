"""A snapshot is made by another process while the writer writes, and a restart begins with it."""

import subprocess
import sys
from pathlib import Path

from tests.journals.test_as_a_trace import ran
from tests.kit.deep import deep, difference, without_traces
from tidegate.journals.sqlite import SqliteJournal
from tidegate.loop.recovery import recover, recovered
from tidegate.model.commands import ChangePolicy, SetNode, Submit
from tidegate.model.jobs import JobSpec, Shape, amounts
from tidegate.model.nodes import Node
from tidegate.model.policy import PolicySpec
from tidegate.world.world import World

WIDE = Shape(amounts(cpus=3000))


def test_the_writer_need_not_wait(tmp_path: Path):
    journal, world = SqliteJournal(tmp_path / "journal.db", history=True), World()
    ran(journal, world, 0, ChangePolicy(PolicySpec("p")), SetNode(Node("n0", "default", amounts(cpus=4000))))
    submit = Submit(JobSpec("ann", WIDE, 1000, pool="default"))
    ran(journal, world, 1, *[submit] * 50)
    maker = subprocess.Popen([sys.executable, "-m", "tidegate.app.keeping", str(journal.path)])
    turn = 2
    while maker.poll() is None:
        ran(journal, world, turn, submit)
        turn += 1
    assert maker.returncode == 0
    ran(journal, world, turn, submit)
    journal.settle()
    found = recovered(journal)
    assert 0 < found.snapshot < world.seq
    assert (found.snapshot + found.folded, found.notes) == (world.seq, [])
    live = without_traces(deep(world))
    assert not difference(live, without_traces(deep(found.world)))
    assert not difference(live, without_traces(deep(recover(SqliteJournal(journal.path, readonly=True)))))
