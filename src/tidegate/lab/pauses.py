"""How long runs of a replay were suspended: a stopped job neither runs nor waits for its first start."""

from tidegate.model.events import JobResumed, JobSuspended


class Pauses:
    def __init__(self) -> None:
        self.since: dict[int, int] = {}  # by task: those that are suspended now
        self.before: dict[int, int] = {}  # by task: how long the attempt was, before that
        self.suspensions = 0
        self.stopped_ms = 0  # of all attempts that are over

    def suspended(self, event: JobSuspended) -> None:
        self.suspensions += 1
        self.since[event.task] = event.at

    def resumed(self, event: JobResumed) -> None:
        self.before[event.task] = self.before.get(event.task, 0) + event.at - self.since.pop(event.task)

    def over(self, task: int, at: int) -> int:
        """How long the attempt that is over was suspended."""
        stopped = self.before.pop(task, 0) + at - self.since.pop(task, at)
        self.stopped_ms += stopped
        return stopped
