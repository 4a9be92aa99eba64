"""Those who wait: for jobs to end, and for events to happen."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tidegate.api.http import Request
from tidegate.api.table import job_of_event
from tidegate.model import events as ev
from tidegate.model.events import Event

EVENTS_KIND = b"text/event-stream"
SUBSCRIBERS_MAX = 100
BREATHE_S = 10
HIDDEN = (ev.EnvironmentKept,)
"""Environments hold secrets; they are for the engine."""


class Waits:
    """Long polls on jobs: each is looked at again when one of its jobs ended something, and when its time is up."""

    def __init__(self) -> None:
        self.by_job: dict[int, dict[int, Callable[[], None]]] = {}
        self.serial = 0

    def add(self, jobs: Sequence[int], again: Callable[[], None]) -> Callable[[], None]:
        """Calls `again` after every flush that ended a task of one of the jobs; returns what stops that."""
        self.serial += 1
        mine = self.serial
        for job in jobs:
            self.by_job.setdefault(job, {})[mine] = again

        def stop() -> None:
            for job in jobs:
                waiting = self.by_job.get(job)
                if waiting is not None and waiting.pop(mine, None) is not None and not waiting:
                    del self.by_job[job]

        return stop

    def seen(self, events: Sequence[Event]) -> None:
        pass

    def safe(self, seq: int, events: Sequence[Event]) -> None:
        if not self.by_job:
            return
        ended = {job_of_event(event) for event in events if isinstance(event, ev.JobEnded | ev.JobDropped)}
        calls: dict[int, Callable[[], None]] = {}
        for job in ended:
            calls.update(self.by_job.get(job, {}))
        for serial in sorted(calls):
            calls[serial]()


class Stream:
    """One follower of events. Nobody but an administrator sees events of jobs that are not their own."""

    def __init__(self, request: Request, owner_of: Callable[[int], str], after: int) -> None:
        self.request = request
        self.owner_of = owner_of
        self.after = after  # the number of the last event that was sent, or passed over
        self.live = False

    def send(self, seq: int, events: Sequence[Event]) -> None:
        """`seq` is the number of the last of them."""
        out = []
        for number, event in enumerate(events, seq - len(events) + 1):
            if number > self.after and self._may_see(event):
                out.append(encoded(number, event))
        self.after = max(self.after, seq)
        if out:
            self.request.send(b"".join(out))

    def _may_see(self, event: Event) -> bool:
        if isinstance(event, HIDDEN):
            return False
        peer = self.request.peer
        if peer.is_admin:
            return True
        if isinstance(event, ev.JobSubmitted | ev.JobChanged):
            return event.job.spec.user == peer.user
        job = job_of_event(event)
        return not job or self.owner_of(job) == peer.user


class Streams:
    """Those who follow live."""

    def __init__(self) -> None:
        self.live: dict[Stream, None] = {}

    def join(self, stream: Stream) -> None:
        stream.live = True
        self.live[stream] = None
        stream.request.on_gone = lambda: self.leave(stream)

    def breathe(self) -> None:
        """A comment to everybody, so that a follower can tell a quiet server from a dead one."""
        for stream in list(self.live):
            stream.request.send(b":\n\n")

    def leave(self, stream: Stream) -> None:
        self.live.pop(stream, None)

    def seen(self, events: Sequence[Event]) -> None:
        pass

    def safe(self, seq: int, events: Sequence[Event]) -> None:
        for stream in list(self.live):
            stream.send(seq, events)

    def close(self) -> None:
        for stream in list(self.live):
            stream.request.send(b"")


def encoded(seq: int, event: Event) -> bytes:
    fields: dict[str, Any] = msgspec.to_builtins(event)
    kind = fields.pop("type")
    body = msgspec.json.encode({"seq": seq, "type": kind, "event": fields})
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (seq, kind.encode(), body)
