"""The desk: one request of a Slurm command is one answer of output and exit code, or the next thing its client does."""

import socket
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from tidegate.api.access import Access, Peer
from tidegate.api.follow import Waits
from tidegate.api.http import Request
from tidegate.api.live import LiveInbox, Result
from tidegate.api.past import Past
from tidegate.api.service import Facts
from tidegate.api.words import RefusedError, problem
from tidegate.model.commands import Command, Refused
from tidegate.model.jobs import Job
from tidegate.ports import JournalError
from tidegate.slurm.steps import Steps
from tidegate.slurm.words import FaultError
from tidegate.world.world import World

WAIT_S = 20.0
KIND = b"application/octet-stream"
ARGUMENTS_MAX = 100_000
HEAD_WORDS = 3
FED, MADE = 1, 2
"""What a client has done for this call: read the input, made directories."""
VERSION = "slurm-wlm 22.05.8"

SendSignal = Callable[[int, int, int, str], None]
"""Task, attempt, signal, and to whom: see `engines/local/signals.py`."""


class Answer(NamedTuple):
    out: str = ""
    err: str = ""
    code: int = 0
    then: dict[str, Any] | None = None  # what the client does next


@dataclass(slots=True)
class Call:
    """A command as its user gave it."""

    name: str
    words: list[str]
    cwd: str
    umask: int
    host: str
    key: str
    place: str  # the directory of the command, where the others are too
    env: dict[str, str]
    is_fed: bool  # `given` is there, read by the client
    has_made: bool  # it has made directories, as far as it could
    given: bytes
    peer: Peer
    now: int
    request: Request
    is_over: bool = field(default=False)

    def answer(self, out: str = "", err: str = "", code: int = 0, then: dict[str, Any] | None = None) -> None:
        """Once; what comes later is not heard."""
        if self.is_over:
            return
        self.is_over = True
        first, second = encoded(out), encoded(err)
        rest = msgspec.json.encode(then) if then is not None else b""
        self.request.answer(200, b"%d %d %d\n%b%b%b" % (code, len(first), len(second), first, second, rest), KIND)

    def say(self, answer: Answer) -> None:
        self.answer(*answer)

    def fail(self, fault: FaultError) -> None:
        self.answer(fault.out, fault.text, fault.code)


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def read_call(name: str, request: Request, now: int) -> Call:
    """RefusedError for what no client of ours has sent."""
    head, _, rest = request.body.partition(b"\n")
    numbers = [int(word) if word.isdigit() else ARGUMENTS_MAX for word in head.split()[:HEAD_WORDS]]
    argc, envc, fed = numbers if len(numbers) == HEAD_WORDS else (ARGUMENTS_MAX, 0, 0)
    parts = rest.split(b"\0", argc + envc + 5) if argc + envc < ARGUMENTS_MAX else []
    if len(parts) != argc + envc + 6:
        raise RefusedError(400, "that is no call of a Slurm command", "use the commands of `tide slurm install`")
    cwd, umask, host, key, place = [part.decode("utf-8", "replace") for part in parts[:5]]
    words = [part.decode("utf-8", "replace") for part in parts[5 : 5 + argc]]
    env = {}
    for pair in parts[5 + argc : -1]:
        variable, _, value = pair.partition(b"=")
        try:
            env[variable.decode()] = value.decode()
        except UnicodeDecodeError:
            continue  # a journal holds text
    env.pop("", None)
    mask = int(umask, 8) if umask.isdecimal() else 0o022
    return Call(
        name, words, cwd or "/", mask, host, key, place, env, bool(fed & FED), bool(fed & MADE), parts[-1],
        request.peer, now, request,
    )  # fmt: skip


Run = Callable[["Desk", Call], None]
"""Answers the call, now or later."""


