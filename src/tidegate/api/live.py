"""The ports of the live loop: a clock that waits on sockets, an inbox that clients write to, a journal that tells.

While the loop works, requests gather; when it waits, all of them are handed in at once. So under load commands
share a turn and its flush, without anybody arranging it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from tidegate.model.commands import Command, Refused
from tidegate.model.events import Event
from tidegate.model.history import Ending
from tidegate.ports import Journal

Result = tuple[Event, ...] | Refused
Reply = Callable[[Result], None]
Wish = tuple[Command, Reply]

STEP_NOTED_MS = 2_000
WAITED_MAX_MS = 3_600_000
"""Looked at the clock at least so often, for a machine that slept."""
COMMANDS_WAITING_MAX = 200_000
BATCHES_WAITING_MAX = 100
ALONE_A_TURN = 512
BATCH_SLICE = 128
"""What a turn takes from the inbox; it bounds how long those who come meanwhile wait."""


class LiveClock:
    """Milliseconds since 1970 that never go back: where the machine's clock does, ours goes on from where it was."""

    def __init__(self, aio: asyncio.AbstractEventLoop, not_before: int = 0, wall: Callable[[], float] = time.time,
                 steady: Callable[[], float] = time.monotonic) -> None:  # fmt: skip
        self.aio = aio
        self.wall = wall
        self.steady = steady
        self.stopping = False
        self.woken = False  # there is something for the next turn: waiting is only a look at the sockets
        self.waiting = False  # the sockets' loop runs because we wait, and not for somebody else
        self.before_wait: Callable[[], object] = bool
        self.last = max(not_before, int(wall() * 1000))
        self.behind_ms = self.last - int(wall() * 1000)  # how far the machine's clock is behind ours
        self.seen = steady()

    def now(self) -> int:
        """What the machine's clock says; or, while that is behind what was said before, what really passed since."""
        passed = self.steady()
        wall = int(self.wall() * 1000)
        if wall >= self.last:
            self.last, self.behind_ms, self.seen = wall, 0, passed
            return wall
        whole_ms = int((passed - self.seen) * 1000)
        self.last += whole_ms
        self.seen += whole_ms / 1000
        self.behind_ms = self.last - wall
        return self.last

    def wait(self, until: int | None) -> bool:
        if self.stopping:
            return False
        self.before_wait()
        delay_ms = WAITED_MAX_MS if until is None else min(until - self.now(), WAITED_MAX_MS)
        self.waiting = True
        if delay_ms <= 0 or self.woken:
            self.aio.call_soon(self.aio.stop)
            self.aio.run_forever()
        else:
            timer = self.aio.call_later(delay_ms / 1000, self.aio.stop)
            self.aio.run_forever()
            timer.cancel()
        self.woken = self.waiting = False
        return not self.stopping

    def wake(self) -> None:
        """Ends the wait when what is ready now has been dealt with."""
        self.woken = True
        if self.waiting:
            self.aio.stop()

    def stop(self) -> None:
        self.stopping = True
        self.wake()


class LiveInbox:
    """Commands in the order they came, each with whoever waits for its answer.

    Long batches are taken a slice a turn, in turns with each other, and behind what came alone: so nobody with one
    wish waits for somebody with ten thousand.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.coming: deque[Wish] = deque()
        self.batches: deque[Iterator[Wish]] = deque()
        self.taken: deque[Reply] = deque()

    def put(self, command: Command, reply: Reply) -> None:
        self.coming.append((command, reply))
        self.wake()

    def put_many(self, wishes: Iterator[Wish]) -> None:
        """They are made as they are taken."""
        self.batches.append(wishes)
        self.wake()

    @property
    def is_full(self) -> bool:
        return len(self.coming) >= COMMANDS_WAITING_MAX or len(self.batches) >= BATCHES_WAITING_MAX

    def take(self, now: int, at_most: int) -> Sequence[Command]:
        coming = self.coming
        found = [coming.popleft() for _ in range(min(len(coming), at_most, ALONE_A_TURN))]
        if self.batches:
            batch = self.batches.popleft()
            piece = list(islice(batch, BATCH_SLICE))
            found += piece
            if len(piece) == BATCH_SLICE:
                self.batches.append(batch)
        self.taken.extend([reply for _, reply in found])
        return [command for command, _ in found]

    def answer(self, command: Command, result: Result) -> None:
        """Answers come in the order of `take`."""
        self.taken.popleft()(result)

    def next_at(self) -> int | None:
        return 0 if self.coming or self.batches else None


class Watcher(Protocol):
    """Sees events twice: before they are state, and when they are safe."""

    def seen(self, events: Sequence[Event]) -> None: ...

    def safe(self, seq: int, events: Sequence[Event]) -> None:
        """`seq` is the number of the last of them."""
        ...


class ToldJournal:
    """The journal of the live loop: hands on what it is given, and tells those who follow."""

    def __init__(self, inner: Journal) -> None:
        self.inner = inner
        self.keeps_history = inner.keeps_history
        self.watchers: Sequence[Watcher] = ()
        self.fresh: list[Event] = []
        self.append_inner = inner.append

    @property
    def seq(self) -> int:
        return self.inner.seq

    def append(self, events: Sequence[Event]) -> None:
        for watcher in self.watchers:
            watcher.seen(events)
        self.append_inner(events)
        self.fresh.extend(events)

    def flush(self) -> None:
        self.inner.flush()
        if self.fresh:
            fresh, self.fresh = self.fresh, []
            for watcher in self.watchers:
                watcher.safe(self.inner.seq, fresh)

    def read(self, after: int = 0) -> Iterator[Event]:
        return self.inner.read(after)

    @property
    def recorded(self) -> int:
        return self.inner.recorded

    def record(self, endings: Sequence[Ending], upto: int) -> None:
        self.inner.record(endings, upto)

    def snapshots(self) -> Iterator[tuple[int, bytes]]:
        return self.inner.snapshots()

    def keep_snapshot(self, seq: int, body: bytes) -> None:
        self.inner.keep_snapshot(seq, body)

    def close(self) -> None:
        self.inner.close()
