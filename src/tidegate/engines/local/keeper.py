"""The keeper: a small process that outlives the server, starts its jobs and knows how each of them ended.

Run as `python -I -S -E -c BOOT HOME LAUNCHER [without-cgroups]`; one a home, which a lock decides. It serves one
connection at a time and reads the old one to its end before the next, so what a killed server said comes before
what its successor says. Both sides speak JSON, one object a line; docs/decisions/0011-keeper.md lists them.
"""

import fcntl
import gc
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from tidegate.engines.local.cgroups import Cgroups, Mount, mounts
from tidegate.engines.local.jobs import Jobs
from tidegate.engines.local.notices import Notices
from tidegate.engines.local.poll import Poll, clock_ms
from tidegate.engines.local.records import Records, quoted
from tidegate.engines.local.saving import clear
from tidegate.engines.local.starts import Starts
from tidegate.engines.local.takeover import take_over
from tidegate.wire.sockets import reach

PROTOCOL = 2
LINE_MAX = 16 << 20
READ_MAX = 1 << 16
UNSENT_MAX = 64 << 20
LOG_MAX = 1 << 20
IDLE_MS_MAX = 60_000
FINDABLE_MS = 1_000
RETRY_MS = 1_000
FAULTS_MAX = 1_000
GC_AFTER = 20_000
READY = 3
LOCKED = 17
WITHOUT_CGROUPS = "without-cgroups"
OOM_SCORE = "/proc/self/oom_score_adj"
OOM_ADJUST = -900

Message = dict[str, Any]

scan: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder())["scan_once"]
"""What `json.loads` comes to in the end, without a fifth of a job's time in Python on the way."""


