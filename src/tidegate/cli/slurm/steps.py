"""A step: its tasks run as processes of this machine, and are watched until the last has ended."""

import errno
import fcntl
import os
import select
import signal
import sys
import termios
import time
from typing import Any

from tidegate.cli.failure import FailureError
from tidegate.cli.slurm.client import StopError, Talk, put
from tidegate.cli.slurm.pmi import Pmi

FORWARDED = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGCONT)
AGAIN_S = 1.0
"""A second Ctrl-C within that time ends the step."""
KILL_AFTER_S = 5.0
PIECE = 1 << 16


class Task:
    """One rank."""

    def __init__(self, rank: int, plan: dict[str, Any]) -> None:
        self.rank = rank
        self.node: str = plan["node"]
        self.plan = plan
        self.pid = 0
        self.status = -1  # as `wait` has it
        self.feed = -1  # our end of its input


class Stream:
    """Output of one task that goes through us, line by line with its rank before it."""

    def __init__(self, label: bytes, to: int) -> None:
        self.label = label
        self.to = to
        self.rest = b""

    def take(self, octets: bytes) -> None:
        *lines, self.rest = (self.rest + octets).split(b"\n")
        put(self.to, b"".join(self.label + line + b"\n" for line in lines))

    def close(self) -> None:
        if self.rest:
            put(self.to, self.label + self.rest + b"\n")


