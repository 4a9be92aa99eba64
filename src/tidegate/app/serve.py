"""`tide up`, wired: home, journal, engine, the live loop, and those who listen."""

import asyncio
import gc
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tidegate import __version__, compiled
from tidegate.api.access import Access, user_name
from tidegate.api.follow import BREATHE_S
from tidegate.api.http import Connection, Site
from tidegate.api.live import LiveClock, LiveInbox, ToldJournal
from tidegate.api.past import Past
from tidegate.api.service import Facts, Service
from tidegate.api.words import problem
from tidegate.app.engines import Fleet, fleet_of
from tidegate.app.home import Home, HomeError
from tidegate.app.judge import Judge
from tidegate.app.keeping import SETTLE_S, Keeping
from tidegate.app.leftovers import SWEEP_EVERY_S, Leftovers
from tidegate.loop.loop import Loop
from tidegate.model.commands import ChangePolicy, Refused, SetNode, SetNodeState
from tidegate.model.nodes import NodeState
from tidegate.model.policy import PolicySpec
from tidegate.ports import JournalError
from tidegate.slurm.after import Afters
from tidegate.slurm.commands import COMMANDS
from tidegate.slurm.desk import Desk
from tidegate.slurm.steps import Steps
from tidegate.wire.policy_file import PolicyError, read_policy
from tidegate.wire.slurm_bin import NAMES, text_of
from tidegate.wire.sockets import reach

