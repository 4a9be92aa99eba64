"""What is over: ended jobs, logs and old events. Long readings go to a thread, so that nobody waits for them."""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Protocol

from tidegate.api.aside import Aside
from tidegate.api.follow import Stream, Streams
from tidegate.api.http import Request
from tidegate.api.live import ToldJournal
from tidegate.api.rows import job_row, live_rows, saved_body
from tidegate.api.words import RefusedError, Tasks
from tidegate.model.base import ARRAY_BITS, FOREVER_MS, task_key
from tidegate.model.events import Event, PolicyChanged
from tidegate.model.history import Ending
from tidegate.model.jobs import ANY_FAILURE, Cause, Job, Outcome, RetryRule
from tidegate.wire import api, states
from tidegate.wire.arrays import format_indices
from tidegate.wire.outputs import OWN_FILE, outputs_of
from tidegate.wire.policy_diff import changes, summary
from tidegate.world.world import World

LOG_MAX = 4 << 20
"""So much of a log in one answer; ask again for the rest."""
SLICE = 500
ATTEMPTS_MAX = 10_000
PAGE = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class PastRows:
    """Which ended tasks."""

    limit: int
    user: str = ""
    queue: str = ""
    states: frozenset[str] = frozenset()
    tasks: Tasks | None = None


class History(Protocol):
    """Ended jobs, as the journal's file has them."""

    def job(self, job: int) -> Job | None: ...

    def endings(self, job: int, limit: int = PAGE, *, above: int = 0) -> Sequence[Ending]:
        """Of one job, oldest first; those after row `above`."""
        ...

    def recent(
        self, limit: int, *, user: str | None = None, queue: str | None = None, state: Outcome | None = None,
        before: int | None = None, below: int | None = None,
    ) -> Sequence[Ending]:  # fmt: skip
        """Final ones, newest first. For the next page: `before` the last one's end plus 1, `below` its row."""
        ...

    def failed(self, job: int) -> int:
        """How many of its tasks ended for good and did not complete."""
        ...

    def policy(self, version: int) -> PolicyChanged | None: ...

    def policies(self, at_most: int) -> Sequence[PolicyChanged]:
        """Newest first."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """Where the history is: on the writer's connection, or on one of its own for a thread."""

    settle: Callable[[], None]  # brings the tables up to date
    ended: Callable[[], int]  # how many tasks ever ended, tables or not
    history: History
    open: Callable[[], History]
    events: Callable[[int, int], list[Event]]  # after this number, so many at most; also from a thread


