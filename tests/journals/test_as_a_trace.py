"""A journal that was pruned is still a trace of what is left, on the nodes that a snapshot tells of."""

from pathlib import Path

from tests.journals.kit import ONE_CPU
from tidegate.app.replay import Machine, ReplayWish, prepare
from tidegate.core.accept import accept
from tidegate.core.decide import decide
from tidegate.core.memo import Memo
from tidegate.journals.pruning import Keep, Pruner
from tidegate.journals.sqlite import SqliteJournal
from tidegate.loop.history import apply_and_record
from tidegate.loop.recovery import keep_snapshot, recover
from tidegate.model import events as ev
from tidegate.model.commands import ChangePolicy, Command, Refused, SetNode, Submit
from tidegate.model.jobs import JobSpec, Outcome, amounts
from tidegate.model.nodes import Node
from tidegate.model.policy import PolicySpec
from tidegate.world.world import World

JOBS = 40


def ran(journal: SqliteJournal, world: World, at: int, *commands: Command) -> None:
    """Takes the commands; what then starts has ended a millisecond later."""
    events: list[ev.Event] = []
    for command in commands:
        answer = accept(world, command, at)
        assert not isinstance(answer, Refused)
        commit(journal, world, *answer)
    plan = decide(world, Memo(), at)
    commit(journal, world, plan.cycle, *plan.starts)
    events.extend(ev.JobEnded(at + 1, start.task, 1, Outcome.COMPLETED) for start in plan.starts)
    commit(journal, world, *events)
    journal.flush()


def commit(journal: SqliteJournal, world: World, *events: ev.Event) -> None:
    journal.append(events)
    apply_and_record(world, events, journal)


def test_what_is_left_is_a_workload(tmp_path: Path):
    journal, world = SqliteJournal(tmp_path / "journal.db", history=True), World()
    ran(journal, world, 0, ChangePolicy(PolicySpec("p")), SetNode(Node("n0", "default", amounts(cpus=4000))))
    for number in range(1, JOBS + 1):
        ran(journal, world, number * 10, Submit(JobSpec("ann", ONE_CPU, 1000, pool="default")))
        if number % 10 == 0:
            journal.settle()
            keep_snapshot(journal, world)
    whole = prepare(ReplayWish(trace=journal.path, policies=[], machine=Machine()))
    assert (len(whole.workload), [node.name for node in whole.nodes]) == (JOBS, ["n0"])
    while Pruner(journal, Keep(events_ms=0)).prune(1000):
        pass
    assert journal.pruned
    left = prepare(ReplayWish(trace=journal.path, policies=[], machine=Machine()))
    assert (len(left.workload), [node.name for node in left.nodes]) == (10, ["n0"])
    assert recover(journal).full_digest() == world.full_digest()