GC_EVERY = 200_000
RETRY_FLUSH_MS = 1000
DEFAULT_POLICY = "tide"
BACKLOG = 1024
PRIVATE_UMASK = 0o066
"""For what the server and its keeper write: the journal has what people submitted, their environments with it. Folders
can be passed through, so that users come to their own output. A job has the umask it was submitted with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeWish:
    """What `tide up` was asked for."""

    home: Path
    engine: str = "local"
    nodes: int = 0  # 0: this machine, as it is
    milli_cpus: int = 0
    memory_mib: int = 0
    gpus: int = -1  # -1: as detected
    policy: str = ""  # "": as it was, or the default
    listen: str = ""  # HOST:PORT


def serve(options: Any) -> int:
    """`tide up`. With --detach in the background; else serves until it is told to stop."""
    os.umask(PRIVATE_UMASK)
    if options.detach:
        from tidegate.app.detach import detach

        return detach(Home(Path(options.home)))
    wish = ServeWish(
        home=Path(options.home), engine=options.engine, nodes=options.nodes, milli_cpus=round(options.cpus * 1000),
        memory_mib=options.memory, gpus=-1 if options.gpus is None else options.gpus, policy=options.policy,
        listen=options.listen,
    )  # fmt: skip
    home = Home(wish.home)
    try:
        home.prepare()
        home.claim()
        try:
            Server(wish, home).run()
        finally:
            home.release()
    except (HomeError, JournalError, PolicyError) as error:
        print(f"tide: {error}", file=sys.stderr)
        return 1
    return 0


class Server:
    def __init__(self, wish: ServeWish, home: Home) -> None:
        self.wish = wish
        self.home = home
        self.began = time.monotonic()
        self.aio = asyncio.new_event_loop()
        asyncio.set_event_loop(self.aio)
        self.keeping = Keeping(home.journal, say)
        world = self.keeping.world
        self.fleet: Fleet = fleet_of(wish, home.path, world)
        self.clock = LiveClock(self.aio, self.keeping.journal.last_at)
        self.inbox = LiveInbox(self.clock.wake)
        self.journal = ToldJournal(self.keeping.journal)
        self.loop = Loop(world, self.clock, self.journal, self.fleet.engine, self.inbox)
        self.past = Past(self.aio, home.path, self.keeping.archive())
        self.access = Access(home.tokens)
        self.trouble: Refused | None = None
        facts = Facts(self.about, lambda: self.clock.last, self.stop, lambda: self.trouble)
        judge = Judge(home.journal)
        self.service = Service(world, self.inbox, self.journal, self.past, self.access, facts, judge)
        self.steps = Steps(home.path / "slurm.db")
        write_commands(home.path)
        self.service.dialect = Desk(
            world, self.inbox, self.past, self.access, facts, self.service.waits, COMMANDS, self.steps,
            self.fleet.signal,
        ).handle  # fmt: skip
        afters = Afters(self.aio, world, self.inbox, lambda: self.clock.last)
        self.leftovers = Leftovers(home.path, world)
        self.journal.watchers = (*self.service.watchers(), afters, self.leftovers)
        self.site = Site(self.service.handle, problem, self.access.of_token)
        self.clock.before_wait = self.before_wait
        self.watched_fd = -1
        self.with_keeper = False
        self.began_with = world.policy_version
        self.passed_over = ""  # a policy that `up` was told and this home did not take

    # -- what the server is ------------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        notes = list(self.fleet.notes())
        if self.passed_over and self.loop.world.policy_version == self.began_with:
            notes.append(self.passed_over)
        if self.clock.behind_ms > 1000:
            notes.append(f"this machine's clock is {self.clock.behind_ms // 1000} s behind what it said before")
        if self.trouble is not None:
            notes.append(f"{self.trouble.what}; {self.trouble.cure}")
        return {
            "version": __version__,
            "pid": os.getpid(),
            "home": str(self.home.path),
            "user": user_name(os.getuid()),
            "up_ms": int((time.monotonic() - self.began) * 1000),
            "engine": self.fleet.name,
            "kernel": "compiled" if compiled() else "pure",
            "notes": notes,
            "declared": self.fleet.declared,
        }

    # -- running -----------------------------------------------------------------------------------------

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self.aio.add_signal_handler(number, self.clock.stop)
        self.settle_policy()
        self.settle_nodes()
        while self.inbox.next_at() is not None:
            self.clock.wake()  # the last of these turns has nothing to wait for either
            self.turn()  # so the first client finds nodes
        listening = self.aio.run_until_complete(self.listen())
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_EVERY, 50, 100)
        say(f"serving {self.home.path} with {self.fleet.words} (pid {os.getpid()})")
        tell_ready()
        self.breathe()
        self.tick()
        self.sweep()
        try:
            while self.turn():
                pass
        finally:
            for server in listening:
                server.close()
            self.service.streams.close()
            self.site.close()
            self.aio.call_soon(self.aio.stop)
            self.aio.run_forever()  # what was answered goes out
            self.fleet.close(self.with_keeper)
            self.service.policies.close()
            self.past.close()
            self.steps.close()
            self.leftovers.close()
            self.keeping.close()
        say("stopped; what runs, runs on" if self.loop.world.runs else "stopped")

    def breathe(self) -> None:
        self.service.streams.breathe()
        self.aio.call_later(BREATHE_S, self.breathe)

    def tick(self) -> None:
        try:
            self.keeping.tick(self.clock.last)
        except JournalError as error:
            self.set_trouble(error)
        else:
            if not self.loop.unsafe:
                self.clear_trouble()
        self.aio.call_later(SETTLE_S, self.tick)

    def sweep(self) -> None:
        self.leftovers.sweep()
        self.aio.call_later(SWEEP_EVERY_S, self.sweep)

    def stop(self, with_keeper: bool) -> None:
        self.with_keeper = with_keeper
        self.clock.stop()

    def turn(self) -> bool:
        """A journal that cannot be written stops nothing but the acknowledging: the same flush is tried again."""
        was_unsafe = self.loop.unsafe
        try:
            going = self.loop.turn()
        except JournalError as error:
            self.set_trouble(error)
            return self.clock.wait(self.clock.now() + RETRY_FLUSH_MS)
        if was_unsafe:
            self.clear_trouble()
        return going

    def set_trouble(self, error: JournalError) -> None:
        if self.trouble is None:
            say(f"nothing is taken until the journal can be written: {error}")
        self.trouble = Refused(f"the journal cannot be written: {error}", "wishes are taken again when that is mended")

    def clear_trouble(self) -> None:
        """Said by whoever has just written, or found that it could: while there is trouble nothing else is taken in."""
        if self.trouble is not None:
            say("the journal can be written again")
            self.trouble = None

    def before_wait(self) -> None:
        """The engine may have come by another connection."""
        fd = self.fleet.fileno()
        if fd != self.watched_fd:
            if self.watched_fd >= 0:
                self.aio.remove_reader(self.watched_fd)
            if fd >= 0:
                self.aio.add_reader(fd, self.engine_speaks)
            self.watched_fd = fd

    def engine_speaks(self) -> None:
        self.loop.engine_speaks()
        self.clock.wake()

    # -- beginning ---------------------------------------------------------------------------------------

    def settle_policy(self) -> None:
        """A home that has a policy keeps it: what was applied is not undone by a restart, whatever `up` is told."""
        world, named = self.loop.world, self.wish.policy
        if not world.policy_version:
            policy = read_policy(named or DEFAULT_POLICY)
            self.inbox.put(ChangePolicy(policy, user_name(os.getuid()), "tide up, in a new home"), ignore)
        elif named and not means(named, world.policy):
            self.passed_over = (
                f"--policy {named} was passed over: this home keeps the policy in force, version "
                f"{world.policy_version} ({world.policy.name!r}); tide policy apply {named} changes it"
            )
            say(self.passed_over)

    def settle_nodes(self) -> None:
        """What this machine has now; nodes that it no longer has are down."""
        offered = {node.name for node in self.fleet.nodes}
        for node in self.fleet.nodes:
            known = self.loop.world.nodes.get(node.name)
            if known is None or (known.capacity, known.labels) != (node.capacity, node.labels):
                self.inbox.put(SetNode(node), ignore)
            elif known.state is NodeState.DOWN:
                self.inbox.put(SetNodeState(node.name, NodeState.UP), ignore)
        for node in self.loop.world.nodes.values():
            if node.name not in offered and node.state is not NodeState.DOWN:
                self.inbox.put(SetNodeState(node.name, NodeState.DOWN, "not declared any more"), ignore)

    async def listen(self) -> list[asyncio.Server]:
        loop = asyncio.get_running_loop()
        sock = bound(self.home.socket, 0o666 if os.getuid() == 0 else 0o600)
        servers = [
            await loop.create_unix_server(
                partial(Connection, self.site, self.access.of_socket), sock=sock, backlog=BACKLOG
            )
        ]
        if self.wish.listen:
            host, port = address_of(self.wish.listen)
            make = partial(Connection, self.site, self.access.of_nobody)
            try:
                servers.append(await loop.create_server(make, host, port, backlog=BACKLOG))
            except OSError as error:
                raise HomeError(f"cannot listen on {self.wish.listen} ({error.strerror}); name another") from error
            port = servers[-1].sockets[0].getsockname()[1]
            say(f"listening on http://{host}:{port}; requests need a token (`tide token add NAME`)")
        return servers


def write_commands(home: Path) -> None:
    """Slurm's commands, for jobs whose user has not installed them."""
    folder = home / "bin"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o711)
    package = str(Path(__file__).resolve().parents[2])
    for name in NAMES:
        file = folder / name
        file.write_text(text_of(name, sys.executable, package, str(home)))
        file.chmod(0o755)


def means(named: str, policy: PolicySpec) -> bool:
    """Is that the policy? One that cannot be read is another one."""
    try:
        return read_policy(named) == policy
    except PolicyError:
        return False


def tell_ready() -> None:
    """To whoever started the server and listens: systemd, or `tide up --detach`."""
    address = os.environ.pop("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock, suppress(OSError):
            sock.sendto(b"READY=1", f"\0{address[1:]}" if address.startswith("@") else address)


def bound(path: Path, mode: int) -> socket.socket:
    """The lock is ours, so a socket that is there was left by a server that is gone."""
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~mode)
    try:
        reach(str(path), sock.bind)
    finally:
        os.umask(before)
    return sock


def address_of(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise HomeError(f"cannot listen on {text!r}: write HOST:PORT, such as 127.0.0.1:7070")
    return host.strip("[]"), int(port)


def ignore(result: Any) -> None:
    """Nobody waits for the answer."""
    if isinstance(result, Refused):
        say(f"{result.what}; {result.cure}")


def say(text: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), text, file=sys.stderr, flush=True)
