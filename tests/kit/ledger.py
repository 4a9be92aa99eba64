"""The books: what the journal says of every task, kept without the world's help."""

from collections.abc import Sequence

from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS
from tidegate.model.jobs import Job, Outcome


class Ledger:
    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.waiting: set[int] = set()  # tasks
        self.live: dict[int, ev.JobStarted] = {}
        self.lost: dict[int, int] = {}  # task -> attempts
        self.outcome: dict[int, Outcome] = {}
        self.first_start: dict[int, int] = {}
        self.first_promise: dict[int, int] = {}

    def append(self, events: Sequence[ev.Event]) -> None:
        for event in events:
            match event:
                case ev.JobSubmitted():
                    assert event.job.id not in self.jobs, f"job id {event.job.id} is given twice"
                    self.jobs[event.job.id] = event.job
                    self.waiting.update(tasks_of(event.job))
                case ev.CycleRan():
                    for promise in event.promised:
                        self.first_promise.setdefault(promise.task, promise.start_by)
                case ev.JobStarted():
                    self._started(event)
                case ev.JobEnded():
                    self._ended(event)
                case ev.AttemptLost():
                    assert self.live.pop(event.task).attempt == event.attempt
                    self.lost[event.task] = event.attempt
                    self.waiting.add(event.task)
                case ev.JobDropped():
                    dropped = [task for task in tasks_of(self.jobs[event.job]) if task in self.waiting]
                    assert dropped, f"job {event.job} is dropped and nothing of it waits"
                    for task in dropped:
                        self._over(task, event.outcome)
                case _:
                    pass

    def _started(self, event: ev.JobStarted) -> None:
        task = event.task
        job = self.jobs[task >> ARRAY_BITS]
        assert task in self.waiting, f"task {task} starts and does not wait"
        assert event.attempt == self.lost.get(task, 0) + 1, f"task {task} starts attempt {event.attempt}"
        counts = [count for _, count in event.nodes]
        assert sum(counts) == job.spec.shape.count, f"task {task} got {counts} chunks"
        assert event.at >= job.spec.begin_ms, f"task {task} starts before its time"
        self.waiting.remove(task)
        self.live[task] = event
        self.first_start.setdefault(task, event.at)

    def _ended(self, event: ev.JobEnded) -> None:
        start = self.live.pop(event.task, None)
        assert event.attempt == (start.attempt if start else 0), f"{event} ends another attempt than {start}"
        assert start is not None or event.task in self.waiting, f"{event} ends what is over"
        self._over(event.task, event.outcome)

    def _over(self, task: int, outcome: Outcome) -> None:
        assert task not in self.outcome, f"task {task} ends twice"
        self.waiting.discard(task)
        self.outcome[task] = outcome

    def flush(self) -> None:
        pass


def tasks_of(job: Job) -> list[int]:
    array = job.spec.array
    return [job.id << ARRAY_BITS | index for index in (array.indices if array else (0,))]