class Keeper:
    def __init__(self, home: str, program: str, hierarchies: list[Mount]) -> None:
        self.home = home
        self.place = f"{home}/keeper"
        self.poll = Poll()
        self.records = Records(self.place)
        lost = take_over(home, self.records)
        if lost:
            log(f"{lost} attempts of an earlier keeper are lost")
        asks = f"{home}/asks"
        clear(asks)
        own = f"tidegate-{os.getpid()}-{clock_ms()}"  # not after the home: its number is used again, as its places were
        self.cgroups = Cgroups(own, f"{self.place}/cgroups", hierarchies)
        self.starts = Starts(self.poll, program, spared_from_oom())
        self.jobs = Jobs(home, self.poll, self.starts, self.records, self.cgroups, self.say, asks)
        self.notices = Notices(self.poll, self.starts, self.say)
        self.server: socket.socket | None = None
        self.unread = b""
        self.unsent = bytearray()
        self.outbox: list[str] = []
        self.retrying = False
        self.asked_to_leave = False
        self.idle_since = clock_ms()
        self.faults = 0
        self.does: dict[str, Callable[[Message, int], None]] = {
            "launch": self.jobs.launch,
            "halt": self.jobs.halt,
            "suspend": self.jobs.suspend,
            "resume": self.jobs.resume,
            "ask": self.jobs.ask,
            "signal": lambda message, _now: self.jobs.signal(message),
            "forget": lambda message, _now: self.jobs.forget(message),
            "env": lambda message, _now: self.jobs.keep_environment(message),
            "notify": self.notices.ask,
            "inventory": self.inventory,
            "stop": self.stop,
        }
        self.path = f"{self.place}/sock"
        self.listening = listen(self.path)
        self.poll.watch(self.listening.fileno(), self.accept)
        self.poll.at(clock_ms() + IDLE_MS_MAX, self.look_around)
        self.poll.at(clock_ms() + FINDABLE_MS, self.stay_findable)
        self.children = self.watch_children()

    def watch_children(self) -> int:
        """A descriptor that can be read when a child has ended."""
        reading, writing = os.pipe()
        for end in (reading, writing):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda _signal, _frame: None)
        signal.signal(signal.SIGTERM, lambda _signal, _frame: setattr(self, "asked_to_leave", True))
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        self.poll.watch(reading, self.drain)
        return reading

    def drain(self, now: int) -> None:
        os.read(self.children, 4096)
        self.starts.reap(now)
        if self.asked_to_leave:
            self.asked_to_leave = False
            self.leave_if_idle(now)

    def run(self) -> None:
        while True:
            try:
                self.poll.wait()
                self.finish_turn(clock_ms())
            except Exception as error:  # noqa: BLE001 - a fault in one message must not take every job with it
                self.fault(error)

    def fault(self, error: Exception) -> None:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = "" if trace is None else f" at {trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}"
        log(f"fault{where}: {type(error).__name__}: {error}")
        self.faults += 1
        if self.faults > FAULTS_MAX:
            raise error
        self.poll.at(clock_ms() + RETRY_MS, self.starts.reap)  # no child is signalled twice

    def finish_turn(self, now: int) -> None:
        """Ends are on record before they are told; of all that is told in a turn one write is made."""
        self.starts.hand_over()
        if self.jobs.leaving:
            self.jobs.check_leaving(now)
        if not self.records.write() and not self.retrying:
            self.retrying = True
            self.say_trouble(self.records.trouble)
            log(self.records.trouble)
            self.poll.at(now + RETRY_MS, self.retry)
        self.records.tidy()
        self.send()

    def retry(self, _now: int) -> None:
        self.retrying = False
        if self.records.write():
            self.say_trouble("")

    # -- the server --------------------------------------------------------------------------------------

    def accept(self, _now: int) -> None:
        try:
            self.server, _ = self.listening.accept()
        except OSError:
            return
        self.poll.unwatch(self.listening.fileno())
        self.server.setblocking(False)
        self.poll.watch(self.server.fileno(), self.hear)
        self.jobs.environments.clear()
        limits = self.cgroups.version
        hello = {
            "is": "hello",
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "running": len(self.jobs.live),
            "limits": limits,
            "launcher": "interpreted" if self.starts.program.endswith(".py") else "compiled",
            "notes": self.cgroups.notes,
            "trouble": self.records.trouble,
        }
        self.outbox = [json.dumps(hello) + "\n"]

    def stay_findable(self, now: int) -> None:
        """Somebody tidies old files away: without the socket the next server would not find this keeper, without
        the lock it would start another one beside it, and without the record nothing could start."""
        self.poll.at(now + FINDABLE_MS, self.stay_findable)
        try:
            self.put_back_what_is_gone()
        except OSError as error:
            log(f"cannot put back what was removed from {self.place}: {error.strerror}")

    def put_back_what_is_gone(self) -> None:
        if not os.access(self.home, os.F_OK) or not (os.access(f"{self.place}/lock", os.F_OK) or lock(self.home)):
            return
        if not os.access(self.path, os.F_OK):
            self.poll.unwatch(self.listening.fileno())
            self.listening.close()
            self.listening = listen(self.path)
            if self.server is None:
                self.poll.watch(self.listening.fileno(), self.accept)
        if self.records.is_gone():
            self.records.renew({run.key: run.pid for run in self.jobs.live.values() if run.pid})

    def hear(self, now: int) -> None:
        server = self.server
        if server is None:
            return
        try:
            text = server.recv(READ_MAX)
        except BlockingIOError:
            return
        except OSError:
            text = b""
        if not text:
            self.hang_up(now)
            return
        lines = (self.unread + text).split(b"\n") if b"\n" in text else [self.unread + text]
        self.unread = lines.pop()
        for line in lines:
            self.obey(line, now)
        if len(self.unread) > LINE_MAX:
            log(f"hung up: a line of more than {LINE_MAX} octets")
            self.hang_up(now)

    def obey(self, line: bytes, now: int) -> None:
        try:
            message, _ = scan(line.decode(), 0)
            self.does[message["do"]](message, now)
        except (ValueError, TypeError, LookupError, AttributeError, StopIteration) as error:
            log(f"not understood: {line[:200]!r}: {type(error).__name__}: {error}")
            self.say_trouble(f"the keeper did not understand the server: {error!r}")

    def hang_up(self, now: int) -> None:
        if self.server is not None:
            self.poll.unwatch(self.server.fileno())
            self.server.close()
            self.poll.watch(self.listening.fileno(), self.accept)
        self.server = None
        self.unread = b""
        self.unsent.clear()
        self.outbox.clear()
        self.idle_since = now

    def say(self, line: str) -> None:
        if self.server is not None:
            self.outbox.append(line)

    def say_trouble(self, why: str) -> None:
        self.say(f'{{"is":"trouble","why":{quoted(why)}}}\n')

    def send(self) -> None:
        server = self.server
        if server is None or not (self.outbox or self.unsent):
            return
        self.unsent += "".join(self.outbox).encode()
        self.outbox.clear()
        try:
            while self.unsent:
                del self.unsent[: server.send(self.unsent)]
        except BlockingIOError:
            self.poll.when_writable(server.fileno(), lambda _now: self.send())
            if len(self.unsent) > UNSENT_MAX:
                log("hung up: the server does not listen")
                self.hang_up(clock_ms())
            return
        except OSError:
            self.unsent.clear()  # it is gone; what it said before is still read to its end
        self.poll.when_writable(server.fileno(), None)

    def inventory(self, message: Message, _now: int) -> None:
        """All that is unheard, and then all that runs."""
        self.jobs.tell_unheard()
        self.say(json.dumps({"is": "inventory", "ask": message["ask"], "running": list(self.jobs.live)}) + "\n")

    # -- leaving -----------------------------------------------------------------------------------------

    def busy(self) -> bool:
        return bool(self.jobs.live or self.starts.ordered or self.notices.waiting)

    def stop(self, _message: Message, now: int) -> None:
        self.leave_if_idle(now)

    def leave_if_idle(self, now: int) -> None:
        if self.busy():
            log("told to stop, and stays: jobs run")
            self.say(f'{{"is":"staying","running":{len(self.jobs.live)}}}\n')
            return
        self.finish_turn(now)
        self.leave()

    def leave(self) -> None:
        remove(self.path)
        self.records.tidy(idle=True)
        self.cgroups.close()
        sys.exit(0)

    def look_around(self, now: int) -> None:
        """Now and then: tidies, and leaves where nobody needs it or its home is gone."""
        self.poll.at(now + IDLE_MS_MAX, self.look_around)
        self.cgroups.tidy()
        if self.server is not None or self.busy():
            self.idle_since = now
            return
        self.records.tidy(idle=True)
        gone = not os.access(self.place, os.F_OK)
        if gone or (now - self.idle_since >= IDLE_MS_MAX and not self.records.unwritten):
            self.leave()


