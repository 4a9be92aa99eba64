"""The real loop on a real journal in real time, with Slurm behind the engine port."""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event as Arrival
from time import monotonic, time_ns

from tests.slurm.engine import SlurmEngine
from tidegate.journals.sqlite import SqliteJournal
from tidegate.loop.loop import Loop
from tidegate.loop.recovery import recover
from tidegate.model import engine as en
from tidegate.model.base import task_key
from tidegate.model.commands import Cancel, Command, Refused, Submit
from tidegate.model.events import Event, JobEnded, JobStarted
from tidegate.model.jobs import CPUS, MEMORY, JobSpec, Shape, Work, amounts
from tidegate.world.world import World

WAIT_S_MAX = 60
MINUTE_MS = 60_000


class RealClock:
    def __init__(self) -> None:
        self.last = 0
        self.arrived = Arrival()

    def now(self) -> int:
        self.last = max(self.last, time_ns() // 1_000_000)
        return self.last

    def wait(self, until: int | None) -> bool:
        if until is not None:
            self.arrived.wait(max(0, until - self.now()) / 1000)
        self.arrived.clear()
        return True


class Wishes:
    """The inbox: what a test wants, and what it was told."""

    def __init__(self, clock: RealClock) -> None:
        self.clock = clock
        self.waiting: list[Command] = []
        self.answers: list[Refused | tuple[Event, ...]] = []

    def send(self, command: Command) -> None:
        self.waiting.append(command)
        self.clock.arrived.set()

    def take(self, now: int, at_most: int) -> Sequence[Command]:
        taken, self.waiting = self.waiting[:at_most], self.waiting[at_most:]
        return taken

    def answer(self, command: Command, result: Refused | tuple[Event, ...]) -> None:
        self.answers.append(result)

    def next_at(self) -> int | None:
        return 0 if self.waiting else None


class Wire:
    """Between the loop and the engine; keeps what passed."""

    def __init__(self, engine: SlurmEngine) -> None:
        self.engine = engine
        self.sent: list[en.Directive] = []
        self.heard: list[en.Report] = []
        self.next_at = engine.next_at

    def deliver(self, directives: Sequence[en.Directive], now: int) -> None:
        self.sent += directives
        self.engine.deliver(directives, now)

    def reports(self, now: int) -> Sequence[en.Report]:
        reports = self.engine.reports(now)
        self.heard += reports
        return reports


class Site:
    def __init__(self, folder: Path, partition: str) -> None:
        self.folder, self.partition = folder, partition
        self.records = folder / "records"
        self.records.mkdir()
        self.clock = RealClock()
        self.inbox = Wishes(self.clock)
        self.begin(World())

    def begin(self, world: World) -> None:
        self.journal = SqliteJournal(self.folder / "journal.db")
        self.wire = Wire(SlurmEngine(self.folder.name, self.records, self.partition))
        self.loop = Loop(world, self.clock, self.journal, self.wire, self.inbox)

    def die(self) -> None:
        """Nothing but the disk and Slurm is left; what was not flushed is gone."""
        self.journal.db.close()

    def rise(self) -> None:
        self.begin(recover(SqliteJournal(self.folder / "journal.db", readonly=True)))

    # -- acting ------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], bool]) -> None:
        give_up = monotonic() + WAIT_S_MAX
        while not condition():
            assert monotonic() < give_up, f"not so after {WAIT_S_MAX} s; reports: {self.wire.heard[-20:]}"
            self.loop.turn()

    def submit(self, *argv: str, nodes: int = 1) -> int:
        """The task of the new job."""
        shape = Shape(amounts(**{CPUS: 1000, MEMORY: 50}), nodes)
        work = Work(argv, cwd=str(self.folder), stdout=str(self.folder / "%j.out"))
        self.inbox.send(Submit(JobSpec("somebody", shape, MINUTE_MS, work=work)))
        job = self.loop.world.next_job
        self.until(lambda: self.loop.world.next_job > job)
        return task_key(job)

    def cancel(self, job: int) -> None:
        self.inbox.send(Cancel(job))

    # -- looking -----------------------------------------------------------------------------------------

    def events(self) -> list[Event]:
        """As the disk has them."""
        journal = SqliteJournal(self.folder / "journal.db", readonly=True)
        events = list(journal.read())
        journal.close()
        return events

    def started(self, task: int) -> list[JobStarted]:
        return [event for event in self.events() if isinstance(event, JobStarted) and event.task == task]

    def ends(self, task: int) -> list[JobEnded]:
        return [event for event in self.events() if isinstance(event, JobEnded) and event.task == task]

    def end_of(self, task: int) -> JobEnded:
        self.until(lambda: task not in self.loop.world.runs and bool(self.ends(task)))
        (end,) = self.ends(task)
        return end

    def runs(self, task: int) -> bool:
        """The engine said that it has begun."""
        world = self.loop.world
        return task in world.runs and task not in world.launching
