"""What passes between the kernel and an engine about one attempt: what is told, what is asked for, what is no news."""

import pytest

from tidegate.core.accept import accept
from tidegate.core.decide import decide
from tidegate.core.directives import directives
from tidegate.core.due import due, next_due
from tidegate.core.memo import Memo
from tidegate.core.reconcile import reconcile
from tidegate.model import events as ev
from tidegate.model.commands import (
    AskCheckpoint,
    Cancel,
    ChangePolicy,
    Command,
    Hold,
    Refused,
    Requeue,
    SetNode,
    SetNodeState,
    Submit,
)
from tidegate.model.engine import (
    Ask,
    Ended,
    Halt,
    Launch,
    Launched,
    LaunchRefused,
    NodeLost,
    NodeSeen,
    Notified,
    Notify,
    Report,
    Saved,
)
from tidegate.model.jobs import Array, Checkpoint, JobSpec, Outcome, Retry, Shape, Used, Work, amounts
from tidegate.model.nodes import Node, NodeState
from tidegate.model.policy import JobClass, PolicySpec, Preempt
from tidegate.world.apply import apply
from tidegate.world.check import check
from tidegate.world.world import World

WORK = Work(("true",), env="e1", grace_ms=7000, notify="mail")
SPEC = JobSpec("ann", Shape(amounts(cpus=1000)), 60_000, work=WORK)
ENV = (("HOME", "/tmp"),)
TASK = 1 << 20
NODES = [Node(name, "p", amounts(cpus=4000)) for name in ("a", "b")]


class Cluster:
    def __init__(self) -> None:
        self.world = World()
        self.now = 0
        for node in NODES:
            self.tell(SetNode(node))

    def tell(self, command: Command) -> tuple[ev.Event, ...]:
        answer = accept(self.world, command, self.now)
        assert not isinstance(answer, Refused), answer
        return self.fold(answer)

    def report(self, report: Report) -> tuple[ev.Event, ...]:
        return self.fold(reconcile(self.world, report, self.now))

    def fold(self, events: tuple[ev.Event, ...]) -> tuple[ev.Event, ...]:
        for event in events:
            apply(self.world, event)
        assert check(self.world) == []
        return events

    def start(self) -> None:
        plan = decide(self.world, Memo(), self.now)
        self.fold((plan.cycle, *plan.starts))

    def refused(self, command: Command) -> str:
        answer = accept(self.world, command, self.now)
        assert isinstance(answer, Refused), answer
        return answer.what


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def running(cluster: Cluster) -> Cluster:
    cluster.tell(Submit(SPEC, env=ENV))
    cluster.start()
    return cluster


def test_a_launch_carries_the_environment(running: Cluster):
    (launch,) = directives(running.world)
    assert isinstance(launch, Launch)
    assert launch.env == ENV


def test_an_environment_is_kept_while_a_job_or_a_notice_names_it(running: Cluster):
    kept = running.tell(Submit(SPEC))
    assert not any(isinstance(event, ev.EnvironmentKept) for event in kept)
    running.tell(Cancel(2))
    running.report(Ended(TASK, 1, Outcome.COMPLETED))
    notify = Notify(running.world.notices[1].job, Outcome.COMPLETED, ENV)
    assert notify in directives(running.world)
    running.report(Notified(2))
    assert running.world.environments == {"e1": ENV}
    running.report(Notified(1))
    assert running.world.environments == {}
    assert running.report(Notified(1)) == ()
    assert directives(running.world) == []


def test_an_environment_that_is_brought_twice_is_kept_once(running: Cluster):
    assert len(running.tell(Submit(SPEC, env=ENV))) == 1


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (Submit(SPEC), "'e1' is not known"),
        (Submit(JobSpec("ann", SPEC.shape, 60_000), env=ENV), "without a name"),
        (Submit(SPEC, env=(("B", ""), ("A", ""))), "not in order"),
        (Submit(JobSpec("ann", SPEC.shape, 60_000, retry=Retry(1001))), "retries"),
        (Submit(JobSpec("ann", SPEC.shape, 60_000, retry=Retry(1, backoff_ms=-1))), "back-off"),
        (Submit(JobSpec("ann", SPEC.shape, 60_000, losses_max=1001)), "retries"),
        (Requeue(9), "no live job"),
        (AskCheckpoint(9), "no live job"),
        (Submit(JobSpec("ann", SPEC.shape, 60_000, checkpoint=Checkpoint(), starts_over=True)), "and that it cannot"),
        (Submit(JobSpec("ann", SPEC.shape, 60_000, checkpoint=Checkpoint(65))), "no signal 65"),
        (Submit(JobSpec("ann", SPEC.shape, 60_000, checkpoint=Checkpoint(every_ms=-1))), "out of range"),
    ],
)
def test_refusals(cluster: Cluster, command: Command, part: str):
    assert part in cluster.refused(command)


