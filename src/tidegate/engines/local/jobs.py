"""The keeper's jobs: from an order of the server to an end on record, with everything ended that they left behind."""

import os
from collections import deque
from typing import Any

from tidegate.engines.local import trees
from tidegate.engines.local.cgroups import Cgroups, Place
from tidegate.engines.local.poll import Poll, clock_ms
from tidegate.engines.local.records import End, Key, Records
from tidegate.engines.local.saving import Saving
from tidegate.engines.local.signals import say_end, send_to
from tidegate.engines.local.spawn import BadOrderError, Entries
from tidegate.engines.local.starts import KILL, Process, Say, Starts

TERM, CONT, STOP = 15, 18, 19
LAUNCHED_HELD_MS = 20
"""A start is told only after this: of a job that is over by then its end says everything."""
LEAVING_CHECK_MS = 20
LEAVING_MS_MAX = 10_000
SWEEP_AFTER_MS = 1_000
ROUNDS_MAX = 100
MACHINE_FAULT, CANNOT_RUN = 125, 126
REFUSED, COMPLETED, FAILED = "refused", "completed", "failed"
TIMED_OUT, OUT_OF_MEMORY = "timed_out", "out_of_memory"
NOT_KNOWN = (-1, -1, -1, -1)
TERM_MS_MAX, TERM_PART = 5_000, 10
"""Of a grace so much at most, and such a part, is left for SIGTERM to one that has not saved itself."""
MARKS = (b"TIDE_HOME=", b"TIDE_JOB_ID=", b"TIDE_ATTEMPT=", b"TIDE_ARRAY_INDEX=")
MARKS_MIN = 3
"""Only a task of an array has the last."""

Message = dict[str, Any]