class Past:
    def __init__(self, aio: asyncio.AbstractEventLoop, home: Path, archive: Archive) -> None:
        self.aio = aio
        self.home = home
        self.archive = archive
        self.aside = Aside(aio, "the past cannot be read")

    def close(self) -> None:
        self.aside.close()

    @property
    def history(self) -> History:
        self.archive.settle()
        return self.archive.history

    def job(self, job: int) -> Job | None:
        return self.history.job(job)

    def ended_count(self) -> int:
        return self.archive.ended()

    def state_of(self, job: int) -> str:
        endings = [ending for ending in self.history.endings(job) if ending.final]
        return endings[-1].outcome.upper() if endings else "long ago"

    def owner_of(self, world: World) -> Callable[[int], str]:
        def owner(job_id: int) -> str:
            job = world.jobs.get(job_id) or self.history.job(job_id)
            return job.spec.user if job is not None else ""

        return owner

    # -- many --------------------------------------------------------------------------------------------

    def rows(self, request: Request, wish: PastRows, done: Callable[[list[api.JobRow], bool], None]) -> None:
        """Oldest first, read in a thread; and whether there are more."""
        self.archive.settle()

        def read() -> tuple[list[api.JobRow], bool]:
            history = self.archive.open()
            try:
                found = list(islice(chosen(history, wish), wish.limit + 1))
            finally:
                history.close()
            more = len(found) > wish.limit
            return [ended_row(ending) for ending in reversed(found[: wish.limit])], more

        self.aside.do(request, read, lambda result: done(*result))

    # -- the policies ------------------------------------------------------------------------------------

    def policy(self, version: int) -> PolicyChanged | None:
        return self.archive.history.policy(version)

    def policies(self, request: Request, limit: int, done: Callable[[list[api.PolicyVersionRow], bool], None]) -> None:
        """Newest first, each against the one before; and whether there are more."""

        def read() -> tuple[list[api.PolicyVersionRow], bool]:
            history = self.archive.open()
            try:
                found = history.policies(limit + 1)
            finally:
                history.close()
            pairs = zip_longest(found[:limit], found[1 : limit + 1])
            return [version_row(event, before) for event, before in pairs], len(found) > limit

        self.aside.do(request, read, lambda result: done(*result))

    # -- one ---------------------------------------------------------------------------------------------

    def whole(self, world: World, job_id: int, index: int = -1) -> api.JobBody:
        """Live or ended, with every attempt; of an array, or of one task of it."""
        live = world.jobs.get(job_id)
        job = live or self.history.job(job_id)
        assert job is not None, "the caller has seen it"
        endings = list(all_endings(self.history, job_id))
        rows = [ended_row(ending) for ending in endings if ending.final]
        if live is not None:
            rows += live_rows(world, [live])
        if index >= 0:
            endings = [ending for ending in endings if index in ending.indices]
            rows = [row for row in rows if row.index in {index, None}]
            rows.sort(key=lambda row: row.index is not None)  # its own row is the last
        body = body_of(job, self.home, index, max((1, *(row.attempts for row in rows[-1:]))))
        body.history = [attempt_of(ending) for ending in endings[-ATTEMPTS_MAX:]]
        if job.spec.array is None or index >= 0:
            if rows:
                copy_row(rows[-1], body)
            body.checkpoint = saved_body(world, job, max(0, index), str(self.home))
            return body
        body.array = sorted(rows, key=lambda row: -1 if row.index is None else row.index)
        body.state = state_of_array(rows, is_live=live is not None)
        body.tasks = len(job.spec.array.indices)
        return body

    def progress(self, world: World, tasks: Tasks) -> api.WaitBody:
        body = api.WaitBody(total=0, ended=0, running=0, failed=0)
        for job_id in tasks.jobs:
            self._count(world, job_id, tasks.indices.get(job_id), body)
        if body.ended == body.total and body.total <= PAGE:
            history = self.history
            endings = [ending for job in tasks.jobs for ending in final_endings(history, job)]
            body.rows = [ended_row(ending) for ending in endings if tasks.wants_any(ending.job.id, ending.indices)]
        return body

    def _count(self, world: World, job_id: int, some: set[int] | None, body: api.WaitBody) -> None:
        """Of one job; with `some` those tasks of it only."""
        job = world.jobs.get(job_id)
        if some is not None:
            body.total += len(some)
            body.running += sum(task_key(job_id, index) in world.runs for index in some)
            for ending in final_endings(self.history, job_id):
                here = len(some.intersection(ending.indices))
                body.ended += here
                body.failed += here if ending.outcome is not Outcome.COMPLETED else 0
        elif job is None:
            past = self.history.job(job_id)
            tasks = 1 if past is None or past.spec.array is None else len(past.spec.array.indices)
            body.total += tasks
            body.ended += tasks
            body.failed += self.history.failed(job_id)
        elif job.spec.array is None:
            body.total += 1
            body.running += job_id << ARRAY_BITS in world.runs
        else:
            state = world.arrays[job_id]
            body.total += len(job.spec.array.indices)
            body.ended += state.ended
            body.running += state.running
            body.failed += self.history.failed(job_id) if state.failed else 0

    def log(self, job: Job, index: int, stream: str, offset: int) -> bytes:
        """Of the file that the server chose only: one that the user named is read there, with its reader's own rights,
        and never with those of the server, wherever it may be.
        """
        path = outputs_of(str(self.home), job, index, 1)[stream == "stderr"]
        if is_named(job, stream):
            raise RefusedError(409, f"the job writes to {path}", "read it there")
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(file, LOG_MAX, offset) if offset < os.fstat(file).st_size else b""
        finally:
            os.close(file)

    # -- events ------------------------------------------------------------------------------------------

    def catch_up(self, stream: Stream, journal: ToldJournal, streams: Streams) -> None:
        """What was before is read slice by slice, until there is nothing between the stream and now."""
        if stream.request.gone:
            return
        if stream.after >= journal.seq:
            streams.join(stream)
            return

        def sent(events: list[Event]) -> None:
            stream.send(stream.after + len(events), events)
            self.catch_up(stream, journal, streams)

        self.aside.do(stream.request, lambda: self.archive.events(stream.after, SLICE), sent)


# -- choosing ------------------------------------------------------------------------------------------------


def chosen(history: History, wish: PastRows) -> Iterator[Ending]:
    """Newest first, page by page."""
    ends = [Outcome(state.lower()) for state in sorted(wish.states) if state in states.OVER]
    if wish.states and not ends:
        return  # nothing that ended is in the state of something live
    if wish.tasks is not None:
        for job in reversed(wish.tasks.jobs):
            for ending in reversed(final_endings(history, job)):
                if wish.tasks.wants_any(job, ending.indices) and is_wanted(ending, wish, ends):
                    yield ending
        return
    one = ends[0] if len(ends) == 1 else None  # which the history finds by an index; several are picked here
    before: int | None = None
    below: int | None = None
    while True:
        page = history.recent(
            PAGE, user=wish.user or None, queue=wish.queue or None, state=one, before=before, below=below
        )
        yield from [ending for ending in page if is_wanted(ending, wish, ends)]
        if len(page) < PAGE:
            return
        before, below = page[-1].end_ms + 1, page[-1].row


def is_wanted(ending: Ending, wish: PastRows, ends: Sequence[Outcome]) -> bool:
    spec = ending.job.spec
    if wish.user and spec.user != wish.user:
        return False
    return (not wish.queue or spec.queue == wish.queue) and (not ends or ending.outcome in ends)