def test_how_it_ended_is_told_in_full(running: Cluster):
    used = Used(cpu_ms=5, peak_kib=6)
    (over, *_) = running.report(Ended(TASK, 1, Outcome.FAILED, 0, 9, used, "killed by hand"))
    assert over == ev.JobEnded(0, TASK, 1, Outcome.FAILED, 0, "killed by hand", 9, used, True)


def test_a_failed_attempt_is_told_in_full(cluster: Cluster):
    cluster.tell(Submit(JobSpec("ann", SPEC.shape, 60_000, retry=Retry(1))))
    cluster.start()
    used = Used(cpu_ms=5)
    (over, *_) = cluster.report(Ended(TASK, 1, Outcome.FAILED, 3, 0, used, "no luck"))
    assert over == ev.AttemptFailed(0, TASK, 1, Outcome.FAILED, 1000, 3, 0, used, "no luck", True)
    assert next_due(cluster.world) == 1000
    assert due(cluster.world, 999) == ()
    cluster.now = 1000
    cluster.fold(due(cluster.world, 1000))
    cluster.start()
    assert cluster.world.runs[TASK].attempt == 2


def test_a_halt_carries_the_grace_of_the_job_and_a_stray_gets_none(running: Cluster):
    running.tell(Cancel(1))
    running.report(Launched(TASK + 5, 3))
    halts = [directive for directive in directives(running.world) if isinstance(directive, Halt)]
    assert halts == [Halt(TASK, 1, Outcome.CANCELLED, 7000), Halt(TASK + 5, 3, Outcome.LOST)]


def test_a_requeue_is_halted_once_and_a_cancel_after_it_for_good(running: Cluster):
    (halt,) = running.tell(Requeue(1, by="ann"))
    assert halt == ev.HaltRequested(0, TASK, 1, Outcome.CANCELLED, "requeued by ann", True)
    assert running.tell(Requeue(1)) == ()
    at = running.world.seq
    (halt,) = running.tell(Cancel(1))
    assert isinstance(halt, ev.HaltRequested)
    assert not halt.again
    assert len(directives(running.world, at)) == 1
    assert "being cancelled" in running.refused(Requeue(1))
    (over,) = running.report(Ended(TASK, 1, Outcome.CANCELLED))
    assert isinstance(over, ev.JobEnded)


def test_a_requeue_of_what_waits_has_nothing_to_do(cluster: Cluster):
    cluster.tell(Submit(JobSpec("ann", SPEC.shape, 60_000, held=True)))
    cluster.tell(Submit(JobSpec("ann", SPEC.shape, 60_000, held=True, array=Array((3, 4)))))
    assert cluster.tell(Requeue(1)) == ()
    assert cluster.tell(Requeue(2)) == ()
    assert cluster.tell(Requeue(2, 4)) == ()
    assert "not live" in cluster.refused(Requeue(2, 5))


def test_what_is_over_is_no_news(running: Cluster):
    running.report(LaunchRefused(TASK, 1, "no shell"))
    assert running.world.tries[TASK].lost == 1
    running.start()
    for report in (LaunchRefused(TASK, 1, "no shell"), Ended(TASK, 1, Outcome.LOST), Ended(TASK, 1, Outcome.FAILED, 1)):
        assert running.report(report) == ()
    assert running.world.runs[TASK].attempt == 2


def test_every_single_task_can_be_cancelled_in_any_order(cluster: Cluster):
    cluster.tell(Submit(JobSpec("ann", SPEC.shape, 60_000, held=True, array=Array(tuple(range(0, 60, 3))))))
    for index in (57, 0, 6, 3, *range(9, 57, 3)):
        assert cluster.tell(Cancel(1, index)) == (ev.JobEnded(0, TASK + index, 0, Outcome.CANCELLED, 0, "cancelled"),)
        if 1 in cluster.world.jobs:
            assert "not live" in cluster.refused(Cancel(1, index))
    assert cluster.world.jobs == {}


# -- suspected nodes ---------------------------------------------------------------------------------------


def suspect(cluster: Cluster) -> None:
    """Three jobs in a row fail on the first node."""
    for _ in range(3):
        cluster.tell(Submit(JobSpec("ann", SPEC.shape, 60_000)))
        cluster.start()
        ((task, run),) = cluster.world.runs.items()
        cluster.report(Ended(task, run.attempt, Outcome.FAILED, 1))
    assert cluster.world.nodes["a"].state is NodeState.DRAINED