class Jobs:
    """Every attempt that is not over, by its key; the places and devices they hold."""

    def __init__(
        self, home: str, poll: Poll, starts: Starts, records: Records, cgroups: Cgroups, say: Say, asks: str
    ) -> None:
        self.mark = b"TIDE_HOME=" + os.fsencode(home)
        self.poll = poll
        self.asks = asks  # where attempts are asked to save themselves
        self.starts = starts
        self.records = records
        self.cgroups = cgroups
        self.say = say
        self.live: dict[Key, Run] = {}
        self.leaving: list[Run] = []
        self.held: deque[tuple[int, Run]] = deque()  # starts that are not told yet
        self.environments: dict[str, Entries] = {}
        self.gpus_taken: set[str] = set()
        self.saved: dict[Key, str] = {}  # what each attempt said last, until its end is forgotten
        self.sweeping = False  # it is known when orphans are looked at next
        self.swept: set[int] = set()  # told to go, and still there

    # -- what the server says ----------------------------------------------------------------------------

    def launch(self, message: Message, now: int) -> None:
        """Starts the attempt, unless it is known: then what is known is told again."""
        key = (int(message["task"]), int(message["attempt"]))
        known, run = self.records.unheard.get(key), self.live.get(key)
        if known is not None:
            self.tell_end(known)
        elif run is not None:
            run.tell_launched(now)
        elif self.records.trouble:
            self.end(End(*key, REFUSED, why=f"no place to record how jobs end: {self.records.trouble}; free some disk"))
        else:
            self._launch(key, message, now)

    def _launch(self, key: Key, message: Message, now: int) -> None:
        run = Run(self, key, message, now)
        try:
            shared = self.environments[message["env"]]
            entries = message["vars"]
            if "gpus" in message:
                entries.append(self._take_gpus(run, message["gpus"]))
            run.entries = Entries(entries)
            run.place = self.cgroups.take(message["cpus"], message["memory"])
            if "checkpoint" in message:
                self._open_saving(run, message["checkpoint"], message["words"])
            record = (self.records.order(key), f"{key[0]} {key[1]}")
            joins = () if run.place is None else run.place.joins
            self.starts.start(run, record, joins, message["words"], shared, run.entries, now)
        except BadOrderError as error:
            self.release(run)
            self.end(End(*key, FAILED, CANNOT_RUN, why=f"it cannot be started: {error}"))
        except (OSError, LookupError) as error:
            self.release(run)
            self.end(End(*key, REFUSED, why=f"this machine cannot start it: {error}"))
        else:
            self.live[key] = run
            if run.place is not None and run.place.alarm >= 0:
                self.poll.watch(run.place.alarm, run.out_of_memory)

    def _open_saving(self, run: "Run", signal: int, words: list[str]) -> None:
        place = f"{self.asks}/{run.key[0]}.{run.key[1]}"
        run.saving = Saving(self.poll, place, run.key, signal, self._tell_saved, run.tell_to_end)
        run.saving.open(words[0], words[1])

    def _tell_saved(self, key: Key, line: str) -> None:
        self.saved[key] = line
        self.say(line)

    def _take_gpus(self, run: "Run", wanted: list[tuple[list[str], int]]) -> str:
        """The lowest free devices of each node, for this attempt alone."""
        for devices, count in wanted:
            free = [device for device in devices if device not in self.gpus_taken]
            if len(free) < count:
                raise LookupError(f"{count} GPUs are wanted, {len(free)} of {len(devices)} are free")
            run.gpus += free[:count]
            self.gpus_taken.update(free[:count])
        return f"CUDA_VISIBLE_DEVICES={','.join(run.gpus)}"

    def halt(self, message: Message, now: int) -> None:
        key = (int(message["task"]), int(message["attempt"]))
        known, run = self.records.unheard.get(key), self.live.get(key)
        if known is not None:
            self.tell_end(known)
        elif run is not None:
            run.ask(str(message["outcome"]), int(message.get("grace_ms", 0)), now, save=bool(message.get("save")))

    def suspend(self, message: Message, now: int) -> None:
        run = self.live.get((int(message["task"]), int(message["attempt"])))
        if run is not None:
            run.suspend(now)

    def resume(self, message: Message, now: int) -> None:
        run = self.live.get((int(message["task"]), int(message["attempt"])))
        if run is not None:
            run.resume(now)

    def ask(self, message: Message, now: int) -> None:
        """To save itself, and run on."""
        run = self.live.get((int(message["task"]), int(message["attempt"])))
        if run is not None and run.saving is not None:
            run.saving.ask(int(message["number"]), now)

    def signal(self, message: Message) -> None:
        run = self.live.get((int(message["task"]), int(message["attempt"])))
        if run is not None and run.pid:
            send_to(message["to"], run.pid, run.processes, int(message["signal"]))

    def forget(self, message: Message) -> None:
        """The server has these ends in its journal."""
        for task, attempt in message["attempts"]:
            self.records.forget((task, attempt))
            self.saved.pop((task, attempt), None)

    def keep_environment(self, message: Message) -> None:
        """`entries` are NAME=VALUE; null: the server will not name it any more."""
        if message["entries"] is None:
            self.environments.pop(message["name"], None)
        else:
            self.environments[message["name"]] = Entries(message["entries"])

    # -- ends --------------------------------------------------------------------------------------------

    def end(self, end: End) -> None:
        self.records.add(end)
        self.tell_end(end)

    def tell_unheard(self) -> None:
        """All that a server that was away may have missed: what was saved, and then the ends."""
        for line in self.saved.values():
            self.say(line)
        for end in list(self.records.unheard.values()):
            self.tell_end(end)

    def tell_end(self, end: End) -> None:
        self.say(end.line())

    def tell_launched(self, now: int) -> None:
        while self.held and self.held[0][0] <= now:
            _, run = self.held.popleft()
            if not run.over:
                self.say(f'{{"is":"launched","task":{run.key[0]},"attempt":{run.key[1]},"pid":{run.pid}}}\n')
        if self.held:
            self.poll.at(self.held[0][0], self.tell_launched)

    def release(self, run: "Run") -> None:
        """Gives back all that the attempt held."""
        self.gpus_taken.difference_update(run.gpus)
        if run.saving is not None:
            run.saving.close()
        if run.place is not None:
            if run.place.alarm >= 0:
                self.poll.unwatch(run.place.alarm)
            if run.stuck:
                self.cgroups.abandon(run.place)
            else:
                self.cgroups.give_back(run.place)
        self._sweep_later()

    # -- orphans -----------------------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        if not self.sweeping:
            self.sweeping = True
            self.poll.at(clock_ms() + SWEEP_AFTER_MS, self.sweep)

    def sweep(self, _now: int) -> None:
        """Ends who got out of its job's cgroup and outlived the job: by now it is an orphan, and so a child of ours."""
        self.sweeping = False
        orphans = self.strangers() or []
        self.swept.intersection_update(orphans)
        alive = {run.entries.marks(*MARKS) for run in self.live.values()} if orphans else set()
        over = [pid for pid in orphans if pid not in self.swept and self._is_over(pid, alive)]
        for pid in over:
            trees.send(trees.family(pid, frozenset()), KILL)
        if over:
            self.swept.update(over)
            self._sweep_later()  # it may have had a child meanwhile

    def _is_over(self, pid: int, alive: set[frozenset[bytes]]) -> bool:
        """Who does not say whose it is could be of any job that runs."""
        if not self.live and not self.starts.ordered:
            return True
        marks = frozenset(entry for entry in trees.environment(pid) if entry.startswith(MARKS))
        return self.mark in marks and len(marks) >= MARKS_MIN and marks not in alive

    def strangers(self) -> list[int] | None:
        """Children of ours that are nobody's first process: orphans of jobs. None where it cannot be known."""
        children = trees.own_children()
        return None if children is None else sorted(set(children) - self.starts.known())

    def check_leaving(self, now: int) -> None:
        for run in list(self.leaving):
            run.leave(now)