def spared_from_oom() -> str:
    """Makes the kernel choose anybody before the keeper; the answer is what its jobs are set back to."""
    try:
        with open(OOM_SCORE, "r+", encoding="ascii") as file:
            before = file.read().strip()
            file.seek(0)
            file.write(str(OOM_ADJUST))
    except OSError:
        return ""  # only root may
    return before


def lock(home: str) -> bool:
    """Held for as long as this process lives. False: another keeper has it."""
    os.makedirs(f"{home}/keeper", 0o700, exist_ok=True)
    fd = os.open(f"{home}/keeper/lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return False
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return True


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def listen(path: str) -> socket.socket:
    """The lock is ours, so a socket that is there is a dead keeper's."""
    remove(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        reach(path, listening.bind)
    finally:
        os.umask(before)
    listening.listen(16)
    listening.setblocking(False)
    return listening


def log(text: str) -> None:
    """To the file that the server gave as standard error. A full disk only loses the line."""
    try:
        if os.fstat(2).st_size > LOG_MAX:
            os.ftruncate(2, 0)
        os.write(2, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n".encode(errors="replace"))
    except OSError:
        pass


def main(home: str, program: str, cgroups: str = "") -> None:
    """Descriptor 3 tells who started us: closed without a word is ready, else what is wrong."""
    try:
        os.set_inheritable(READY, False)
        os.chdir("/")
        if not lock(home):
            sys.exit(LOCKED)
        keeper = Keeper(home, program, [] if cgroups == WITHOUT_CGROUPS else mounts())
    except OSError as error:
        os.write(READY, f"{error.strerror}: {error.filename or home}".encode())
        sys.exit(1)
    os.close(READY)
    gc.freeze()
    gc.set_threshold(GC_AFTER)  # what a job leaves is freed without it
    keeper.run()