def all_endings(history: History, job: int) -> Iterator[Ending]:
    above = 0
    while True:
        page = history.endings(job, PAGE, above=above)
        yield from page
        if len(page) < PAGE:
            return
        above = page[-1].row


def final_endings(history: History, job: int) -> list[Ending]:
    return [ending for ending in all_endings(history, job) if ending.final]


def is_named(job: Job, stream: str) -> bool:
    """Whether the user said where this output goes."""
    work = job.spec.work
    if work is None or work.stderr == OWN_FILE:
        return work is not None and stream == "stdout" and bool(work.stdout)
    return bool(work.stderr if stream == "stderr" and work.stderr else work.stdout)


# -- rows ----------------------------------------------------------------------------------------------------


def ended_row(ending: Ending) -> api.JobRow:
    """Of one task; tasks that never started and ended together share one."""
    job = ending.job
    row = job_row(job, ending.outcome.upper())
    row.attempts = ending.attempt
    row.end_ms = ending.end_ms
    row.reason = ending.why
    if ending.start_ms >= 0:
        row.start_ms = ending.start_ms
        row.exit_code = ending.code
        row.signal = ending.signal or None
        row.nodes = [name for name, _ in ending.nodes]
        used = ending.used
        row.cpu_ms, row.peak_kib = known(used.cpu_ms), known(used.peak_kib)
        row.read_kib, row.written_kib = known(used.read_kib), known(used.written_kib)
    if job.spec.array is not None:
        if len(ending.indices) == 1:
            row.index = ending.indices[0]
        else:
            row.tasks, row.indices = len(ending.indices), format_indices(ending.indices)
    return row


def version_row(event: PolicyChanged, before: PolicyChanged | None) -> api.PolicyVersionRow:
    if before is None or before.version != event.version - 1:
        changed = "the first" if event.version == 1 else "the one before is not known any more"
    else:
        changed = summary(changes(before.policy, event.policy))
    return api.PolicyVersionRow(event.version, event.policy.name, event.at or None, event.by, event.note, changed)


def known(amount: int) -> int | None:
    return None if amount < 0 else amount


def attempt_of(ending: Ending) -> dict[str, Any]:
    return {
        "indices": format_indices(ending.indices), "attempt": ending.attempt, "state": ending.outcome.upper(),
        "start_ms": ending.start_ms if ending.start_ms >= 0 else None, "end_ms": ending.end_ms,
        "exit_code": ending.code if ending.start_ms >= 0 else None,
        "signal": ending.signal or None, "nodes": [name for name, _ in ending.nodes], "why": ending.why,
        "final": ending.final,
    }  # fmt: skip


def copy_row(row: api.JobRow, body: api.JobBody) -> None:
    for name in api.JobRow.__struct_fields__:
        setattr(body, name, getattr(row, name))


def state_of_array(rows: Sequence[api.JobRow], *, is_live: bool) -> str:
    found = {row.state for row in rows}
    if is_live:
        order = (states.RUNNING, states.STARTING, states.SUSPENDED, states.ENDING, states.HELD)
        return next((state for state in order if state in found), states.WAITING)
    return states.COMPLETED if found == {states.COMPLETED} else states.FAILED


def body_of(job: Job, home: Path, index: int, attempt: int) -> api.JobBody:
    spec = job.spec
    base = job_row(job, states.WAITING)
    body = api.JobBody(**{name: getattr(base, name) for name in api.JobRow.__struct_fields__})
    body.begin_ms = spec.begin_ms or None
    body.deadline_ms = None if spec.deadline_ms >= FOREVER_MS else spec.deadline_ms
    body.starts_over = spec.starts_over
    body.after = [api.AfterBody(after.job, str(after.kind)) for after in spec.after]
    if spec.retry.times:
        rules = [] if spec.retry.on == ANY_FAILURE else [rule_text(rule) for rule in spec.retry.on]
        body.retry = api.RetryBody(spec.retry.times, rules, spec.retry.backoff_ms, spec.retry.backoff_max_ms)
    work = spec.work
    if work is not None:
        body.command, body.script, body.cwd, body.notify = list(work.argv), work.script, work.cwd, work.notify
        if job.spec.array is None or index >= 0:
            body.stdout, body.stderr = outputs_of(str(home), job, max(0, index), attempt)
        else:
            body.stdout, body.stderr = work.stdout, work.stderr
    return body


def rule_text(rule: RetryRule) -> str:
    names = {Cause.EXIT: "exit", Cause.SIGNAL: "signal", Cause.OUT_OF_MEMORY: "oom", Cause.TIMED_OUT: "timeout"}
    text = names[rule.cause]
    if rule.cause not in {Cause.EXIT, Cause.SIGNAL} or (rule.low, rule.high) in {(1, 255), (1, 64)}:
        return text
    return f"{text}:{rule.low}" if rule.low == rule.high else f"{text}:{rule.low}-{rule.high}"
