"""A local engine under test: real processes, waited for by their reports and never by the clock."""

import itertools
import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tidegate.engines.local.build import FALLBACK, find_launcher
from tidegate.engines.local.engine import LocalEngine
from tidegate.engines.local.nodes import Machine, declare
from tidegate.engines.local.trees import everyone
from tidegate.model.base import task_key
from tidegate.model.engine import Ended, Halt, Inventory, Launch, Launched, LaunchRefused, Report
from tidegate.model.jobs import Array, Job, JobSpec, Outcome, Pairs, Shape, Work, amounts

PATIENCE_S = 60
USER = "root" if os.geteuid() == 0 else os.environ.get("USER", str(os.geteuid()))
LAUNCHERS = ["compiled", "interpreted"]
PYTHON = shutil.which("python3") or "python3"

Kind = TypeVar("Kind", bound=Report)
Key = tuple[int, int]


def launcher(kind: str) -> Path:
    return FALLBACK if kind == "interpreted" else find_launcher()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Local:
    """One engine on one home. Another on the same home is the next server."""

    ids = itertools.count(1)

    def __init__(self, home: Path, machine: Machine | None = None, kind: str = "compiled", **options: Any) -> None:
        self.home = home
        self.machine = machine or declare(1, 4, 4096)
        self.engine = LocalEngine(home, self.machine.nodes, self.machine.devices, launcher(kind), **options)
        self.seen: list[Report] = []
        self.wait_for(lambda: self.of(Inventory))

    # -- asking ------------------------------------------------------------------------------------------

    def job(self, *argv: str, user: str = USER, limit_ms: int = 600_000, name: str = "test", **work: Any) -> Job:
        chunk = {kind: work.pop(kind) for kind in ("memory", "gpus") if kind in work}
        shape = Shape(amounts(cpus=work.pop("cpus", 1000), **chunk))
        array = Array((0, 1, 7)) if work.pop("array", False) else None
        spec = JobSpec(user, shape, limit_ms, name=name, array=array, work=Work(argv, **work))
        return Job(next(self.ids), now_ms(), limit_ms, "main", spec)

    def launch(self, job: Job, attempt: int = 1, index: int = 0, env: Pairs = (), node: str = "") -> Key:
        key = (task_key(job.id, index), attempt)
        placed = ((node or self.machine.nodes[0].name, 1),)
        self.engine.deliver([Launch(*key, job, placed, env)], now_ms())
        return key

    def run(self, *argv: str, **work: Any) -> Ended:
        return self.end_of(self.launch(self.job(*argv, **work)))

    def halt(self, key: Key, grace_ms: int = 0, outcome: Outcome = Outcome.CANCELLED) -> None:
        self.engine.deliver([Halt(*key, outcome, grace_ms)], now_ms())

    # -- hearing -----------------------------------------------------------------------------------------

    def hear(self, at_most_s: float = 0.05) -> None:
        select.select([self.engine.fileno()], [], [], at_most_s)
        self.seen += self.engine.reports(now_ms())

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [report for report in self.seen if isinstance(report, kind)]

    def wait_for(self, found: Callable[[], Any]) -> Any:
        until = time.monotonic() + PATIENCE_S
        while not (answer := found()):
            assert time.monotonic() < until, (self.seen, self.engine.notes(), self.log())
            self.hear()
        return answer

    def ends_of(self, key: Key) -> list[Ended]:
        return [end for end in self.of(Ended) if (end.task, end.attempt) == key]

    def end_of(self, key: Key) -> Ended:
        end: Ended = self.wait_for(lambda: self.ends_of(key))[-1]
        return end

    def refusals_of(self, key: Key) -> list[LaunchRefused]:
        return [report for report in self.of(LaunchRefused) if (report.task, report.attempt) == key]

    def refusal_of(self, key: Key) -> LaunchRefused:
        refusal: LaunchRefused = self.wait_for(lambda: self.refusals_of(key))[-1]
        return refusal

    def started(self, key: Key) -> None:
        self.wait_for(lambda: [report for report in self.of(Launched) if (report.task, report.attempt) == key])

    def look(self) -> set[Key]:
        """What runs, by an inventory of now."""
        before = len(self.of(Inventory))
        self.engine.link.send(b'{"do":"inventory","ask":0}')
        self.engine.link.flush()
        self.wait_for(lambda: len(self.of(Inventory)) > before)
        return set(self.of(Inventory)[-1].running)

    # -- looking -----------------------------------------------------------------------------------------

    @property
    def keeper(self) -> int:
        assert self.engine.keeper is not None
        return self.engine.keeper.pid

    def log(self) -> str:
        path = self.home / "keeper" / "log"
        return path.read_text() if path.exists() else ""

    def output(self, job: Job) -> str:
        return (self.home / "output" / str(job.id // 1000) / f"{job.id}.out").read_text()

    def wait_for_text(self, path: Path, text: str = "") -> str:
        def there() -> str:
            return path.read_text() if path.exists() else ""

        self.wait_for(lambda: (text or "\n") in there())
        return there()

    def close(self) -> None:
        """Nothing is left running, whatever the test has done."""
        keeper = self.keeper
        for key in self.look():
            self.halt(key)
        self.wait_for(lambda: not self.look())
        self.hear()
        self.engine.close(stop=True)
        wait_until_gone(keeper)


def wait_until_gone(pid: int) -> None:
    until = time.monotonic() + PATIENCE_S
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([fd], [], [], until - time.monotonic())[0], f"process {pid} does not end"
    finally:
        os.close(fd)
    with suppress(ChildProcessError):  # somebody else's child
        os.waitpid(pid, 0)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)


def carrying(text: str) -> list[int]:
    """Processes with this in their command line."""
    return [pid for pid in everyone() if text.encode() in command_line(pid)]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def local_engines(home: Path, **options: Any) -> Iterator[Local]:
    """For fixtures."""
    local = Local(home, **options)
    yield local
    local.close()
