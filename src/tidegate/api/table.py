"""The queue as text, for people. Lines of jobs that did not change are kept, so a long queue costs little."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.api.rows import live_rows
from tidegate.model import events as ev
from tidegate.model.base import job_of
from tidegate.model.events import Event
from tidegate.model.jobs import Job
from tidegate.wire.api import JobRow
from tidegate.wire.look import cut, painted, plain
from tidegate.world.world import World

NAME_WIDTH = 12
USER_WIDTH = 8
HEADER = f"{'JOB':>8}  {'NAME':<{NAME_WIDTH}}  {'USER':<{USER_WIDTH}}  {'STATE':<9} {'CPUS':>4} {'MEM':>5} {'GPU':>3}"
TAIL = f" {'TIME':>6}  NODES / WHY"
Line = tuple[str, int, str, str]
"""What goes before the time, since when the time counts (below 0: -1 - the seconds it took), what goes after it;
and the state."""


def job_of_event(event: Event) -> int:
    """The job that an event is about; 0: none."""
    match event:
        case ev.JobSubmitted() | ev.JobChanged():
            return event.job.id
        case ev.JobReady() | ev.JobHeld() | ev.JobReleased() | ev.JobDropped() | ev.NoticeSent():
            return event.job
        case (
            ev.JobStarted()
            | ev.JobLaunched()
            | ev.HaltRequested()
            | ev.JobSuspended()
            | ev.JobResumed()
            | ev.SuspensionChanged()
            | ev.AttemptLost()
            | ev.AttemptFailed()
            | ev.TaskRested()
            | ev.JobEnded()
            | ev.EstimateRaised()
        ):
            return job_of(event.task)
        case _:
            return 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """How a table is to look."""

    now: int
    width: int = 80
    states: frozenset[str] = frozenset()  # only what is in one of them; none: all
    rows_max: int
    is_coloured: bool = False


class QueueTable:
    """A watcher of the journal: what an event is about is written anew when next asked for."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lines: dict[int, tuple[Line, ...]] = {}

    def seen(self, events: Sequence[Event]) -> None:
        lines = self.lines
        if not lines:
            return
        for event in events:
            if type(event) is ev.CycleRan:
                for promise in event.promised:
                    lines.pop(job_of(promise.task), None)
                for task in event.withdrawn:
                    lines.pop(job_of(task), None)
            else:
                lines.pop(job_of_event(event), None)

    def safe(self, seq: int, events: Sequence[Event]) -> None:
        pass

    def text(self, jobs: Sequence[Job], look: Look) -> bytes:
        lines = self.lines
        unknown = [job for job in jobs if job.id not in lines]
        if unknown:
            made: dict[int, list[Line]] = {}
            for row in live_rows(self.world, unknown, named=False):
                made.setdefault(row.id, []).append(line_of(row))
            lines.update({job: tuple(of_job) for job, of_job in made.items()})
        return written([line for job in jobs for line in lines[job.id]], look)


def text_of(rows: Sequence[JobRow], look: Look) -> bytes:
    return written([line_of(row) for row in rows], look)


def written(lines: Sequence[Line], look: Look) -> bytes:
    """Nothing, where there is nothing to show."""
    ages, width, states_shown = Ages(look.now), look.width, look.states
    head = HEADER + TAIL
    out = [f"\x1b[1m{head[:width]}\x1b[0m" if look.is_coloured else head[:width]]
    for before, since, after, is_in in lines:
        if states_shown and is_in not in states_shown:
            continue
        line = f"{before} {ages[since] if since >= 0 else age(-since - 1):>6}  {after}"[:width]
        if len(out) > look.rows_max:
            break
        out.append(painted(line, is_in) if look.is_coloured else line)
    if len(out) == 1:
        return b""
    out.append("")
    return "\n".join(out).encode()


def line_of(row: JobRow) -> Line:
    label = str(row.id)
    if row.index is not None:
        label = f"{row.id}[{row.index}]"
    elif row.tasks is not None:
        label = f"{row.id}[{row.tasks}x]"
    gpus = str(row.gpus) if row.gpus else "-"
    name, user = cut(plain(row.name), NAME_WIDTH), cut(plain(row.user), USER_WIDTH)
    before = (
        f"{label:>8}  {name:<{NAME_WIDTH}}  {user:<{USER_WIDTH}}  "
        f"{cut(row.state, 9):<9} {row.cpus:>4g} {size(row.memory_mib):>5} {gpus:>3}"
    )
    if row.end_ms is not None:
        took = 0 if row.start_ms is None else (row.end_ms - row.start_ms) // 1000
        return before, -took - 1, plain(row.reason or ",".join(row.nodes)), row.state
    if row.start_ms is None:
        return before, row.submit_ms, plain(row.reason), row.state
    nodes = ",".join(row.nodes)
    return before, row.start_ms, plain(f"{nodes}: {row.reason}" if row.reason else nodes), row.state


class Ages(dict[int, str]):
    """Since a moment until now, written once a moment."""

    def __init__(self, now: int) -> None:
        super().__init__()
        self.now = now

    def __missing__(self, since: int) -> str:
        text = self[since] = age((self.now - since) // 1000)
        return text


def age(seconds: int) -> str:
    """Five or six characters, whatever it is."""
    if seconds < 100:
        return f"{max(0, seconds)}s"
    if seconds < 6000:
        return f"{seconds // 60}m{seconds % 60:02}s"
    if seconds < 100 * 3600:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02}m"
    return f"{seconds // 86400}d{seconds % 86400 // 3600:02}h"


def size(mib: int) -> str:
    if not mib:
        return "-"
    return f"{mib}M" if mib < 10_000 else f"{mib / 1024:.0f}G"
