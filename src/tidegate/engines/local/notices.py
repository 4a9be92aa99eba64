"""Commands that are run because a job has ended: a few at once, each for a bounded time."""

from collections import deque
from typing import Any

from tidegate.engines.local import trees
from tidegate.engines.local.poll import Poll
from tidegate.engines.local.spawn import BadOrderError, Entries
from tidegate.engines.local.starts import KILL, Process, Say, Starts

RUN_MS_MAX = 60_000
AT_ONCE_MAX = 8
WAITING_MAX = 10_000
KNOWN_MAX = 1_000
NO_RECORD = ("", "")
NOTHING = Entries([])


class Notices:
    def __init__(self, poll: Poll, starts: Starts, say: Say) -> None:
        self.poll = poll
        self.starts = starts
        self.say = say
        self.waiting: deque[dict[str, Any]] = deque()
        self.asked: set[int] = set()  # waiting or starting
        self.running = 0
        self.known: dict[int, None] = {}  # sent; the oldest are forgotten

    def ask(self, message: dict[str, Any], now: int) -> None:
        """Once a job: what is on its way is not run twice, and what was sent is only told again."""
        job = int(message["job"])
        if job in self.known:
            self.say(f'{{"is":"notified","job":{job}}}\n')
        elif job not in self.asked:
            if len(self.waiting) >= WAITING_MAX:
                self.sent(job)  # the bound: better one unsent than a keeper without memory
                return
            self.asked.add(job)
            self.waiting.append(message)
            self.next(now)

    def next(self, now: int) -> None:
        while self.waiting and self.running < AT_ONCE_MAX:
            message = self.waiting.popleft()
            job = int(message["job"])
            notice = Notice(self, job, now)
            try:
                self.starts.start(notice, NO_RECORD, (), message["words"], Entries(message["entries"]), NOTHING, now)
            except (OSError, BadOrderError):
                self.sent(job)  # it cannot be run, now or later
                continue
            self.running += 1

    def sent(self, job: int) -> None:
        self.asked.discard(job)
        self.known[job] = None
        if len(self.known) > KNOWN_MAX:
            del self.known[next(iter(self.known))]
        self.say(f'{{"is":"notified","job":{job}}}\n')


class Notice(Process):
    __slots__ = ("job", "notices")

    def __init__(self, notices: Notices, job: int, now: int) -> None:
        super().__init__()
        self.notices = notices
        self.job = job
        notices.poll.at(now + RUN_MS_MAX, self._kill, self)

    def started(self, _now: int) -> None:
        self.notices.sent(self.job)

    def not_started(self, _why: str, now: int) -> None:
        self.notices.sent(self.job)
        self._finish(now)

    def ended(self, _status: int, _usage: Any, now: int) -> None:
        self._finish(now)

    def _finish(self, now: int) -> None:
        self.over = True
        self.notices.running -= 1
        self.notices.next(now)

    def _kill(self, _now: int) -> None:
        if self.pid:
            trees.send_group(self.pid, KILL)