def test_a_suspected_node_that_went_down_comes_back_as_it_was(cluster: Cluster):
    suspect(cluster)
    why = cluster.world.nodes["a"].why
    cluster.report(NodeLost("a", "no answer"))
    cluster.report(NodeSeen(NODES[0]))
    assert (cluster.world.nodes["a"].state, cluster.world.nodes["a"].why) == (NodeState.DRAINED, why)
    cluster.report(NodeLost("a", "no answer"))
    cluster.now = cluster.world.suspects["a"].until
    assert next_due(cluster.world) == cluster.now
    cluster.fold(due(cluster.world, cluster.now))
    assert next_due(cluster.world) is None
    assert cluster.world.nodes["a"].state is NodeState.DOWN
    cluster.report(NodeSeen(NODES[0]))
    assert (cluster.world.nodes["a"].state, cluster.world.suspects["a"].tried) == (NodeState.UP, True)
    assert cluster.report(NodeSeen(NODES[0])) == ()


@pytest.mark.parametrize("state", list(NodeState))
def test_an_operator_ends_every_suspicion(cluster: Cluster, state: NodeState):
    suspect(cluster)
    cluster.tell(SetNodeState("a", state, "by hand"))
    assert not cluster.world.suspects
    assert not cluster.world.marks
    assert next_due(cluster.world) is None
    assert cluster.world.nodes["a"].why == "by hand"


def test_a_hold_reaches_a_job_in_its_back_off(cluster: Cluster):
    cluster.tell(Submit(JobSpec("ann", SPEC.shape, 60_000, retry=Retry(1))))
    cluster.start()
    cluster.report(Ended(TASK, 1, Outcome.FAILED, 1))
    cluster.tell(Hold(1))
    cluster.now = 5000
    cluster.fold(due(cluster.world, 5000))
    assert 1 in cluster.world.parked


ABLE = JobSpec("ann", SPEC.shape, 60_000, work=Work(("true",), grace_ms=7000), checkpoint=Checkpoint(every_ms=50_000))


@pytest.fixture
def able(cluster: Cluster) -> Cluster:
    cluster.tell(Submit(ABLE))
    assert "nothing of job 1 runs" in cluster.refused(AskCheckpoint(1))
    cluster.start()
    assert "starting" in cluster.refused(AskCheckpoint(1))
    cluster.report(Launched(TASK, 1))
    return cluster


def test_it_is_asked_when_somebody_wants_it_and_not_twice_at_once(able: Cluster):
    assert able.tell(AskCheckpoint(1)) == (ev.CheckpointAsked(0, TASK, 1, 1, 50_000),)
    assert able.tell(AskCheckpoint(1)) == ()
    assert Ask(TASK, 1, 1) in directives(able.world)
    able.report(Saved(TASK, 1, 1, 10, 3))
    assert able.world.saves[TASK].size_mib == 3
    assert directives(able.world) == []
    able.now = 20
    assert able.tell(AskCheckpoint(1, by="ann")) == (ev.CheckpointAsked(20, TASK, 1, 2, 50_020),)
    able.report(Saved(TASK, 1, 0, 30, 4))  # of its own accord: what it was asked is not answered
    assert (able.world.saves[TASK].is_open, able.world.saves[TASK].kept_ms) == (True, 30)


def test_a_job_that_cannot_is_not_asked(running: Cluster):
    running.report(Launched(TASK, 1))
    assert "did not say" in running.refused(AskCheckpoint(1))
    (halt,) = running.tell(Requeue(1))
    assert isinstance(halt, ev.HaltRequested)
    assert not halt.save


def test_a_requeue_saves_first_and_the_next_attempt_knows_what_is_kept(able: Cluster):
    able.tell(Requeue(1))
    assert directives(able.world) == [Halt(TASK, 1, Outcome.CANCELLED, 7000, True)]
    assert "being ended" in able.refused(AskCheckpoint(1))
    able.report(Saved(TASK, 1, 0, 5_000))
    able.report(Ended(TASK, 1, Outcome.CANCELLED))
    able.start()
    (launch,) = directives(able.world)
    assert isinstance(launch, Launch)
    assert (launch.attempt, launch.kept_ms) == (2, 5_000)


def test_a_cancel_after_a_requeue_saves_no_more(able: Cluster):
    able.tell(Requeue(1))
    able.tell(Cancel(1))
    assert directives(able.world) == [Halt(TASK, 1, Outcome.CANCELLED, 7000)]


@pytest.mark.parametrize("how", Preempt)
def test_who_may_be_interrupted_says_what_becomes_of_its_work(cluster: Cluster, how: Preempt):
    cluster.tell(ChangePolicy(PolicySpec("p", classes={"normal": JobClass(preempt=how)})))
    work = Work(("true",))
    if how in {Preempt.CHECKPOINT, Preempt.REQUEUE}:
        assert "does not say" in cluster.refused(Submit(JobSpec("ann", SPEC.shape, 60_000, work=work)))
    else:
        cluster.tell(Submit(JobSpec("ann", SPEC.shape, 60_000, work=work)))
    cluster.tell(Submit(ABLE))
    cluster.tell(Submit(JobSpec("ann", SPEC.shape, 60_000, work=work, starts_over=True)))
    cluster.tell(Submit(JobSpec("ann", SPEC.shape, 60_000)))
