"""The books: what the journal says of every task, kept without the world's help."""

from collections import Counter
from collections.abc import Sequence

from tests.kit.node_books import NodeBooks
from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS, FOREVER_MS
from tidegate.model.jobs import ANY_FAILURE, Job, Outcome


class Ledger:
    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.waiting: set[int] = set()  # tasks
        self.live: dict[int, ev.JobStarted] = {}
        self.attempts: Counter[int] = Counter()  # by task: those that are over, and of them
        self.lost: Counter[int] = Counter()
        self.failed: Counter[int] = Counter()
        self.not_before: dict[int, int] = {}
        self.halts: dict[int, ev.HaltRequested] = {}
        self.outcome: dict[int, Outcome] = {}
        self.first_start: dict[int, int] = {}
        self.first_promise: dict[int, int] = {}
        self.notices: set[int] = set()  # jobs whose notify command is to be run
        self.nodes = NodeBooks()

    def append(self, events: Sequence[ev.Event]) -> None:
        for event in events:
            self.nodes.note(event, self.live)
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
                case ev.HaltRequested():
                    assert self.live[event.task].attempt == event.attempt
                    self.halts[event.task] = event
                case ev.JobEnded():
                    self._ended(event)
                case ev.AttemptLost() | ev.AttemptFailed():
                    self._again(event)
                case ev.JobDropped():
                    dropped = [task for task in tasks_of(self.jobs[event.job]) if task in self.waiting]
                    assert dropped, f"job {event.job} is dropped and nothing of it waits"
                    for task in dropped:
                        self._over(task, event.outcome)
                case ev.NoticeSent():
                    self.notices.remove(event.job)
                case _:
                    pass

    def _started(self, event: ev.JobStarted) -> None:
        task = event.task
        job = self.jobs[task >> ARRAY_BITS]
        assert task in self.waiting, f"task {task} starts and does not wait"
        assert event.attempt == self.attempts[task] + 1, f"task {task} starts attempt {event.attempt}"
        counts = [count for _, count in event.nodes]
        assert sum(counts) == job.spec.shape.count, f"task {task} got {counts} chunks"
        assert event.at >= job.spec.begin_ms, f"task {task} starts before its time"
        assert event.at >= self.not_before.get(task, 0), f"task {task} starts before its back-off is over"
        self.waiting.remove(task)
        self.live[task] = event
        self.first_start.setdefault(task, event.at)

    def _again(self, event: ev.AttemptLost | ev.AttemptFailed) -> None:
        task, halt = event.task, self.halts.pop(event.task, None)
        spec = self.jobs[task >> ARRAY_BITS].spec
        assert self.live.pop(task).attempt == event.attempt
        assert halt is None or halt.again, f"task {task} was cancelled and waits again: {event}"
        if isinstance(event, ev.AttemptFailed):
            expected = min(spec.retry.backoff_ms << self.failed[task], spec.retry.backoff_max_ms)
            self.failed[task] += 1
            assert self.failed[task] <= spec.retry.times, f"{event} is one retry too many"
            assert halt is None
            assert event.until == event.at + expected, f"{event}, after {expected} ms expected"
        elif event.counts:
            self.lost[task] += 1
            assert self.lost[task] <= spec.losses_max, f"{event} is one loss too many"
            assert halt is None
            assert (event.until > event.at) == (self.lost[task] > 1), f"{event} is loss number {self.lost[task]}"
        else:
            assert halt is not None, f"{event} does not count and nobody asked for it"
        self.attempts[task] += 1
        self.not_before[task] = event.until
        self.waiting.add(task)

    def _ended(self, event: ev.JobEnded) -> None:
        start, halt = self.live.pop(event.task, None), self.halts.pop(event.task, None)
        assert event.attempt == (start.attempt if start else 0), f"{event} ends another attempt than {start}"
        assert start is not None or event.task in self.waiting, f"{event} ends what is over"
        if halt is not None and event.outcome is not Outcome.COMPLETED:
            assert not halt.again, f"{event} ends what was to be requeued"
            assert event.outcome is halt.outcome, f"{event} ends otherwise than {halt}"
        spec = self.jobs[event.task >> ARRAY_BITS].spec
        if start is not None and halt is None and event.outcome is Outcome.FAILED and spec.retry.on == ANY_FAILURE:
            out = self.failed[event.task] >= spec.retry.times
            assert out or spec.deadline_ms < FOREVER_MS, f"{event} should have been tried again"
        self._over(event.task, event.outcome)

    def _over(self, task: int, outcome: Outcome) -> None:
        assert task not in self.outcome, f"task {task} ends twice"
        self.waiting.discard(task)
        self.outcome[task] = outcome
        job = self.jobs[task >> ARRAY_BITS]
        work = job.spec.work
        if work is not None and work.notify and all(task in self.outcome for task in tasks_of(job)):
            self.notices.add(job.id)

    def flush(self) -> None:
        pass


def tasks_of(job: Job) -> list[int]:
    array = job.spec.array
    return [job.id << ARRAY_BITS | index for index in (array.indices if array else (0,))]