class Desk:
    """What commands can reach of the server."""

    def __init__(
        self, world: World, inbox: LiveInbox, past: Past, access: Access, facts: Facts, waits: Waits,
        commands: dict[str, Run], steps: Steps, send_signal: SendSignal,
    ) -> None:  # fmt: skip
        self.world = world
        self.inbox = inbox
        self.past = past
        self.access = access
        self.facts = facts
        self.waits = waits
        self.commands = commands
        self.steps = steps
        self.send_signal = send_signal
        self.host = socket.gethostname()
        self.lines: dict[str, dict[int, tuple[Job, str, str]]] = {}  # of squeue, by format; see `squeue.kept_lines`
        self.began_ms = facts.now()
        self.known_declared: bool | None = None

    @property
    def is_declared(self) -> bool:
        """Whether the nodes are names on this one machine."""
        if self.known_declared is None:
            self.known_declared = bool(self.facts.about().get("declared"))
        return self.known_declared

    def handle(self, request: Request, name: str) -> None:
        run = self.commands.get(name)
        if run is None:
            raise RefusedError(404, f"there is no command {name!r}", "see docs/slurm.md for those there are")
        now = max(self.facts.now(), int(time.time() * 1000))  # the loop may have slept since it last looked
        call = read_call(name, request, now)
        call.place = call.place or f"{self.past.home}/bin"
        try:
            run(self, call)
        except FaultError as failure:
            call.fail(failure)

    # -- wishes ------------------------------------------------------------------------------------------

    def command(self, call: Call, command: Command, done: Callable[[Result], None]) -> None:
        """To the kernel; `done` is called when it is safe."""
        self.commands_of(call, [command], lambda results: done(results[0]))

    def commands_of(self, call: Call, commands: Sequence[Command], done: Callable[[list[Result]], None]) -> None:
        self.may_command(call, len(commands))
        results: list[Result] = [()] * len(commands)
        left = len(commands)
        if not left:
            done([])

        def replied(at: int, result: Result) -> None:
            nonlocal left
            results[at] = result
            left -= 1
            if not left:
                guarded(call, lambda: done(results))

        def wishes() -> Iterator[tuple[Command, Callable[[Result], None]]]:
            for at, command in enumerate(commands):
                yield command, reply_to(at)

        def reply_to(at: int) -> Callable[[Result], None]:
            return lambda result: replied(at, result)

        if left == 1:
            self.inbox.put(commands[0], reply_to(0))
        elif left:
            self.inbox.put_many(wishes())

    def may_command(self, call: Call, commands: int) -> None:
        trouble = self.facts.trouble()
        if trouble is not None:
            raise RefusedError(503, trouble.what, trouble.cure)
        if self.inbox.is_full:
            raise RefusedError(503, "too many commands are waiting", "try again in a second")
        wait_s = self.access.spend(call.peer.user, commands, time.monotonic())
        if wait_s:
            raise RefusedError(429, "too many commands at once", f"try again in {wait_s:.1f} s")

    def wait_for(self, call: Call, job: int, look: Callable[[], bool]) -> None:
        """`look` answers the call when the job is as it wants it; meanwhile it is asked after all that ends. After a
        while the client asks anew, so that one that is gone is not waited for."""
        if look():
            return

        def over() -> None:
            unwatch()
            timer.cancel()

        def again() -> None:
            if call.is_over:
                over()
            else:
                guarded(call, lambda: over() if look() else None)

        def late() -> None:
            over()
            call.answer(then={"do": "again"})

        unwatch = self.waits.add([job], again)
        timer = self.past.aio.call_later(WAIT_S, late)
        call.request.on_gone = over

    def aside(self, call: Call, work: Callable[[], Answer]) -> None:
        """What reads much, in a thread."""

        def answered() -> Answer:
            try:
                return work()
            except FaultError as failure:
                return Answer(failure.out, failure.text, failure.code)

        self.past.archive.settle()
        self.past.aside.do(call.request, answered, call.say)


def guarded(call: Call, act: Callable[[], None]) -> None:
    """What goes on after a wait answers for its own faults."""
    try:
        act()
    except FaultError as failure:
        call.fail(failure)
    except RefusedError as refused:
        call.request.answer(refused.status, problem(refused.what, refused.cure))
    except JournalError as error:
        call.request.answer(503, problem(f"the journal cannot be used: {error}", "try again when that is mended"))
    except Exception:  # noqa: BLE001  a bug must end one answer, not the server; the log has it whole
        traceback.print_exc()
        call.request.answer(500, problem("a mistake in tidegate itself", "please report it, with the server's log"))


def is_refused(result: Result) -> bool:
    return isinstance(result, Refused)