class Run(Process):
    """One attempt, from its order until nothing of it is left."""

    __slots__ = (
        "end", "entries", "gpus", "grace_ms", "jobs", "key", "kill_at", "leaving_since", "limit_ms", "ordered",
        "outcome", "place", "saves_first", "saving", "stopped_at", "stopped_ms", "stuck", "told", "told_as", "warn",
    )  # fmt: skip

    def __init__(self, jobs: Jobs, key: Key, message: Message, now: int) -> None:
        super().__init__()
        self.jobs = jobs
        self.key = key
        self.place: Place | None = None
        self.gpus: list[str] = []
        self.entries: Entries
        self.ordered = now
        self.limit_ms: int = message["limit_ms"]
        self.grace_ms: int = message["grace_ms"]
        self.warn: tuple[int, int, str] | None = message.get("warn")  # signal, how long before the limit, to whom
        self.told_as: tuple[str, str] | None = message.get("told_as")  # its number and node, in the line at its end
        self.outcome = ""  # decided here, not by how the process ended
        self.kill_at: int | None = None
        self.saves_first = False  # before it is told to end
        self.told = False  # to end
        self.saving: Saving | None = None
        self.stopped_at: int | None = None
        self.stopped_ms = 0  # before that
        self.end = End(*key, COMPLETED)
        self.leaving_since: int | None = None
        self.stuck = False

    # -- beginning ---------------------------------------------------------------------------------------

    def started(self, now: int) -> None:
        if self.limit_ms:
            self._watch_limit()
        if self.saving is not None:
            self.saving.started(self.pid, now)
        if self.stopped_at is not None:
            self._stop()
        self.tell_launched(now)
        if self.kill_at is not None:
            self._begin_to_end(now)

    def tell_launched(self, now: int) -> None:
        if self.pid:
            if not self.jobs.held:
                self.jobs.poll.at(now + LAUNCHED_HELD_MS, self.jobs.tell_launched)
            self.jobs.held.append((now + LAUNCHED_HELD_MS, self))

    def not_started(self, why: str, _now: int) -> None:
        self.end = End(*self.key, self.outcome or REFUSED, why=why)
        self._finish()

    def claimant(self) -> int:
        return self.jobs.records.claimant(self.key)

    # -- being suspended ---------------------------------------------------------------------------------

    def suspend(self, now: int) -> None:
        """Stopped where it is, with all that it holds. What is being ended goes on to its end."""
        if self.stopped_at is None and self.kill_at is None and self.leaving_since is None:
            self.stopped_at = now
            if self.pid:
                self._stop()

    def _stop(self) -> None:
        """Stopping is quicker than forking, so a few rounds outrun one that multiplies."""
        stopped: set[int] = set()
        for _ in range(ROUNDS_MAX):
            fresh = set(self.processes()) - stopped
            if not fresh:
                return
            stopped |= fresh
            trees.send(fresh, STOP)

    def resume(self, now: int) -> None:
        if self.stopped_at is None:
            return
        stopped_ms, self.stopped_at = now - self.stopped_at, None
        self.stopped_ms += stopped_ms
        if self.saving is not None:
            self.saving.stood_still(stopped_ms)
        if self.pid:
            if self.limit_ms:
                self._watch_limit()
            trees.send(self.processes(), CONT)

    # -- being ended -------------------------------------------------------------------------------------

    def _limit_at(self) -> int:
        return self.ordered + self.limit_ms + self.stopped_ms

    def _watch_limit(self) -> None:
        self.jobs.poll.at(self._limit_at(), self._limit, self)
        if self.warn is not None:
            self.jobs.poll.at(max(self.ordered, self._limit_at() - self.warn[1]), self._warn, self)

    def _warn(self, now: int) -> None:
        if self.warn is None or self.stopped_at is not None or now < self._limit_at() - self.warn[1]:
            return  # told already, or suspended since this was set
        (number, _, to), self.warn = self.warn, None
        if self.leaving_since is None:
            send_to(to, self.pid, self.processes, number)

    def _limit(self, now: int) -> None:
        if self.stopped_at is not None or now < self._limit_at():
            return  # it was suspended since this was set, and another one is set when it goes on
        self.ask(TIMED_OUT, self.grace_ms, now, save=True)

    def ask(self, outcome: str, grace_ms: int, now: int, *, save: bool = False) -> None:
        """Asks it to end and makes it after the grace. The first reason stands; a later one may only hurry.

        With `save` it is asked to save itself before, where it can.
        """
        self.resume(now)
        first = self.kill_at is None
        self.outcome = self.outcome or outcome
        if self.kill_at is None or now + grace_ms < self.kill_at:
            self.kill_at = now + grace_ms
            self.jobs.poll.at(self.kill_at, self._kill, self)
        self.saves_first = save and grace_ms > 0 and self.saving is not None and (first or self.saves_first)
        if self.pid and self.leaving_since is None:
            self._begin_to_end(now)

    def _begin_to_end(self, now: int) -> None:
        """Once it has begun: to save itself, and near the end of the grace to end; or to end."""
        if not self.saves_first or self.saving is None or self.kill_at is None:
            self.tell_to_end(now)
        elif not self.saving.end_number:
            left_ms = max(0, self.kill_at - now)
            self.jobs.poll.at(self.kill_at - min(TERM_MS_MAX, left_ms // TERM_PART), self.tell_to_end, self)
            self.saving.ask_to_end(now)

    def out_of_memory(self, now: int) -> None:
        """Version 1 of cgroups has ended one process of it; the rest goes too."""
        if self.place is not None:
            self.jobs.poll.unwatch(self.place.alarm)
        self.ask(OUT_OF_MEMORY, 0, now)

    def tell_to_end(self, now: int) -> None:
        if self.told or self.leaving_since is not None:
            return
        self.told = True
        if self.told_as is not None:
            say_end(self.pid, *self.told_as, self.outcome)
        if self.kill_at is not None and self.kill_at <= now:
            self._kill(now)
            return
        pids = self.processes()
        trees.send(pids, TERM)
        trees.send(pids, CONT)  # one that is stopped hears nothing else

    def _kill(self, _now: int) -> None:
        if not self.pid:
            return  # it is told as soon as it begins
        if self.leaving_since is None:
            trees.send((self.pid,), KILL)  # by its number too: just forked, it is in no group and no cgroup of its own
            trees.send_group(self.pid, KILL)
        if self.place is not None:
            self.jobs.cgroups.kill(self.place)
            return
        killed: set[int] = set()
        for _ in range(ROUNDS_MAX):
            fresh = set(self.processes()) - killed
            if not fresh:
                return
            killed |= fresh
            trees.send(fresh, KILL)

    def processes(self) -> list[int]:
        if self.place is not None:
            inside = self.jobs.cgroups.processes(self.place)
            return inside if self.leaving_since is not None or self.pid in inside else [self.pid, *inside]
        marks = self.entries.marks(*MARKS)
        found = trees.family(self.pid, marks, gone=self.leaving_since is not None)
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
        if self.code:
            outcome, code = (REFUSED, 0) if self.code == MACHINE_FAULT else (FAILED, self.code)
            self.end = End(*self.key, outcome, code, 0, used, self.why)
        self.leaving_since = now
        if self.saving is not None:
            self.saving.hear_rest(now)  # it may have said so just before
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
        return self.jobs.strangers() != [] and bool(self.processes())

    def _judge(self) -> None:
        """What the limits have to say about how it ended."""
        cgroups, place, end = self.jobs.cgroups, self.place, self.end
        if place is not None and place.memory:
            cpu_ms, peak_kib, read_kib, written_kib = end.used
            peak = cgroups.peak_kib(place)
            end = end._replace(used=(cpu_ms, peak if peak >= 0 else peak_kib, read_kib, written_kib))
            if not self.outcome and cgroups.out_of_memory(place, end.signal):
                self.outcome = OUT_OF_MEMORY
        if place is not None and cgroups.counts_cpu:
            cpu_ms, peak_kib, read_kib, written_kib = end.used
            end = end._replace(used=(max(cpu_ms, cgroups.cpu_ms(place)), peak_kib, read_kib, written_kib))
        if self.outcome and end.outcome != REFUSED:
            end = end._replace(outcome=self.outcome, why=end.why or WHY.get(self.outcome, ""))
        self.end = end

    def _finish(self) -> None:
        self.over = True
        del self.jobs.live[self.key]
        self.jobs.release(self)
        self.jobs.end(self.end)


WHY = {
    TIMED_OUT: "it ran into its time limit",
    OUT_OF_MEMORY: "it took more memory than it had asked for",
}
