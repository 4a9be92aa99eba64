"""The engine port over a real Slurm: a spike that finds out what the port lacks, not the engine of a release.

Slurm is asked by its own commands. What an attempt is called there is its comment, `tide:HOME:TASK:ATTEMPT`:
whatever this process forgets, the comment still says. docs/decisions/0012-engine-port.md has what came of it.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, assert_never

from tests.slurm.commands import AwayError, SlurmError, ask, table
from tidegate.model import engine as en
from tidegate.model.base import index_of, job_of
from tidegate.model.jobs import CPUS, MEMORY, NOTHING_KNOWN, Outcome, Used, Work, amounts
from tidegate.model.nodes import Node, NodeState

LAUNCHER = Path(__file__).with_name("launcher.py")
POLL_MS = 250
AWAY_MS = 1000
POLLS_AN_INVENTORY = 8
JOB_FIELDS = ("JobID", "State", "exit_code", "Reason", "Comment")
NODE_FIELDS = ("NodeList", "CPUs", "Memory", "StateLong", "Reason")

OVER = {
    "COMPLETED": Outcome.COMPLETED,
    "FAILED": Outcome.FAILED,
    "OUT_OF_MEMORY": Outcome.OUT_OF_MEMORY,
    "CANCELLED": Outcome.CANCELLED,
    "TIMEOUT": Outcome.TIMED_OUT,
    "DEADLINE": Outcome.TIMED_OUT,
    "NODE_FAIL": Outcome.LOST,
    "BOOT_FAIL": Outcome.LOST,
    "PREEMPTED": Outcome.LOST,
}
NOT_BEGUN = {"PENDING", "CONFIGURING"}
NEVER = {"PartitionConfig", "BadConstraints", "ReqNodeNotAvail", "PartitionNodeLimit", "AccountNotAllowed"}
"""Reasons to wait that no waiting cures: Slurm took the job, and says only here that it cannot be."""

Attempt = tuple[int, int]


class Seen(NamedTuple):
    """One of our jobs, as Slurm shows it."""

    id: str
    state: str
    status: int
    reason: str


class SlurmEngine:
    """`home` tells our jobs from those of others, other Tidegates included."""

    def __init__(self, home: str, records: Path, partition: str) -> None:
        self.mark = f"tide:{home}:"
        self.records = records
        self.partition = partition
        self.jobs: dict[Attempt, Seen] = {}
        self.nodes: dict[str, Node] = {}
        self.begun: set[Attempt] = set()
        self.told: set[Attempt] = set()  # their ends were reported
        self.queue: list[en.Report] = []
        self.later: list[en.Directive] = []  # what Slurm was away for
        self.submitted = self.polls = self.poll_at = 0

    # -- directives --------------------------------------------------------------------------------------

    def deliver(self, directives: Sequence[en.Directive], now: int) -> None:
        self.later += directives
        self.poll_at = now

    def _hand_over(self) -> None:
        """One by one, so that what was done before Slurm went away is not done again."""
        while self.later:
            match self.later[0]:
                case en.Launch() as launch:
                    self._launch(launch)
                case en.Halt() as halt:
                    self._halt(halt)
                case en.Notify() as notify:
                    self.queue.append(en.Notified(notify.job.id))
                case en.Ask() | en.Suspend() | en.Resume():
                    pass  # its jobs are not asked to save themselves, nor stopped
                case other:
                    assert_never(other)
            del self.later[0]

    def _launch(self, launch: en.Launch) -> None:
        attempt = (launch.task, launch.attempt)
        if attempt in self.jobs or attempt in self.told or self._record(attempt, "claim").exists():
            return
        try:
            job = ask("sbatch", *self._instead(launch.task), *self._options(launch), env=self._environment(launch))
        except SlurmError as error:
            self.queue.append(en.LaunchRefused(*attempt, str(error)))
            return
        self.jobs[attempt] = Seen(job, "PENDING", 0, "")
        self.submitted += 1

    def _instead(self, task: int) -> Iterator[str]:
        """An earlier attempt that the world gave up may still be there: never two at a time."""
        for (other, _), seen in self.jobs.items():
            if other == task and seen.state not in OVER:
                ask("scancel", seen.id)
                yield f"--dependency=afterany:{seen.id}"

    def _options(self, launch: en.Launch) -> Iterator[str]:
        spec = launch.job.spec
        work, chunk = spec.work or Work(("true",)), dict(spec.shape.chunk)
        cpus, rest = divmod(chunk.pop(CPUS, 0), 1000)
        memory = chunk.pop(MEMORY, 0)
        each = {count for _, count in launch.nodes}
        if rest or not cpus or chunk or len(each) != 1:
            raise SlurmError("this engine gives whole cpus and memory, the same on every node; ask for that")
        on_node = each.pop()
        yield from ("--parsable", "--no-requeue", "--export=ALL", f"--partition={self.partition}")
        yield f"--comment={self._comment((launch.task, launch.attempt))}"
        yield f"--nodelist={','.join(name for name, _ in launch.nodes)}"
        yield from (f"--nodes={len(launch.nodes)}", f"--ntasks-per-node={on_node}", f"--cpus-per-task={cpus}")
        if memory:  # none given means "not counted" here; a 0 would mean "all of the node" there
            yield f"--mem={memory * on_node}M"
        yield f"--time={max(1, -(-spec.limit_ms // 60_000))}"  # Slurm counts in minutes
        yield f"--chdir={work.cwd}"
        yield f"--output={_path(work.stdout, launch)}"
        if work.stderr:
            yield f"--error={_path(work.stderr, launch)}"
        yield f"--job-name={spec.name or 'tide'}"
        yield from (str(LAUNCHER), str(self.records / f"{launch.task}.{launch.attempt}"), *work.argv)

    def _environment(self, launch: en.Launch) -> dict[str, str]:
        """Its own, ours, and what Slurm's commands need to find their cluster."""
        names = ",".join(name for name, _ in launch.nodes)
        ours = {"TIDE_JOB_ID": str(job_of(launch.task)), "TIDE_ATTEMPT": str(launch.attempt), "TIDE_NODES": names}
        return {name: os.environ[name] for name in ("PATH", "SLURM_CONF")} | dict(launch.env) | ours

    def _halt(self, halt: en.Halt) -> None:
        attempt = (halt.task, halt.attempt)
        seen = self.jobs.get(attempt)
        if seen is None:  # scancel would say nothing, and nothing would ever end
            self.queue.append(en.Ended(*attempt, halt.outcome, why="Slurm does not know it"))
        elif seen.state not in OVER:
            ask("scancel", seen.id)

    # -- reports -----------------------------------------------------------------------------------------

    def next_at(self) -> int | None:
        return 0 if self.queue else self.poll_at

    def reports(self, now: int) -> Sequence[en.Report]:
        if now >= self.poll_at:
            self.poll_at, self.polls = now + POLL_MS, self.polls + 1
            try:
                self._look(now)
                self._hand_over()
            except AwayError:
                self.poll_at = now + AWAY_MS  # nothing is known, so nothing is said
        reports, self.queue = self.queue, []
        return reports

    def _look(self, now: int) -> None:
        self.queue += self._node_reports()
        self.jobs = self._ask_jobs()  # what a process before us handed in counts too
        for attempt, seen in self.jobs.items():
            self.queue += self._job_reports(attempt, seen)
        self.queue += self._forgotten()
        if self.polls % POLLS_AN_INVENTORY == 1:
            there = tuple(a for a, seen in self.jobs.items() if seen.state not in OVER and seen.state not in NOT_BEGUN)
            self.queue.append(en.Inventory(now, there))

    def _job_reports(self, attempt: Attempt, seen: Seen) -> Iterator[en.Report]:
        if attempt in self.told:
            return
        if seen.state in NOT_BEGUN:
            if seen.reason.strip("()").partition(",")[0] in NEVER:
                ask("scancel", seen.id)
                self.told.add(attempt)
                yield en.LaunchRefused(*attempt, f"Slurm would never start it: {seen.reason}")
            return
        if attempt not in self.begun and seen.state != "CANCELLED":  # that may have been before it began
            self.begun.add(attempt)
            yield en.Launched(*attempt)
        if seen.state in OVER:
            self.told.add(attempt)
            yield self._end(attempt, seen)

    def _forgotten(self) -> Iterator[en.Report]:
        """Slurm forgets a job some minutes after its end; nobody may have listened until then."""
        for record in sorted(self.records.glob("*.exit")):
            task, attempt = map(int, record.stem.split("."))
            if (task, attempt) not in self.jobs and (task, attempt) not in self.told:
                self.told.add((task, attempt))
                failed = record.read_text(encoding="ascii").split()[:2] != ["0", "0"]
                state = "FAILED" if failed else "COMPLETED"
                yield self._end((task, attempt), Seen("", state, 0, "None"))

    def _end(self, attempt: Attempt, seen: Seen) -> en.Ended:
        code, signal, used = seen.status >> 8, seen.status & 0x7F, NOTHING_KNOWN
        record = self._record(attempt, "exit")
        if record.exists():
            code, signal, cpu_ms, peak_kib = map(int, record.read_text(encoding="ascii").split())
            used = Used(cpu_ms=cpu_ms, peak_kib=peak_kib)
        why = "" if seen.reason in {"None", "NonZeroExitCode"} else seen.reason
        return en.Ended(*attempt, OVER[seen.state], code, signal, used, why)

    def _node_reports(self) -> Iterator[en.Report]:
        for name, cpus, memory, state, reason in table("sinfo", "-N", "-p", self.partition, fields=NODE_FIELDS):
            capacity = amounts(**{CPUS: int(cpus) * 1000, MEMORY: int(memory)})
            why = "" if reason == "none" else reason
            node = Node(name, self.partition, capacity, state=node_state(state), why=why)
            if self.nodes.get(name) != node:
                self.nodes[name] = node
                yield en.NodeSeen(node)

    # -- Slurm's names -----------------------------------------------------------------------------------

    def _comment(self, attempt: Attempt) -> str:
        return f"{self.mark}{attempt[0]}:{attempt[1]}"

    def _record(self, attempt: Attempt, kind: str) -> Path:
        return self.records / f"{attempt[0]}.{attempt[1]}.{kind}"

    def _claim_of(self, attempt: Attempt) -> str:
        """Where an answer of sbatch was lost there are two of it: the one that took the claim counts."""
        claim = self._record(attempt, "claim")
        return claim.read_text() if claim.exists() else ""

    def _ask_jobs(self) -> dict[Attempt, Seen]:
        found: dict[Attempt, Seen] = {}
        for job, state, status, reason, comment in table("squeue", "-t", "all", fields=JOB_FIELDS):
            if comment.startswith(self.mark):
                task, number = map(int, comment.removeprefix(self.mark).split(":"))
                if (task, number) not in found or self._claim_of((task, number)) == job:
                    found[task, number] = Seen(job, state, int(status), reason)
        return found


def node_state(state: str) -> NodeState:
    """Slurm's words: a state, then marks; `*` is a node that does not answer."""
    word = state.rstrip("~#!%$@^-+")
    if word.endswith("*") or word.startswith(("down", "fail", "unknown", "inval", "power", "reboot")):
        return NodeState.DOWN
    return NodeState.DRAINING if word.startswith(("drain", "maint")) else NodeState.UP


def _path(pattern: str, launch: en.Launch) -> str:
    """Our patterns become names; what is left is not a pattern of Slurm's."""
    known = {"%j": job_of(launch.task), "%a": index_of(launch.task), "%t": launch.attempt, "%u": launch.job.spec.user}
    for word, value in known.items():
        pattern = pattern.replace(word, str(value))
    return pattern.replace("%", "%%") or "/dev/null"