class Step:
    def __init__(self, plan: dict[str, Any], control: int = -1) -> None:
        self.plan = plan
        self.control = control  # where a client elsewhere sends signals; its end ends the step
        self.tasks = [Task(rank, one) for rank, one in enumerate(plan["ranks"])]
        self.poll = select.poll()
        self.streams: dict[int, Stream] = {}
        self.files: dict[str, int] = {}
        self.source = -1  # our input, while it is copied to all
        self.interrupted = 0.0
        self.kill_at = 0.0
        self.late_at = 0.0  # tasks that run longer than others are ended then
        self.used = [0, 0]  # processor time in ms, peak in KiB
        self.has_terminal = os.isatty(0)
        self.pending: list[int] = []
        self.pmi = Pmi(plan["on_node"], plan["shown"], self.give_up) if plan["pmi"] else None
        self.least = 0  # the exit code is at least that

    # -- beginning ---------------------------------------------------------------------------------------

    def start(self) -> None:
        common = self.environment()
        programs = self.programs()
        nulls = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for task in self.tasks:
            env = common | {os.fsencode(name): os.fsencode(value) for name, value in task.plan["set"].items()}
            self.spawn(task, env, programs[task.rank], nulls)
        os.close(nulls)

    def environment(self) -> dict[bytes, bytes]:
        plan = self.plan
        if plan["env"] is None:
            found = dict(os.environb)
        else:
            found = {os.fsencode(name): os.fsencode(value) for name, value in plan["env"].items()}
        return found | {os.fsencode(name): os.fsencode(value) for name, value in plan["set"].items()}

    def programs(self) -> list[list[str]]:
        """The words of each rank."""
        words: list[str] = self.plan["argv"]
        if not self.plan["multi"]:
            return [words] * len(self.tasks)
        found: list[list[str]] = [[] for _ in self.tasks]
        with open(words[0], encoding="utf-8") as file:
            for line in file:
                ranks, *command = line.split() or [""]
                if not command or ranks.startswith("#"):
                    continue
                for rank in members(ranks, len(self.tasks)):
                    local = str(rank)
                    found[rank] = [word.replace("%t", local).replace("%o", "0") for word in command]
        missing = [str(rank) for rank, command in enumerate(found) if not command]
        if missing:
            raise StopError(f"srun: error: Configuration file {words[0]} has no program for task {','.join(missing)}")
        return found

    def spawn(self, task: Task, env: dict[bytes, bytes], words: list[str], nulls: int) -> None:
        source = self.input_of(task, nulls)
        out, err = self.outputs_of(task)
        theirs = -1
        if self.pmi is not None:
            ours, theirs, told = self.pmi.open(task.rank)
            env |= told
            self.poll.register(ours, select.POLLIN)
        pid = os.fork()
        if pid:
            task.pid = pid
            for fd in {source, out, err, theirs} - {-1, 0, 1, 2, nulls} - set(self.files.values()):
                os.close(fd)
            return
        try:
            env[b"SLURM_TASK_PID"] = str(os.getpid()).encode()
            if theirs >= 0:
                os.set_inheritable(theirs, True)
            become(source, out, err, pty=self.plan["pty"] and self.control >= 0, apart=not self.has_terminal)
            start(task, env, words, self.plan["cwd"])
        finally:
            os._exit(1)

    def input_of(self, task: Task, nulls: int) -> int:
        said = self.plan["input"]
        if said == "none" or (said.isdecimal() and int(said) != task.rank):
            return nulls
        if said == "all":
            if len(self.tasks) == 1:
                return 0
            theirs, ours = os.pipe2(os.O_CLOEXEC)
            task.feed = ours
            return theirs
        if said.isdecimal():
            return 0
        return opened(said, os.O_RDONLY, "stdin")

    def outputs_of(self, task: Task) -> tuple[int, int]:
        out, err = task.plan["out"], task.plan["err"]
        first = self.file(out) if out else self.piped(task, 1)
        if err:
            return first, self.file(err)
        return first, first if out and not self.plan["pty"] else self.piped(task, 2)

    def file(self, path: str) -> int:
        """One descriptor for all tasks that write there."""
        if path not in self.files:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if self.plan["append"] else os.O_TRUNC)
            self.files[path] = opened(path, flags, "stdout")
        return self.files[path]

    def piped(self, task: Task, to: int) -> int:
        if not self.plan["label"]:
            return to
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        width = len(str(len(self.tasks) - 1))
        self.streams[ours] = Stream(f"{task.rank:>{width}}: ".encode(), to)
        self.poll.register(ours, select.POLLIN)
        return theirs

    # -- watching ----------------------------------------------------------------------------------------

    def watch(self, wakes: int) -> int:
        """Until all have ended; the highest exit code."""
        self.poll.register(wakes, select.POLLIN)
        if self.control >= 0:
            self.poll.register(self.control, select.POLLIN)
        if any(task.feed >= 0 for task in self.tasks):
            self.source = 0
            self.poll.register(0, select.POLLIN)
        while any(task.status < 0 for task in self.tasks) or self.streams:
            for fd, _ in self.poll.poll(self.patience_ms()):
                self.hear(fd, wakes)
            self.heed()
            self.reap()
            self.hurry()
        codes = [code_of(task.status) for task in self.tasks]
        return self.least or max(codes, default=0)

    def patience_ms(self) -> int | None:
        times = [at for at in (self.kill_at, self.late_at) if at]
        return max(0, int((min(times) - time.monotonic()) * 1000) + 1) if times else None

    def hear(self, fd: int, wakes: int) -> None:
        if fd == wakes:
            self.pending += os.read(fd, 4096)
        elif fd == self.control:
            said = read_some(fd)
            if not said:
                self.poll.unregister(fd)
                self.end()
            self.pending += said
        elif fd in self.streams:
            self.copy(fd)
        elif self.pmi is not None and fd in self.pmi.ranks:
            if not self.pmi.hear(fd):
                self.poll.unregister(fd)
        elif fd == 0:
            self.give()

    def copy(self, fd: int) -> None:
        octets = read_some(fd)
        if octets:
            self.streams[fd].take(octets)
            return
        self.poll.unregister(fd)
        os.close(fd)
        self.streams.pop(fd).close()

    def give(self) -> None:
        """What comes in, to every task."""
        octets = read_some(0)
        for task in self.tasks:
            if task.feed < 0:
                continue
            try:
                if octets:
                    put(task.feed, octets)
                    continue
            except OSError:
                pass  # it does not read any more
            os.close(task.feed)
            task.feed = -1
        if not octets:
            self.poll.unregister(0)

    def heed(self) -> None:
        """Signals that came, to us or to a client elsewhere."""
        pending, self.pending = self.pending, []
        for number in pending:
            if number == signal.SIGINT:
                self.interrupt()
            elif number in FORWARDED:
                self.send(number)
                if number in {signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}:
                    self.kill_at = self.kill_at or time.monotonic() + KILL_AFTER_S * 6

    def interrupt(self) -> None:
        now = time.monotonic()
        is_asked = not self.has_terminal or self.plan["quit"] or now - self.interrupted < AGAIN_S
        self.interrupted = now
        if is_asked:
            self.send(signal.SIGINT)
            self.kill_at = self.kill_at or now + KILL_AFTER_S
            return
        running = [task.rank for task in self.tasks if task.status < 0]
        tell("srun: interrupt (one more within 1 sec to abort)\n")
        tell(f"srun: StepId={self.plan['shown']} {named(running)}: running\n")

    def send(self, number: int) -> None:
        for task in self.tasks:
            if task.status < 0:
                try:
                    if self.has_terminal:
                        os.kill(task.pid, number)
                    else:
                        os.killpg(task.pid, number)
                except OSError:
                    continue  # it has ended, or just begins

    def give_up(self, code: int) -> None:
        """A rank says that all of them are to end."""
        self.least = code
        self.end()

    def end(self) -> None:
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)
        self.kill_at = self.kill_at or time.monotonic() + KILL_AFTER_S

    def hurry(self) -> None:
        now = time.monotonic()
        if self.kill_at and now >= self.kill_at:
            self.kill_at = 0.0
            self.send(signal.SIGKILL)
        if self.late_at and now >= self.late_at:
            self.late_at = 0.0
            self.end()

    def reap(self) -> None:
        fresh = []
        for task in self.tasks:
            if task.status >= 0:
                continue
            pid, status, usage = os.wait4(task.pid, os.WNOHANG)
            if pid:
                task.status = status
                fresh.append(task)
                self.used[0] += round((usage.ru_utime + usage.ru_stime) * 1000)
                self.used[1] = max(self.used[1], usage.ru_maxrss)
        if not fresh:
            return
        self.tell_ends(fresh)
        if self.plan["wait_s"] and not self.late_at:
            self.late_at = time.monotonic() + self.plan["wait_s"]
        if self.plan["kill"] and any(task.status for task in fresh) and not self.kill_at:
            tell(f"srun: Terminating StepId={self.plan['shown']}\n")
            self.end()

    def tell_ends(self, fresh: list[Task]) -> None:
        """Those of one node that ended alike share a line."""
        if self.plan["quiet"]:
            return
        alike: dict[tuple[str, int], list[int]] = {}
        for task in fresh:
            if task.status:
                alike.setdefault((task.node, task.status), []).append(task.rank)
        for (node, status), ranks in alike.items():
            tell(f"srun: error: {node}: {named(ranks)}: {ended(status)}\n")
        if any(os.WIFSIGNALED(status) for _, status in alike):
            tell(f"srun: Force Terminated StepId={self.plan['shown']}\n")


