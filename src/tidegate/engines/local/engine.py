"""The local engine: this machine's processes behind the `Engine` port, by way of the keeper.

It holds nothing that has to last. What runs and how it ended is the keeper's; what should run is the world's;
after any connection both are told to each other, ends first and then an inventory.
"""

import fcntl
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, assert_never

import msgspec

from tidegate.engines.local import link as said
from tidegate.engines.local import saves
from tidegate.engines.local.build import find_launcher
from tidegate.engines.local.link import Link
from tidegate.engines.local.records import Key
from tidegate.engines.local.users import User, UserError, Users
from tidegate.model.base import index_of, job_of
from tidegate.model.engine import (
    Ask,
    Directive,
    Ended,
    Halt,
    Inventory,
    Launch,
    Launched,
    LaunchRefused,
    NodeSeen,
    Notified,
    Notify,
    Report,
    Resume,
    Saved,
    Suspend,
)
from tidegate.model.jobs import CPUS, GPUS, MEMORY, Job, Outcome, Pairs, Used, Work
from tidegate.model.nodes import Node
from tidegate.wire import slurm
from tidegate.wire.outputs import OWN_FILE, errors_path, filled, output_path

PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
GIVEN: Final = frozenset(
    {
        "TIDE_JOB_ID", "TIDE_JOB_NAME", "TIDE_ARRAY_INDEX", "TIDE_ATTEMPT", "TIDE_NODES", "TIDE_CPUS",
        "TIDE_QUEUE", "TIDE_HOME", "TIDE_JOB_STATE", *saves.GIVEN,
    }
)  # fmt: skip
"""A job submitted by a job must not inherit who that one was."""

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
ENVIRONMENTS_OCTETS_MAX: Final = 2 << 20
CANNOT_RUN: Final = 126
SLURM_SLACK_MIB: Final = 256
AS_NOTICE: Final = ("22", "/", "", "", "0", "", os.devnull, "")
"""umask, directory and outputs of a notice, as launcher.c lists them."""

GET_FLAGS, SET_FLAGS, TOP_DIRECTORY = 0x80086601, 0x40086602, 0x00020000

BATCH: Final = "batch"
STEPS: Final = "steps"
"""To whom a signal goes, as `signals.py` has them."""

encode = msgspec.json.encode


