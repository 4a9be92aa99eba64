"""The columns of squeue: by letter for `-o`, by name for `-O`."""

import os
from collections.abc import Callable
from typing import NamedTuple

from tidegate.model.base import ARRAY_BITS, FOREVER_MS
from tidegate.model.jobs import Job
from tidegate.slurm.views import SHORT, View, reason_of
from tidegate.slurm.words import UNLIMITED, gid_of, lasting, moment, uid_of
from tidegate.wire.slurm import CLUSTER, fill
from tidegate.world.world import World


class Sight:
    """From where it is looked: the time, and the state."""

    def __init__(self, now: int, form: str, world: World) -> None:
        self.now = now
        self.form = form
        self.world = world

    def moment(self, ms: int) -> str:
        return moment(ms, self.form)

    def reason(self, job: Job) -> str:
        return reason_of(self.world, job)

    def start_ms(self, view: View) -> int:
        """When it started, or is to start as far as that is known; 0: it is not."""
        if view.start_ms >= 0:
            return view.start_ms
        if view.state != "PENDING":
            return 0
        promise = self.world.promises.get(view.job.id << ARRAY_BITS)
        if promise is not None:
            return promise.start_by
        return view.job.spec.begin_ms if view.job.spec.begin_ms > self.now else 0


Value = Callable[[View, Sight], str]


class Field(NamedTuple):
    letter: str
    name: str
    header: str
    value: Value


def time_left(view: View, sight: Sight) -> str:
    if view.limit_ms == UNLIMITED:
        return "UNLIMITED"
    left = view.limit_ms - view.elapsed_ms(sight.now)
    return lasting(left) if left >= 0 else "INVALID"


def time_limit(view: View, _sight: Sight) -> str:
    return "UNLIMITED" if view.limit_ms == UNLIMITED else lasting(view.limit_ms)


def nodes_or_reason(view: View, _sight: Sight) -> str:
    if view.state == "PENDING" or (view.state != "COMPLETED" and view.end_ms >= 0):
        return f"({view.reason})"
    return view.node_list


def end_time(view: View, sight: Sight) -> str:
    if view.end_ms >= 0:
        return sight.moment(view.end_ms)
    if view.start_ms < 0 or view.limit_ms == UNLIMITED:
        return "N/A"
    return sight.moment(view.start_ms + view.limit_ms)


def start_time(view: View, sight: Sight) -> str:
    known = sight.start_ms(view)
    return sight.moment(known) if known else "N/A"


def output(view: View, _sight: Sight) -> str:
    work = view.job.spec.work
    return fill(work.stdout, view.job, max(0, view.index or 0), view.nodes) if work is not None else ""


def command(view: View, _sight: Sight) -> str:
    return view.said.command or "(null)"


def or_null(text: str) -> str:
    return text or "(null)"


def work_dir(view: View, _sight: Sight) -> str:
    work = view.job.spec.work
    return work.cwd if work is not None else ""


def deadline(view: View, sight: Sight) -> str:
    at = view.job.spec.deadline_ms
    return sight.moment(at) if at < FOREVER_MS else "N/A"


def batch_host(view: View, _sight: Sight) -> str:
    return view.nodes[0][0] if view.nodes else "n/a"


def user_or_group(view: View, _sight: Sight) -> str:
    return str(gid_of(view.job.spec.user))