def members(text: str, count: int) -> list[int]:
    if text == "*":
        return list(range(count))
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        found += range(int(first), int(last if dash else first) + 1)
    return [rank for rank in found if rank < count]


def named(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"task {ranks[0]}"
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return "tasks " + ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def ended(status: int) -> str:
    if os.WIFSIGNALED(status):
        core = " (core dumped)" if os.WCOREDUMP(status) else ""
        return (signal.strsignal(os.WTERMSIG(status)) or f"Signal {os.WTERMSIG(status)}") + core
    return f"Exited with exit code {os.WEXITSTATUS(status)}"


def code_of(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def read_some(fd: int) -> bytes:
    try:
        return os.read(fd, PIECE)
    except OSError:
        return b""


def tell(text: str) -> None:
    put(2, text.encode())


def opened(path: str, flags: int, what: str) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise StopError(f"srun: error: Could not open {what} file {path}: {os.strerror(error.errno or 0)}") from None


# -- the child -----------------------------------------------------------------------------------------------


def become(source: int, out: int, err: int, *, pty: bool, apart: bool) -> None:
    for one in (*FORWARDED, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(one, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (source, out, err)]
    for number, fd in enumerate(high):
        os.dup2(fd, number)
    if pty:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    elif apart:
        os.setpgid(0, 0)


def start(task: Task, env: dict[bytes, bytes], words: list[str], cwd: str) -> None:
    try:
        os.chdir(cwd)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        tell(f"slurmstepd-{task.node}: error: couldn't chdir to `{cwd}': {why}: going to /tmp instead\n")
        os.chdir("/tmp")
    try:
        os.execvpe(words[0], words, env)
    except OSError as error:
        number = error.errno or errno.ENOEXEC
        tell(f"slurmstepd-{task.node}: error: execve(): {words[0]}: {os.strerror(number)}\n")
        sys.stderr.flush()
        os._exit(number)


# -- the whole -----------------------------------------------------------------------------------------------


def run_step(plan: dict[str, Any], control: int = -1) -> tuple[int, Step]:
    wakes, waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    step = Step(plan, control)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (*FORWARDED, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda _number, _frame: None)
    step.start()
    return step.watch(wakes), step


def run(talk: Talk, plan: dict[str, Any]) -> int:
    """Where it was asked: in the allocation. `talk.control` is a client elsewhere, for whom it runs."""
    code, step = run_step(plan, talk.control)
    worst = max(step.tasks, key=lambda task: code_of(task.status))
    killed = os.WTERMSIG(worst.status) if os.WIFSIGNALED(worst.status) else 0
    words = (plan["task"], plan["attempt"], plan["step"], 0 if killed else code, killed, *step.used)
    try:
        talk.ask("-step-end", [str(word) for word in words])
    except FailureError as error:
        tell(f"srun: {error}\n")
    return code
