"""The queue as text, for people. Lines of jobs that did not change are kept, so a long queue costs little."""

from collections.abc import Sequence

from tidegate.api.rows import live_rows
from tidegate.model import events as ev
from tidegate.model.base import job_of
from tidegate.model.events import Event
from tidegate.model.jobs import Job
from tidegate.wire.api import JobRow
from tidegate.world.world import World

COLUMNS_DEFAULT = 80
NAME_WIDTH = 14
USER_WIDTH = 8
HEADER = f"{'JOB':>10}  {'NAME':<{NAME_WIDTH}}  {'USER':<{USER_WIDTH}}  {'STATE':<8} {'CPUS':>5} {'MEM':>5} {'GPU':>3}"
TAIL = f" {'TIME':>6}  NODES / WHY"
Line = tuple[str, int, str, str]
"""What goes before the time, since when the time counts, what goes after it; and the state."""


def job_of_event(event: Event) -> int:
    """The job that an event is about; 0: none."""
    match event:
        case ev.JobSubmitted():
            return event.job.id
        case ev.JobReady() | ev.JobHeld() | ev.JobReleased() | ev.JobDropped() | ev.NoticeSent():
            return event.job
        case (
            ev.JobStarted()
            | ev.JobLaunched()
            | ev.HaltRequested()
            | ev.AttemptLost()
            | ev.AttemptFailed()
            | ev.TaskRested()
            | ev.JobEnded()
            | ev.EstimateRaised()
        ):
            return job_of(event.task)
        case _:
            return 0


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

    def text(self, jobs: Sequence[Job], now: int, columns: int, state: str = "") -> bytes:
        lines = self.lines
        unknown = [job for job in jobs if job.id not in lines]
        if unknown:
            made: dict[int, list[Line]] = {}
            for row in live_rows(self.world, unknown):
                made.setdefault(row.id, []).append(line_of(row))
            lines.update({job: tuple(of_job) for job, of_job in made.items()})
        ages = Ages(now)
        out = [HEADER + TAIL]
        for job in jobs:
            for before, since, after, is_in in lines[job.id]:
                if not state or state == is_in:
                    out.append(f"{before} {ages[since]:>6}  {after}"[:columns])
        out.append("")
        return "\n".join(out).encode()


def line_of(row: JobRow) -> Line:
    label = str(row.id)
    if row.index is not None:
        label = f"{row.id}[{row.index}]"
    elif row.tasks is not None:
        label = f"{row.id}[{row.tasks}x]"
    gpus = str(row.gpus) if row.gpus else "-"
    before = (
        f"{label:>10}  {cut(row.name, NAME_WIDTH):<{NAME_WIDTH}}  {cut(row.user, USER_WIDTH):<{USER_WIDTH}}  "
        f"{row.state:<8} {row.cpus:>5g} {size(row.memory_mib):>5} {gpus:>3}"
    )
    if row.start_ms is None:
        return before, row.submit_ms, plain(row.reason), row.state
    return before, row.start_ms, plain(",".join(row.nodes)), row.state


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


def cut(text: str, width: int) -> str:
    text = plain(text)
    return text if len(text) <= width else text[: width - 1] + "…"


def plain(text: str) -> str:
    """Names come from users: nothing in them may move the cursor of whoever looks."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


