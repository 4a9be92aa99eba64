"""The keeper's jobs: from an order of the server to an end on record, with everything ended that they left behind."""

import os
from typing import Any

from tidegate.engines.local import trees
from tidegate.engines.local.cgroups import Cgroups, Place
from tidegate.engines.local.poll import Poll
from tidegate.engines.local.records import Claims, End, Exits, Key
from tidegate.engines.local.spawn import BadOrderError, Order
from tidegate.engines.local.starts import KILL, Process, Starts, Tell

TERM, CONT = 15, 18
LAUNCHED_HELD_MS = 20
"""A start is told only after this: of a job that is over by then its end says everything."""
LEAVING_CHECK_MS = 20
LEAVING_MS_MAX = 10_000
ROUNDS_MAX = 100
MACHINE_FAULT, CANNOT_RUN = 125, 126
REFUSED, COMPLETED, FAILED, LOST = "refused", "completed", "failed", "lost"
TIMED_OUT, OUT_OF_MEMORY = "timed_out", "out_of_memory"
NOT_KNOWN = (-1, -1, -1, -1)
MARKS = ("TIDE_HOME=", "TIDE_JOB_ID=", "TIDE_ARRAY_INDEX=", "TIDE_ATTEMPT=")

Message = dict[str, Any]


class Jobs:
    """Every attempt that is not over, by its key; the places and devices they hold."""

    def __init__(self, poll: Poll, starts: Starts, exits: Exits, claims: Claims, cgroups: Cgroups, tell: Tell) -> None:
        self.poll = poll
        self.starts = starts
        self.exits = exits
        self.claims = claims
        self.cgroups = cgroups
        self.tell = tell
        self.live: dict[Key, Run] = {}
        self.leaving: list[Run] = []
        self.environments: dict[str, list[str]] = {}
        self.gpus_taken: set[str] = set()

    # -- what the server says ----------------------------------------------------------------------------

    def launch(self, message: Message, now: int) -> None:
        """Starts the attempt, unless it is known: then what is known is told again."""
        key = (int(message["task"]), int(message["attempt"]))
        known, run = self.exits.unheard.get(key), self.live.get(key)
        if known is not None:
            self.tell_end(known)
        elif run is not None:
            run.tell_launched(now)
        elif self.exits.trouble:
            self.end(End(*key, REFUSED, why=f"no place to record how jobs end: {self.exits.trouble}; free some disk"))
        else:
            self._launch(Run(self, key, message), message)

    def _launch(self, run: "Run", message: Message) -> None:
        try:
            environment = [*self.environments[message["env"]], *run.entries, *self._take_gpus(run, message)]
            run.place = self.cgroups.take(int(message.get("cpus", 0)), int(message.get("memory", 0)))
            self.starts.start(run.process, self._order(run, message, environment))
        except BadOrderError as error:
            self.release(run)
            self.end(End(*run.key, FAILED, CANNOT_RUN, why=f"it cannot be started: {error}"))
        except (OSError, LookupError) as error:
            self.release(run)
            self.end(End(*run.key, REFUSED, why=f"this machine cannot start it: {error}"))
        else:
            self.live[run.key] = run
            if run.place is not None and run.place.alarm >= 0:
                self.poll.watch(run.place.alarm, run.out_of_memory)

    def _order(self, run: "Run", message: Message, environment: list[str]) -> Order:
        user = message.get("user")
        return Order(
            message["argv"],
            environment,
            self.claims.path_of(run.key),
            () if run.place is None else run.place.joins,
            None if user is None else (user[0], user[1], user[2]),
            message.get("umask", 0o022),
            message.get("cwd", "/"),
            message.get("output", ""),
            message.get("errors", ""),
            message.get("append", False),
            message.get("stdin", ""),
            message.get("stdout", ""),
            message.get("stderr", ""),
        )

    def _take_gpus(self, run: "Run", message: Message) -> list[str]:
        """The lowest free devices of each node, for this attempt alone."""
        if "gpus" not in message:
            return []
        for devices, count in message["gpus"]:
            free = [device for device in devices if device not in self.gpus_taken]
            if len(free) < count:
                raise LookupError(f"{count} GPUs are wanted, {len(free)} of {len(devices)} are free")
            run.gpus += free[:count]
            self.gpus_taken.update(free[:count])
        return [f"CUDA_VISIBLE_DEVICES={','.join(run.gpus)}"]

    def halt(self, message: Message, now: int) -> None:
        key = (int(message["task"]), int(message["attempt"]))
        known, run = self.exits.unheard.get(key), self.live.get(key)
        if known is not None:
            self.tell_end(known)
        elif run is not None:
            run.ask(str(message["outcome"]), int(message.get("grace_ms", 0)), now)

    def forget(self, message: Message) -> None:
        """The server has these ends in its journal."""
        for task, attempt in message["attempts"]:
            self.exits.forget((task, attempt))
            self.claims.drop((task, attempt))

    def keep_environment(self, message: Message) -> None:
        """`entries` are NAME=VALUE; null: the server will not name it any more."""
        if message["entries"] is None:
            self.environments.pop(message["name"], None)
        else:
            self.environments[message["name"]] = message["entries"]

    # -- ends --------------------------------------------------------------------------------------------

    def end(self, end: End) -> None:
        self.exits.add(end)
        self.tell_end(end)

    def tell_end(self, end: End) -> None:
        if end.outcome == REFUSED:
            self.tell({"is": "refused", "task": end.task, "attempt": end.attempt, "why": end.why})
        else:
            self.tell({"is": "ended", **end._asdict()})

    def release(self, run: "Run") -> None:
        """Gives back all that the attempt held."""
        self.gpus_taken.difference_update(run.gpus)
        if run.place is not None:
            if run.place.alarm >= 0:
                self.poll.unwatch(run.place.alarm)
            if run.stuck:
                self.cgroups.abandon(run.place)
            else:
                self.cgroups.give_back(run.place)

    def strangers(self) -> list[int] | None:
        """Children of ours that are nobody's first process: orphans of jobs. None where it cannot be known."""
        children = trees.own_children()
        return None if children is None else sorted(set(children) - self.starts.known())

    def check_leaving(self, now: int) -> None:
        for run in list(self.leaving):
            run.leave(now)


