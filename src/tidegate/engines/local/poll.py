"""The keeper's only place to wait: descriptors and times, each with what is to be done then."""

import select
import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Protocol

SPARE_TIMERS = 64
WAIT_MS_MAX = 3_600_000  # what the kernel takes ends at 24 days


class Subject(Protocol):
    over: bool
    """Nothing is to be done about it any more."""


def clock_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Poll:
    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.handlers: dict[int, Callable[[int], None]] = {}
        self.writers: dict[int, Callable[[int], None]] = {}
        self.timers: list[tuple[int, int, Callable[[int], None], Subject | None]] = []
        self.count = 0
        self.purge_at = SPARE_TIMERS

    def watch(self, fd: int, handler: Callable[[int], None]) -> None:
        """`handler(now)` runs whenever the descriptor can be read, or has come to its end."""
        self.handlers[fd] = handler
        self.epoll.register(fd, select.EPOLLIN)

    def watch_end(self, fd: int, handler: Callable[[int], None]) -> None:
        """`handler(now)` runs when the other side has gone, and not for what it says."""
        self.handlers[fd] = handler
        self.epoll.register(fd, 0)

    def when_writable(self, fd: int, handler: Callable[[int], None] | None) -> None:
        """Also when it can be written; None: no more."""
        if (handler is None) != (fd in self.writers):
            return
        if handler is None:
            del self.writers[fd]
        else:
            self.writers[fd] = handler
        reading = select.EPOLLIN if fd in self.handlers else 0
        if fd not in self.handlers and handler is not None:
            self.epoll.register(fd, select.EPOLLOUT)
        elif fd not in self.handlers:
            self.epoll.unregister(fd)
        else:
            self.epoll.modify(fd, reading | (select.EPOLLOUT if handler else 0))

    def unwatch(self, fd: int) -> None:
        """To be called before the descriptor is closed."""
        if self.handlers.pop(fd, None) is not None or fd in self.writers:
            self.epoll.unregister(fd)
        self.writers.pop(fd, None)

    def at(self, when: int, act: Callable[[int], None], subject: Subject | None = None) -> None:
        self.count += 1
        heappush(self.timers, (when, self.count, act, subject))
        if len(self.timers) > self.purge_at:  # limits of days must not keep jobs of seconds in memory
            self.timers = [timer for timer in self.timers if timer[3] is None or not timer[3].over]
            heapify(self.timers)
            self.purge_at = 2 * len(self.timers) + SPARE_TIMERS

    def wait(self) -> None:
        """Until something is to be done, and does it."""
        left_ms = max(0, self.timers[0][0] - clock_ms()) if self.timers else WAIT_MS_MAX
        ready = self.epoll.poll(min(left_ms, WAIT_MS_MAX) / 1000)
        now = clock_ms()
        for fd, events in ready:
            if events & select.EPOLLOUT and fd in self.writers:
                self.writers[fd](now)
            if events & ~select.EPOLLOUT and fd in self.handlers:
                self.handlers[fd](now)
        while self.timers and self.timers[0][0] <= now:
            _, _, act, subject = heappop(self.timers)
            if subject is None or not subject.over:
                act(now)