ROWS: tuple[Field, ...] = (
    Field("a", "account", "ACCOUNT", lambda v, s: v.account),
    Field("A", "jobid", "JOBID", lambda v, s: str(v.raw)),
    Field("B", "batchhost", "EXEC_HOST", batch_host),
    Field("b", "tres-per-node", "TRES_PER_NODE", lambda v, s: v.said.gres or "N/A"),
    Field("c", "mincpus", "MIN_CPUS", lambda v, s: str(v.said.cpus_per_task or 1)),
    Field("C", "numcpus", "CPUS", lambda v, s: str(v.cpus)),
    Field("d", "mintmpdisk", "MIN_TMP_DISK", lambda v, s: "0"),
    Field("D", "numnodes", "NODES", lambda v, s: str(v.node_count)),
    Field("e", "endtime", "END_TIME", end_time),
    Field("E", "dependency", "DEPENDENCY", lambda v, s: or_null(v.said.dependency if v.state == "PENDING" else "")),
    Field("f", "feature", "FEATURES", lambda v, s: or_null(v.said.features)),
    Field("F", "arrayjobid", "ARRAY_JOB_ID", lambda v, s: str(v.job.id)),
    Field("g", "groupname", "GROUP", lambda v, s: v.job.spec.user),
    Field("G", "groupid", "GROUP", user_or_group),
    Field("h", "oversubscribe", "OVER_SUBSCRIBE", lambda v, s: "NO" if v.said.exclusive else "OK"),
    Field("H", "socketspernode", "SOCKETS_PER_NODE", lambda v, s: "*"),
    Field("i", "jobarrayid", "JOBID", lambda v, s: v.id_text),
    Field("I", "corespersocket", "CORES_PER_SOCKET", lambda v, s: "*"),
    Field("j", "name", "NAME", lambda v, s: v.job.spec.name),
    Field("J", "threadspercore", "THREADS_PER_CORE", lambda v, s: "*"),
    Field("k", "comment", "COMMENT", lambda v, s: or_null(v.said.comment)),
    Field("K", "arraytaskid", "ARRAY_TASK_ID", lambda v, s: v.tasks_text),
    Field("l", "timelimit", "TIME_LIMIT", time_limit),
    Field("L", "timeleft", "TIME_LEFT", time_left),
    Field("m", "minmemory", "MIN_MEMORY", lambda v, s: v.memory_text),
    Field("M", "timeused", "TIME", lambda v, s: lasting(v.elapsed_ms(s.now))),
    Field("n", "reqnodes", "REQ_NODES", lambda v, s: ""),
    Field("N", "nodelist", "NODELIST", lambda v, s: v.node_list),
    Field("o", "command", "COMMAND", command),
    Field("O", "contiguous", "CONTIGUOUS", lambda v, s: "0"),
    Field("p", "prioritylong", "PRIORITY", lambda v, s: f"{v.priority / 2**32:.14f}"),
    Field("P", "partition", "PARTITION", lambda v, s: v.job.pool),
    Field("q", "qos", "QOS", lambda v, s: v.qos),
    Field("Q", "priority", "PRIORITY", lambda v, s: str(v.priority)),
    Field("r", "reason", "REASON", lambda v, s: v.reason),
    Field("R", "reasonlist", "NODELIST(REASON)", nodes_or_reason),
    Field("s", "selectjobinfo", "SELECT_JOBINFO", lambda v, s: ""),
    Field("S", "starttime", "START_TIME", start_time),
    Field("t", "statecompact", "ST", lambda v, s: SHORT[v.state]),
    Field("T", "state", "STATE", lambda v, s: v.state),
    Field("u", "username", "USER", lambda v, s: v.job.spec.user),
    Field("U", "userid", "USER", lambda v, s: str(uid_of(v.job.spec.user))),
    Field("v", "reservation", "RESERVATION", lambda v, s: or_null(v.said.reservation)),
    Field("V", "submittime", "SUBMIT_TIME", lambda v, s: s.moment(v.job.submit_ms)),
    Field("w", "wckey", "WCKEY", lambda v, s: or_null(v.said.wckey)),
    Field("W", "licenses", "LICENSES", lambda v, s: "(null)"),
    Field("x", "excnodes", "EXC_NODES", lambda v, s: ""),
    Field("X", "corespec", "CORE_SPEC", lambda v, s: "N/A"),
    Field("y", "nice", "NICE", lambda v, s: "0"),
    Field("Y", "schednodes", "SCHEDNODES", lambda v, s: "(null)"),
    Field("z", "sct", "S:C:T", lambda v, s: "*:*:*"),
    Field("Z", "workdir", "WORK_DIR", work_dir),
)
NAMED: tuple[Field, ...] = (
    Field("", "tres-alloc", "TRES_ALLOC", lambda v, s: v.tres),
    Field("", "tres", "TRES_ALLOC", lambda v, s: v.tres),
    Field("", "gres", "TRES_PER_NODE", lambda v, s: v.said.gres or "N/A"),
    Field("", "tres-per-job", "TRES_PER_JOB", lambda v, s: "N/A"),
    Field("", "tres-per-task", "TRES_PER_TASK", lambda v, s: "N/A"),
    Field("", "tres-per-socket", "TRES_PER_SOCKET", lambda v, s: "N/A"),
    Field("", "cluster", "CLUSTER", lambda v, s: CLUSTER),
    Field("", "numtasks", "TASKS", lambda v, s: str(v.tasks)),
    Field("", "cpus-per-task", "CPUS_PER_TASK", lambda v, s: str(v.said.cpus_per_task or "N/A")),
    Field("", "stdout", "STDOUT", output),
    Field("", "stderr", "STDERR", output),
    Field("", "stdin", "STDIN", lambda v, s: "/dev/null"),
    Field("", "deadline", "DEADLINE", deadline),
    Field("", "exit_code", "EXIT_CODE", lambda v, s: str(v.code)),
    Field("", "exitcode", "EXIT_CODE", lambda v, s: str(v.code)),
    Field("", "restartcnt", "RESTART_COUNT", lambda v, s: str(max(0, v.attempt - 1))),
    Field("", "requeue", "REQUEUE", lambda v, s: str(int(v.said.requeue))),
    Field("", "allocnodes", "ALLOC_NODES", lambda v, s: v.said.host or os.uname().nodename),
    Field("", "maxnodes", "MAX_NODES", lambda v, s: "0"),
    Field("", "maxcpus", "MAX_CPUS", lambda v, s: "0"),
    Field("", "minnodes", "MIN_NODES", lambda v, s: str(v.node_count)),
    Field("", "eligibletime", "ELIGIBLE_TIME", lambda v, s: s.moment(max(v.job.submit_ms, v.job.spec.begin_ms))),
    Field("", "accruetime", "ACCRUE_TIME", lambda v, s: s.moment(v.job.submit_ms)),
    Field("", "pendingtime", "PENDING_TIME",
          lambda v, s: str(max(0, (v.start_ms if v.start_ms >= 0 else s.now) - v.job.submit_ms) // 1000)),
    Field("", "hetjobid", "HET_JOB_ID", lambda v, s: "N/A"),
    Field("", "hetjoboffset", "HET_JOB_OFFSET", lambda v, s: "N/A"),
    Field("", "admin_comment", "ADMIN_COMMENT", lambda v, s: "(null)"),
    Field("", "admincomment", "ADMIN_COMMENT", lambda v, s: "(null)"),
    Field("", "origin", "ORIGIN", lambda v, s: "NA"),
    Field("", "network", "NETWORK", lambda v, s: "(null)"),
    Field("", "ntperboard", "TASKS_PER_BOARD", lambda v, s: "0"),
    Field("", "ntpercore", "TASKS_PER_CORE", lambda v, s: "N/A"),
    Field("", "ntpernode", "TASKS_PER_NODE", lambda v, s: str(v.said.tasks_per_node or 0)),
    Field("", "ntpersocket", "TASKS_PER_SOCKET", lambda v, s: "N/A"),
    Field("", "delayboot", "DELAY_BOOT", lambda v, s: "N/A"),
    Field("", "profile", "PROFILE", lambda v, s: "(null)"),
    Field("", "prioritytier", "PRIORITY_TIER", lambda v, s: "1"),
    Field("", "suspendtime", "SUSPEND_TIME", lambda v, s: "N/A"),
    Field("", "presustime", "PRE_SUS_TIME", lambda v, s: "0"),
    Field("", "lastschedeval", "LAST_SCHED_EVAL", lambda v, s: s.moment(s.now)),
)  # fmt: skip
LETTERS = {field.letter: field for field in ROWS}
FIELDS = {field.name: field for field in (*ROWS, *NAMED)}