class Run:
    """One attempt, from its order until nothing of it is left."""

    def __init__(self, jobs: Jobs, key: Key, message: Message) -> None:
        self.jobs = jobs
        self.key = key
        self.process = Process(self)
        self.place: Place | None = None
        self.gpus: list[str] = []
        self.entries: list[str] = message["vars"]
        self.limit_ms = int(message.get("limit_ms", 0))
        self.grace_ms = int(message.get("grace_ms", 0))
        self.outcome = ""  # decided here, not by how the process ended
        self.kill_at: int | None = None
        self.end = End(*key, COMPLETED)
        self.leaving_since: int | None = None
        self.over = False
        self.stuck = False

    # -- beginning ---------------------------------------------------------------------------------------

    def started(self, now: int) -> None:
        if self.limit_ms:
            self.jobs.poll.at(now + self.limit_ms, self._limit, self)
        self.tell_launched(now)
        if self.kill_at is not None:
            self._tell_to_end(now)

    def tell_launched(self, now: int) -> None:
        if self.process.pid:
            self.jobs.poll.at(now + LAUNCHED_HELD_MS, self._tell_launched, self)

    def _tell_launched(self, _now: int) -> None:
        self.jobs.tell({"is": "launched", "task": self.key[0], "attempt": self.key[1], "pid": self.process.pid})

    def not_started(self, why: str, _now: int) -> None:
        self.end = End(*self.key, self.outcome or REFUSED, why=why)
        self._finish()

    def claimant(self) -> int:
        claim = self.jobs.claims.owner(self.key)
        return 0 if claim is None else claim.pid

    # -- being ended -------------------------------------------------------------------------------------

    def _limit(self, now: int) -> None:
        self.ask(TIMED_OUT, self.grace_ms, now)

    def ask(self, outcome: str, grace_ms: int, now: int) -> None:
        """Asks it to end and makes it after the grace. The first reason stands; a later one may only hurry."""
        first = self.kill_at is None
        self.outcome = self.outcome or outcome
        if self.kill_at is None or now + grace_ms < self.kill_at:
            self.kill_at = now + grace_ms
            self.jobs.poll.at(self.kill_at, self._kill, self)
        if first and self.process.pid and self.leaving_since is None:
            self._tell_to_end(now)

    def out_of_memory(self, now: int) -> None:
        """Version 1 of cgroups has ended one process of it; the rest goes too."""
        if self.place is not None:
            self.jobs.poll.unwatch(self.place.alarm)
        self.ask(OUT_OF_MEMORY, 0, now)

    def _tell_to_end(self, now: int) -> None:
        if self.kill_at is not None and self.kill_at <= now:
            self._kill(now)
            return
        pids = self._processes()
        trees.send(pids, TERM)
        trees.send(pids, CONT)  # one that is stopped hears nothing else

    def _kill(self, _now: int) -> None:
        if not self.process.pid:
            return  # it is told as soon as it begins
        if self.leaving_since is None:
            trees.send_group(self.process.pid, KILL)
        if self.place is not None:
            self.jobs.cgroups.kill(self.place)
            return
        killed: set[int] = set()
        for _ in range(ROUNDS_MAX):
            fresh = set(self._processes()) - killed
            if not fresh:
                return
            killed |= fresh
            trees.send(fresh, KILL)

    def _processes(self) -> list[int]:
        if self.place is not None:
            return self.jobs.cgroups.processes(self.place)
        marks = frozenset(entry.encode() for entry in self.entries if entry.startswith(MARKS))
        found = trees.family(self.process.pid, marks, gone=self.leaving_since is not None)
        if len(self.jobs.live) == 1 and self.leaving_since is not None:
            # Whoever hides from us without a name, a session and a parent can only be of this job.
            found += [pid for pid in self.jobs.strangers() or () if trees.seen(pid)]
        return found

    # -- ending ------------------------------------------------------------------------------------------

    def ended(self, status: int, usage: Any, now: int) -> None:
        """Its first process is gone; what that one left behind goes before anything is told."""
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        used = (
            round((usage.ru_utime + usage.ru_stime) * 1000),
            usage.ru_maxrss,
            usage.ru_inblock // 2,
            usage.ru_oublock // 2,
        )
        self.end = End(*self.key, COMPLETED if code == 0 else FAILED, code, signal, used)
        if self.process.was_claimed:
            self.end = End(*self.key, LOST, why="another process had claimed this attempt before")
        elif self.process.code:
            outcome, code = (REFUSED, 0) if self.process.code == MACHINE_FAULT else (FAILED, self.process.code)
            self.end = End(*self.key, outcome, code, why=self.process.why)
        self.leaving_since = now
        self.leave(now, first=True)

    def leave(self, now: int, *, first: bool = False) -> None:
        since = now if self.leaving_since is None else self.leaving_since
        if self._somebody_left() and not self.stuck:
            self._kill(now)
            if now - since < LEAVING_MS_MAX:
                if first:
                    self.jobs.leaving.append(self)
                self.jobs.poll.at(now + LEAVING_CHECK_MS, self.jobs.check_leaving, self)
                return
            self.stuck = True
            self.end = self.end._replace(why="some of its processes cannot be ended: they wait for a device")
        if not first:
            self.jobs.leaving.remove(self)
        self._judge()
        self._finish()

    def _somebody_left(self) -> bool:
        if self.place is not None:
            return bool(self.jobs.cgroups.processes(self.place))
        return self.jobs.strangers() != [] and bool(self._processes())

    def _judge(self) -> None:
        """What the limits have to say about how it ended."""
        cgroups, place, end = self.jobs.cgroups, self.place, self.end
        if place is not None and end.used != NOT_KNOWN:
            cpu_ms, peak_kib, *rest = end.used
            peak = cgroups.peak_kib(place)
            end = end._replace(used=(max(cpu_ms, cgroups.cpu_ms(place)), peak if peak >= 0 else peak_kib, *rest))
            if not self.outcome and cgroups.out_of_memory(place, end.signal):
                self.outcome = OUT_OF_MEMORY
        if self.outcome and end.outcome not in {REFUSED, LOST}:
            end = end._replace(outcome=self.outcome, why=end.why or WHY.get(self.outcome, ""))
        self.end = end

    def _finish(self) -> None:
        self.over = True
        del self.jobs.live[self.key]
        self.jobs.release(self)
        if self.end.outcome == REFUSED:
            self.jobs.claims.drop(self.key)
        self.jobs.end(self.end)


WHY = {
    TIMED_OUT: "it ran into its time limit",
    OUT_OF_MEMORY: "it took more memory than it had asked for",
}
