"""Asks are spread: however many jobs save themselves, together they write no more than the policy allows."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.accept import accept
from tidegate.core.decide import decide
from tidegate.core.due import due, next_due
from tidegate.core.memo import Memo
from tidegate.core.reconcile import reconcile
from tidegate.model.base import task_key
from tidegate.model.commands import ChangePolicy, Command, Refused, SetNode, Submit
from tidegate.model.engine import Launched, Saved
from tidegate.model.events import CheckpointAsked, Event
from tidegate.model.jobs import Checkpoint, JobSpec, Shape, amounts
from tidegate.model.nodes import Node
from tidegate.model.policy import Checkpoints, JobClass, PolicySpec, Preempt
from tidegate.world.apply import apply
from tidegate.world.check import check
from tidegate.world.world import World

DAY_MS = 24 * 3_600_000
MINUTE_MS = 60_000


class Storm:
    """Jobs that run for a day and save themselves whenever they are asked, in time moved by what is due."""

    def __init__(self, rules: Checkpoints, sizes: list[int]) -> None:
        self.world, self.now = World(), 0
        self.sizes = sizes
        self.asked: list[CheckpointAsked] = []
        self.open_most = 0
        classes = {"normal": JobClass(preempt=Preempt.CHECKPOINT)}
        self.tell(ChangePolicy(PolicySpec("storm", classes=classes, checkpoints=rules)))
        self.tell(SetNode(Node("a", "p", amounts(cpus=1000 * len(sizes)))))
        for size in sizes:
            self.tell(Submit(JobSpec("ann", Shape(amounts(cpus=1000)), DAY_MS, checkpoint=Checkpoint(size_mib=size))))
        plan = decide(self.world, Memo(), 0)
        self.fold((plan.cycle, *plan.starts))
        for number in range(len(sizes)):
            self.fold(reconcile(self.world, Launched(task_key(number + 1), 1), 0))

    def tell(self, command: Command) -> None:
        answer = accept(self.world, command, self.now)
        assert not isinstance(answer, Refused), answer
        self.fold(answer)

    def fold(self, events: tuple[Event, ...]) -> None:
        for event in events:
            apply(self.world, event)
            if isinstance(event, CheckpointAsked):
                self.asked.append(event)

    def run(self, until: int, takes_ms: int) -> None:
        """Each answers after as long as it takes to write, at the earliest when something is due."""
        answers: list[tuple[int, CheckpointAsked]] = []
        known = 0
        while True:
            wanted = [at for at in (next_due(self.world), *(at for at, _ in answers)) if at is not None]
            self.now = min(wanted)
            if self.now > until:
                return
            for answer in [answer for answer in answers if answer[0] <= self.now]:
                answers.remove(answer)
                event = answer[1]
                self.fold(reconcile(self.world, Saved(event.task, 1, event.number, event.at), self.now))
            self.fold(due(self.world, self.now))
            answers += [(self.now + takes_ms, event) for event in self.asked[known:]]
            known = len(self.asked)
            self.open_most = max(self.open_most, sum(save.is_open for save in self.world.saves.values()))

    def size_of(self, event: CheckpointAsked) -> int:
        return self.sizes[(event.task >> 20) - 1]

    def written_most(self, budget: int) -> int:
        """Beyond the budget, in any stretch of time that begins and ends with an ask; MiB."""
        most = 0
        for first in range(len(self.asked)):
            total = 0
            for event in self.asked[first:]:
                allowed = budget * (event.at - self.asked[first].at) // 1000
                most = max(most, total - allowed)
                total += self.size_of(event)
        return most


def test_a_storm_of_fifty_stays_under_the_budget_and_all_get_their_turn() -> None:
    budget, every = 100, 5 * MINUTE_MS
    storm = Storm(Checkpoints(every_ms=every, write_mib_s=budget), [512] * 50)
    storm.run(every + 20 * MINUTE_MS, takes_ms=5_000)
    first = storm.asked[:50]
    assert sorted(event.task for event in first) == [task_key(number + 1) for number in range(50)]
    assert [event.at for event in first] == [every + 5_120 * turn for turn in range(50)]  # 512 MiB at 100 MiB a second
    assert storm.written_most(budget) <= 0
    assert check(storm.world) == []
    by_task = [event.at for event in storm.asked if event.task == task_key(1)]
    assert len(by_task) >= 4
    assert max(b - a for a, b in pairwise(by_task)) <= every + 50 * 5_120


@given(
    sizes=st.lists(st.integers(1, 4000), min_size=1, max_size=12),
    budget=st.integers(1, 2000),
    every_ms=st.integers(1000, 10 * MINUTE_MS),
    at_once_max=st.sampled_from([0, 0, 1, 3]),
    takes_ms=st.integers(1, 100_000),
)
def test_no_mix_of_jobs_writes_more_than_the_budget(
    sizes: list[int], budget: int, every_ms: int, at_once_max: int, takes_ms: int
) -> None:
    storm = Storm(Checkpoints(every_ms=every_ms, write_mib_s=budget, at_once_max=at_once_max), sizes)
    storm.run(5 * every_ms, takes_ms)
    # A write is counted in whole milliseconds, rounded down.
    assert storm.written_most(budget) <= len(storm.asked) * -(-budget // 1000)
    if at_once_max:
        assert storm.open_most <= at_once_max
    assert check(storm.world) == []