class LocalEngine:
    """`devices` are the GPUs of each node; a node without any has none to give. Without `cgroups` no limit holds."""

    def __init__(
        self,
        home: Path,
        nodes: Sequence[Node],
        devices: Mapping[str, Sequence[str]] | None = None,
        launcher: Path | None = None,
        *,
        cgroups: bool = True,
    ) -> None:
        self.home = home.resolve()
        self.nodes = tuple(nodes)
        self.devices = {name: list(of_node) for name, of_node in (devices or {}).items() if of_node}
        for name, mode in (("output", 0o711), ("scripts", 0o711)):
            place = self.home / name
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(mode)  # a job's user goes through, and looks around nowhere
        spread(self.home / "output")
        saves.prepare(self.home)
        self.link = Link(self.home, launcher or find_launcher(), cgroups=cgroups)
        self.users = Users()
        self.heard: list[Key] = []  # ends that the last `reports` gave
        self.own: list[Report] = []  # what needs no keeper to be known
        self.environments: dict[str, int] = {}  # what the keeper holds, and its size; oldest first
        self.scripts: dict[int, set[Key]] = {}  # jobs whose script is written, and the attempts that need it
        self.keeper: said.Hello | None = None
        self.trouble = ""

    # -- the port ----------------------------------------------------------------------------------------

    def deliver(self, directives: Sequence[Directive], now: int) -> None:
        """While there is no keeper nothing is delivered: after the inventory it is all derived again."""
        if not self.link.up:
            return
        for directive in directives:
            match directive:
                case Launch():
                    self._launch(directive, now)
                case Halt():
                    self._say(
                        "halt",
                        task=directive.task,
                        attempt=directive.attempt,
                        outcome=directive.outcome,
                        grace_ms=directive.grace_ms,
                        save=directive.save,
                    )
                case Suspend():
                    self._say("suspend", task=directive.task, attempt=directive.attempt)
                case Resume():
                    self._say("resume", task=directive.task, attempt=directive.attempt)
                case Ask():
                    self._say("ask", task=directive.task, attempt=directive.attempt, number=directive.number)
                case Notify():
                    self._notify(directive, now)
                case _:
                    assert_never(directive)
        self.link.flush()

    def reports(self, now: int) -> Sequence[Report]:
        """What was seen since the last call. What the last call gave is safe by now: the keeper may forget it."""
        if self.heard:
            self._forget()
        reports, self.own = self.own, []
        for message in self.link.read(now):
            self._take(message, reports, now)
        self.link.flush()
        return reports

    def next_at(self) -> int | None:
        return 0 if self.own else self.link.next_at()

    def fileno(self) -> int:
        """Can be read when `reports` has something to do; the same for as long as the engine lives."""
        return self.link.fileno()

    def close(self, *, stop: bool = False) -> None:
        """Jobs run on. With `stop` the keeper goes, unless something runs."""
        if self.heard:
            self._forget()
        self.link.close(stop=stop)

    def notes(self) -> list[str]:
        """What a person should know of this engine."""
        own = [text for text in (self.link.trouble, self.trouble) if text]
        return own + (self.keeper.notes if self.keeper is not None else [])

    def signal(self, task: int, attempt: int, number: int, to: str) -> None:
        """Sends a signal to what runs of the attempt: BATCH its first process, STEPS those below an srun, ALL both, or
        one step by its number. Nothing is kept of it: who has ended meanwhile hears nothing."""
        if self.link.up:
            self._say("signal", task=task, attempt=attempt, signal=number, to=to)
            self.link.flush()

    # -- directives --------------------------------------------------------------------------------------

    def _say(self, what: str, **fields: Any) -> None:
        self.link.send(encode({"do": what, **fields}))

    def _launch(self, launch: Launch, now: int) -> None:
        key, job, work = (launch.task, launch.attempt), launch.job, launch.job.spec.work
        if work is None or not (work.argv or work.script):
            self.own.append(Ended(*key, Outcome.FAILED, CANNOT_RUN, why="the job has no command"))
            return
        try:
            user = self.users.find(job.spec.user, now)
            argv = [*self._script(key, job, work, user), *work.argv]
            saves.make_directory(self.home, job, index_of(launch.task), user)
        except UserError as error:
            self.own.append(Ended(*key, Outcome.FAILED, CANNOT_RUN, why=str(error)))
            return
        except OSError as error:
            self.own.append(LaunchRefused(*key, f"cannot write {error.filename}: {error.strerror}"))
            return
        chunk, chunks = dict(job.spec.shape.chunk), sum(count for _, count in launch.nodes)
        cpus = chunk.get(CPUS, 0) * chunks
        gpus = [
            (self.devices[name], -(-chunk.get(GPUS, 0) * count // 1000))
            for name, count in launch.nodes
            if name in self.devices
        ]
        message: dict[str, Any] = {
            "do": "launch",
            "task": launch.task,
            "attempt": launch.attempt,
            "env": self._environment(launch, user, hidden=bool(gpus)),
            "vars": self._given(launch, cpus, user),
            "cpus": cpus,
            "memory": allowed_memory(chunk.get(MEMORY, 0) * chunks, work),
            "limit_ms": job.spec.limit_ms,
            "grace_ms": work.grace_ms,
            "words": [*user.words, f"{work.umask:o}", work.cwd, *self._outputs(launch, work), *argv],
        }
        if gpus:
            message["gpus"] = gpus
        if job.spec.checkpoint is not None:
            message["checkpoint"] = job.spec.checkpoint.signal
        if work.slurm is not None:
            message["told_as"] = (str(slurm.raw_id(job, index_of(launch.task))), launch.nodes[0][0])
        if work.slurm is not None and work.slurm.signal:
            message["warn"] = (work.slurm.signal, work.slurm.signal_ms, BATCH if work.slurm.signal_batch else STEPS)
        self.link.send(encode(message))

    def _outputs(self, launch: Launch, work: Work) -> tuple[str, ...]:
        """No stdout means a file of the home, no stderr means where stdout goes; retries go on where it ended."""
        job, index, attempt = launch.job, index_of(launch.task), launch.attempt
        return (
            "" if work.stdout else output_path(str(self.home), job, index, attempt),
            errors_path(str(self.home), job, index, attempt) if work.stderr == OWN_FILE else "",
            "1" if work.append or (attempt > 1 and work.slurm is None) else "0",
            *(
                filled(path, job, index, attempt, launch.nodes) if path not in {"", OWN_FILE} else ""
                for path in (work.stdin, work.stdout, work.stderr)
            ),
        )

    def _given(self, launch: Launch, cpus: int, user: User) -> list[str]:
        """What a job is told of itself."""
        spec, index = launch.job.spec, index_of(launch.task)
        given = [
            f"TIDE_JOB_ID={launch.job.id}",
            f"TIDE_JOB_NAME={spec.name}",
            f"TIDE_ATTEMPT={launch.attempt}",
            f"TIDE_NODES={','.join(name for name, _ in launch.nodes)}",
            f"TIDE_CPUS={cpus // 1000}" if cpus % 1000 == 0 else f"TIDE_CPUS={cpus / 1000:g}",
            f"TIDE_QUEUE={spec.queue}",
            f"TIDE_HOME={self.home}",
            *saves.given(self.home, launch),
        ]
        if spec.array is not None:
            given.append(f"TIDE_ARRAY_INDEX={index}")
        if spec.work is not None and spec.work.slurm is not None:
            ids = (os.getuid(), os.getgid()) if user.ids is None else user.ids[:2]
            named = slurm.variables(launch.job, index, launch.attempt, launch.nodes, ids, str(self.home))
            given += [f"{name}={value}" for name, value in named.items()]
        return given

    def _environment(self, launch: Launch, user: User, *, hidden: bool) -> str:
        """The name of the environment, which is sent before it is first used."""
        work = launch.job.spec.work
        name = f"{work.env if work else ''} {launch.job.spec.user}{' gpus' if hidden else ''}"
        if name in self.environments:
            self.environments[name] = self.environments.pop(name)  # used last
            return name
        entries = environment(launch.env, user.entries, GIVEN | {VISIBLE} if hidden else GIVEN)
        line = encode({"do": "env", "name": name, "entries": entries})
        self.environments[name] = len(line)
        self.link.send(line)
        while sum(self.environments.values()) > ENVIRONMENTS_OCTETS_MAX and len(self.environments) > 1:
            oldest = next(iter(self.environments))
            del self.environments[oldest]
            self._say("env", name=oldest, entries=None)
        return name

    def _notify(self, notify: Notify, now: int) -> None:
        job, work = notify.job, notify.job.spec.work
        try:
            user = self.users.find(job.spec.user, now)
        except UserError as error:
            self.trouble = f"job {job.id} cannot notify: {error}"
            self.own.append(Notified(job.id))
            return
        given = [
            f"TIDE_JOB_ID={job.id}",
            f"TIDE_JOB_NAME={job.spec.name}",
            f"TIDE_JOB_STATE={notify.outcome}",
            f"TIDE_HOME={self.home}",
        ]
        entries = [*environment(notify.env, user.entries, GIVEN), *given]
        words = [*user.words, *AS_NOTICE, "/bin/sh", "-c", work.notify if work else ""]
        self._say("notify", job=job.id, words=words, entries=entries)

    # -- scripts -----------------------------------------------------------------------------------------

    def _script(self, key: Key, job: Job, work: Work, user: User) -> list[str]:
        """The path of the script, written when the first attempt needs it."""
        if not work.script:
            return []
        path = self.home / "scripts" / str(job.id)
        if job.id not in self.scripts or not path.exists():
            aside = path.with_suffix(".new")
            aside.unlink(missing_ok=True)
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
            with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
                file.write(work.script)
                if user.ids is not None:
                    os.fchown(fd, user.ids[0], user.ids[1])
            aside.replace(path)
        self.scripts.setdefault(job.id, set()).add(key)
        return [str(path)]

    def _forget(self) -> None:
        self._say("forget", attempts=self.heard)
        for key in self.heard:
            job = job_of(key[0])
            needed_by = self.scripts.get(job)
            if needed_by is not None:
                needed_by.discard(key)
                if not needed_by:
                    del self.scripts[job]
                    (self.home / "scripts" / str(job)).unlink(missing_ok=True)
        self.heard.clear()

    def _keep_scripts_of(self, running: Sequence[Key]) -> None:
        """After a restart: what no attempt needs is removed, whoever wrote it."""
        for task, attempt in running:
            self.scripts.setdefault(job_of(task), set()).add((task, attempt))
        for path in (self.home / "scripts").iterdir():
            if not path.name.isdecimal() or int(path.name) not in self.scripts:
                path.unlink(missing_ok=True)
        written = {int(path.name) for path in (self.home / "scripts").iterdir() if path.name.isdecimal()}
        self.scripts = {job: keys for job, keys in self.scripts.items() if job in written}

    # -- reports -----------------------------------------------------------------------------------------

    def _take(self, message: said.Message, reports: list[Report], now: int) -> None:
        match message:
            case said.Hello():
                self.keeper, self.trouble = message, message.trouble
                self.environments.clear()
                self._say("inventory", ask=now)
                reports.extend(NodeSeen(node) for node in self.nodes)
            case said.Launched():
                reports.append(Launched(message.task, message.attempt))
            case said.Ended():
                reports.append(ended(message))
                self.heard.append((message.task, message.attempt))
            case said.Saved():
                reports.append(Saved(message.task, message.attempt, message.number, message.kept_ms, message.size_mib))
            case said.Notified():
                reports.append(Notified(message.job))
            case said.Inventory():
                self._keep_scripts_of(message.running)
                reports.append(Inventory(message.ask, tuple(message.running)))
            case said.Trouble():
                self.trouble = message.why
            case said.Staying():
                pass  # the answer to `close`, which hears it itself
            case _:
                assert_never(message)


def spread(directory: Path) -> None:
    """Asks the file system to put what is in it far apart (`chattr +T`), where it knows how.

    ext4 looks for the number of a new file among all that were freed nearby in the last seconds: beside a busy
    /tmp that costs more than all the rest of a short job.
    """
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        flags = bytearray(8)
        fcntl.ioctl(fd, GET_FLAGS, flags)
        wanted = int.from_bytes(flags, sys.byteorder) | TOP_DIRECTORY
        fcntl.ioctl(fd, SET_FLAGS, wanted.to_bytes(8, sys.byteorder))
    except OSError:
        pass  # another file system, or not ours to say
    finally:
        os.close(fd)


def allowed_memory(mib: int, work: Work) -> int:
    """Where more is taken it ends. Slurm's users name what their program needs, by a number that no default cluster
    holds it to, and not what starts it (an interpreter, a workflow's own helper): they get room beyond it."""
    return mib if work.slurm is None or not mib else 2 * mib + SLURM_SLACK_MIB


def ended(message: said.Ended) -> Ended | LaunchRefused:
    if message.outcome == "refused":
        return LaunchRefused(message.task, message.attempt, message.why)
    return Ended(
        message.task,
        message.attempt,
        Outcome(message.outcome),
        message.code,
        message.signal,
        Used(*message.used),
        message.why,
    )


def environment(pairs: Pairs, usual: Mapping[str, str], without: frozenset[str]) -> list[str]:
    """What was submitted, with what any login has where that says nothing, and without what only we may say."""
    merged = {"PATH": PATH, **usual, **dict(pairs)}
    return [f"{name}={value}" for name, value in merged.items() if name not in without and name and "=" not in name]
