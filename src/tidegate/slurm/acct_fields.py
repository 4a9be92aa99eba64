"""The columns of sacct, and its rows: a job's own, its batch script's, and one for each step."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.slurm.steps import Step
from tidegate.slurm.views import View
from tidegate.slurm.words import UNLIMITED, cpu_time, gid_of, long_lasting, moment, size, uid_of
from tidegate.wire.hostlist import expand
from tidegate.wire.slurm import CLUSTER

BATCH = ".batch"
TERM = 15
OOM = 125
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Sight:
    """How values are written."""

    now: int
    form: str  # SLURM_TIME_FORMAT
    is_raw: bool  # --noconvert
    units: str
    is_whole: bool = False  # nothing is cut to a column


@dataclass(slots=True)
class Row:
    """A line of the table."""

    view: View
    step: str  # "": the job itself, else `.batch` or `.0`
    name: str
    state: str
    code: int
    signal: int
    start_ms: int
    end_ms: int
    cpus: int
    nodes: str
    node_count: int
    tasks: int = 0
    cpu_ms: int = -1
    peak_kib: int = -1
    read_kib: int = -1
    written_kib: int = -1

    def elapsed_ms(self, now: int) -> int:
        return 0 if self.start_ms < 0 else max(0, (self.end_ms if self.end_ms >= 0 else now) - self.start_ms)


def rows_of(view: View, steps: Iterable[Step]) -> Iterator[Row]:
    used, state = view.used, view.state
    code, signal = view.code, view.signal
    if state in {"CANCELLED", "TIMEOUT", "REQUEUED", "PREEMPTED", "DEADLINE", "NODE_FAIL"}:
        code = signal = 0
    if state == "OUT_OF_MEMORY":
        code, signal = 0, OOM
    shown = f"CANCELLED by {view.canceller}" if state == "CANCELLED" else state
    nodes = view.node_list if view.start_ms >= 0 else "None assigned"
    here = [step for step in steps if step.attempt == view.attempt]
    yield Row(
        view, "", view.job.spec.name, shown, code, signal, view.start_ms, view.end_ms, view.cpus, nodes,
        view.node_count, cpu_ms=used.cpu_ms,
    )  # fmt: skip
    if view.start_ms < 0:
        return
    if view.said.kind == "batch":
        yield batch_row(view)
    for step in here:
        yield step_row(view, step)


def batch_row(view: View) -> Row:
    state, code, signal = view.state, view.code, view.signal
    if state == "OUT_OF_MEMORY":
        code, signal = 0, OOM
    elif state in {"CANCELLED", "TIMEOUT", "REQUEUED", "PREEMPTED", "DEADLINE", "NODE_FAIL"}:
        state, code, signal = "CANCELLED", 0, TERM
    elif signal:
        state = "CANCELLED"
    layout, used = view.layout, view.used
    return Row(
        view, BATCH, "batch", state, code, signal, view.start_ms, view.end_ms, layout.cpus[0] if layout.cpus else 1,
        layout.names[0] if layout.names else "", 1, 1, used.cpu_ms, used.peak_kib, used.read_kib, used.written_kib,
    )  # fmt: skip


def step_row(view: View, step: Step) -> Row:
    end_ms, code, signal = step.end_ms or -1, step.code, step.signal
    state = "COMPLETED"
    if not step.end_ms and view.end_ms < 0:
        state = "RUNNING"
    elif not step.end_ms:
        state, end_ms, signal = "CANCELLED", view.end_ms, TERM
    elif signal:
        state, code = "CANCELLED", 0
    elif code:
        state = "FAILED"
    return Row(
        view, f".{step.number}", step.name, state, code, signal, step.start_ms, end_ms, step.cpus, step.nodes,
        len(expand(step.nodes)), step.tasks, step.cpu_ms, step.peak_kib,
    )  # fmt: skip


# -- values --------------------------------------------------------------------------------------------------

Value = Callable[[Row, Sight], str]


class Column(NamedTuple):
    name: str
    width: int
    value: Value


def of_job(value: Value) -> Value:
    """Empty on the rows of steps."""
    return lambda row, sight: "" if row.step else value(row, sight)


def of_step(value: Value) -> Value:
    """Empty on the row of the job, and where nothing is known yet."""
    return lambda row, sight: value(row, sight) if row.step and row.end_ms >= 0 else ""


def nothing(_row: Row, _sight: Sight) -> str:
    return ""


def at(ms: int, sight: Sight) -> str:
    return moment(ms, sight.form) if ms >= 0 else "Unknown"


def tres(row: Row, _sight: Sight) -> str:
    view = row.view
    if view.start_ms < 0:
        return ""
    if not row.step:
        return view.sorted_tres
    part = row.cpus / max(1, view.cpus)
    memory = f",mem={size(round(view.memory_mib * part))}" if view.memory_mib else ""
    gpus = f",gres/gpu={round(view.gpus * row.node_count / max(1, view.node_count))}" if view.gpus else ""
    return f"cpu={row.cpus}{gpus}{memory},node={row.node_count}"


def requested(row: Row, _sight: Sight) -> str:
    return row.view.sorted_tres


def limit(row: Row, _sight: Sight) -> str:
    view = row.view
    if view.limit_ms == UNLIMITED:
        return "UNLIMITED" if view.start_ms >= 0 else "Partition_Limit"
    return long_lasting(view.limit_ms)


def limit_minutes(row: Row, _sight: Sight) -> str:
    return "UNLIMITED" if row.view.limit_ms == UNLIMITED else str(row.view.limit_ms // MINUTE_MS)


def raw(row: Row, _sight: Sight) -> str:
    return f"{row.view.raw}{row.step}"


def kib(number: int, sight: Sight) -> str:
    if number < 0:
        return ""
    if sight.is_raw or not sight.units:
        return f"{number}K"
    return f"{number / (1 << 10 * 'KMGTP'.index(sight.units[0].upper())):.2f}{sight.units[0].upper()}"


def memory(row: Row, sight: Sight) -> str:
    mib = row.view.memory_mib
    return size(mib, convert=not sight.is_raw) if mib else "0"


def total_cpu(row: Row, _sight: Sight) -> str:
    return cpu_time(row.cpu_ms) if row.cpu_ms >= 0 else "00:00:00"


def average_cpu(row: Row, _sight: Sight) -> str:
    return long_lasting(row.cpu_ms // max(1, row.tasks)) if row.cpu_ms >= 0 else ""


def usage(row: Row, _sight: Sight) -> str:
    if row.peak_kib < 0:
        return ""
    return f"cpu={long_lasting(max(0, row.cpu_ms))},energy=0,fs/disk={max(0, row.read_kib) << 10},mem={row.peak_kib}K"


def reserved(row: Row, sight: Sight) -> str:
    view = row.view
    until = view.start_ms if view.start_ms >= 0 else (view.end_ms if view.end_ms >= 0 else sight.now)
    return long_lasting(until - view.job.submit_ms)


def eligible(row: Row, sight: Sight) -> str:
    return at(max(row.view.job.submit_ms, row.view.job.spec.begin_ms), sight)


def line_of(row: Row, _sight: Sight) -> str:
    return row.view.said.line


def work_dir(row: Row, _sight: Sight) -> str:
    work = row.view.job.spec.work
    return work.cwd if work is not None else ""


def flags(row: Row, _sight: Sight) -> str:
    return "SchedMain" if row.view.start_ms >= 0 else ""


def reason(row: Row, _sight: Sight) -> str:
    return row.view.reason if row.view.state == "PENDING" else "None"


def step_id(row: Row, _sight: Sight) -> str:
    return row.view.id_text + row.step


NAMES: tuple[str, ...] = (
    "Account", "AdminComment", "AllocCPUS", "AllocNodes", "AllocTRES", "AssocID", "AveCPU", "AveCPUFreq",
    "AveDiskRead", "AveDiskWrite", "AvePages", "AveRSS", "AveVMSize", "BlockID", "Cluster", "Comment",
    "Constraints", "ConsumedEnergy", "ConsumedEnergyRaw", "Container", "CPUTime", "CPUTimeRAW", "DBIndex",
    "DerivedExitCode", "Elapsed", "ElapsedRaw", "Eligible", "End", "ExitCode", "Flags", "GID", "Group", "JobID",
    "JobIDRaw", "JobName", "Layout", "MaxDiskRead", "MaxDiskReadNode", "MaxDiskReadTask", "MaxDiskWrite",
    "MaxDiskWriteNode", "MaxDiskWriteTask", "MaxPages", "MaxPagesNode", "MaxPagesTask", "MaxRSS", "MaxRSSNode",
    "MaxRSSTask", "MaxVMSize", "MaxVMSizeNode", "MaxVMSizeTask", "McsLabel", "MinCPU", "MinCPUNode", "MinCPUTask",
    "NCPUS", "NNodes", "NodeList", "NTasks", "Partition", "Priority", "QOS", "QOSRAW", "Reason", "ReqCPUFreq",
    "ReqCPUFreqGov", "ReqCPUFreqMax", "ReqCPUFreqMin", "ReqCPUS", "ReqMem", "ReqNodes", "ReqTRES", "Reservation",
    "ReservationId", "Reserved", "ResvCPU", "ResvCPURAW", "Start", "State", "Submit", "SubmitLine", "Suspended",
    "SystemComment", "SystemCPU", "Timelimit", "TimelimitRaw", "TotalCPU", "TRESUsageInAve", "TRESUsageInMax",
    "TRESUsageInMaxNode", "TRESUsageInMaxTask", "TRESUsageInMin", "TRESUsageInMinNode", "TRESUsageInMinTask",
    "TRESUsageInTot", "TRESUsageOutAve", "TRESUsageOutMax", "TRESUsageOutMaxNode", "TRESUsageOutMaxTask",
    "TRESUsageOutMin", "TRESUsageOutMinNode", "TRESUsageOutMinTask", "TRESUsageOutTot", "UID", "User", "UserCPU",
    "WCKey", "WCKeyID", "WorkDir",
)  # fmt: skip
WIDTHS = {
    "JobID": -12, "JobIDRaw": -12, "NNodes": 8, "NTasks": 8, "ExitCode": 8, "MaxPages": 8, "AssocID": 7, "UID": 6,
    "GID": 6, "User": 9, "Group": 9, "Layout": 9, "NodeList": 15, "Start": 19, "End": 19, "Submit": 19, "Eligible": 19,
    "Comment": 14, "AdminComment": 19, "SystemComment": 20, "SubmitLine": 20, "WorkDir": 20, "Reason": 22,
    "Reservation": 20, "ReqCPUS": 8, "ReqNodes": 8, "DerivedExitCode": 15, "MaxVMSizeNode": 14, "MaxVMSizeTask": 14,
    "MaxPagesNode": 12, "MaxPagesTask": 14, "ReqCPUFreqMin": 13, "ReqCPUFreqMax": 13, "ReqCPUFreqGov": 13,
    "ConsumedEnergy": 14, "MaxDiskRead": 12, "MaxDiskReadNode": 15, "MaxDiskReadTask": 15, "AveDiskRead": 14,
    "MaxDiskWrite": 12, "MaxDiskWriteNode": 16, "MaxDiskWriteTask": 16, "AveDiskWrite": 14, "QOSRAW": 6,
    **{name: len(name) for name in NAMES if name.startswith("TRESUsage")},
}  # fmt: skip
VALUES: dict[str, Value] = {
    "Account": lambda r, s: r.view.account,
    "AllocCPUS": lambda r, s: str(r.cpus),
    "AllocNodes": lambda r, s: str(r.node_count if r.start_ms >= 0 else 0),
    "AllocTRES": tres,
    "AssocID": of_job(lambda r, s: "1"),
    "AveCPU": of_step(average_cpu),
    "AveCPUFreq": of_step(lambda r, s: "0"),
    "AveRSS": of_step(lambda r, s: kib(r.peak_kib, s)),
    "Cluster": lambda r, s: CLUSTER,
    "Comment": of_job(lambda r, s: r.view.said.comment),
    "Constraints": of_job(lambda r, s: r.view.said.features),
    "ConsumedEnergy": lambda r, s: "0",
    "ConsumedEnergyRaw": lambda r, s: "0",
    "CPUTime": lambda r, s: long_lasting(r.elapsed_ms(s.now) * r.cpus),
    "CPUTimeRAW": lambda r, s: str(r.elapsed_ms(s.now) * r.cpus // 1000),
    "DBIndex": lambda r, s: str(r.view.raw),
    "DerivedExitCode": of_job(lambda r, s: "0:0"),
    "Elapsed": lambda r, s: long_lasting(r.elapsed_ms(s.now)),
    "ElapsedRaw": lambda r, s: str(r.elapsed_ms(s.now) // 1000),
    "Eligible": eligible,
    "End": lambda r, s: at(r.end_ms, s),
    "ExitCode": lambda r, s: f"{r.code}:{r.signal}",
    "Flags": of_job(flags),
    "GID": of_job(lambda r, s: str(gid_of(r.view.job.spec.user))),
    "Group": of_job(lambda r, s: r.view.job.spec.user),
    "JobID": step_id,
    "JobIDRaw": raw,
    "JobName": lambda r, s: r.name,
    "Layout": of_step(lambda r, s: "Block" if r.step != BATCH else "Unknown"),
    "MaxDiskRead": of_step(lambda r, s: kib(r.read_kib, s)),
    "MaxDiskWrite": of_step(lambda r, s: kib(r.written_kib, s)),
    "MaxRSS": of_step(lambda r, s: kib(r.peak_kib, s)),
    "MaxRSSNode": of_step(lambda r, s: r.nodes if r.peak_kib >= 0 else ""),
    "MaxRSSTask": of_step(lambda r, s: "0" if r.peak_kib >= 0 else ""),
    "MinCPU": of_step(average_cpu),
    "NCPUS": lambda r, s: str(r.cpus),
    "NNodes": lambda r, s: str(r.node_count),
    "NodeList": lambda r, s: r.nodes,
    "NTasks": lambda r, s: str(r.tasks) if r.step else "",
    "Partition": of_job(lambda r, s: r.view.job.pool),
    "Priority": of_job(lambda r, s: str(r.view.priority)),
    "QOS": of_job(lambda r, s: r.view.qos),
    "QOSRAW": of_job(lambda r, s: "1"),
    "Reason": of_job(reason),
    "ReqCPUFreq": lambda r, s: "Unknown",
    "ReqCPUFreqGov": lambda r, s: "Unknown",
    "ReqCPUFreqMax": lambda r, s: "Unknown",
    "ReqCPUFreqMin": lambda r, s: "Unknown",
    "ReqCPUS": lambda r, s: str(r.cpus),
    "ReqMem": of_job(memory),
    "ReqNodes": lambda r, s: str(r.node_count),
    "ReqTRES": of_job(requested),
    "Reservation": of_job(lambda r, s: r.view.said.reservation),
    "Reserved": of_job(reserved),
    "Start": lambda r, s: at(r.start_ms, s),
    "State": lambda r, s: r.state,
    "Submit": lambda r, s: at(r.view.job.submit_ms if not r.step else r.start_ms, s),
    "SubmitLine": of_job(line_of),
    "Suspended": lambda r, s: "00:00:00",
    "SystemCPU": lambda r, s: "00:00:00",
    "Timelimit": of_job(limit),
    "TimelimitRaw": of_job(limit_minutes),
    "TotalCPU": total_cpu,
    "TRESUsageInAve": of_step(usage),
    "TRESUsageInMax": of_step(usage),
    "TRESUsageInTot": of_step(usage),
    "UID": of_job(lambda r, s: str(uid_of(r.view.job.spec.user))),
    "User": of_job(lambda r, s: r.view.job.spec.user),
    "UserCPU": total_cpu,
    "WCKey": of_job(lambda r, s: r.view.said.wckey),
    "WCKeyID": of_job(lambda r, s: "0"),
    "WorkDir": of_job(work_dir),
}
FIELDS = {name.lower(): Column(name, WIDTHS.get(name, 10), VALUES.get(name, nothing)) for name in NAMES}
FIELDS["planned"] = FIELDS["reserved"]  # as later versions call it
SHORT_FORMAT = "jobid,jobname,partition,account,alloccpus,state,exitcode"
BRIEF = "jobid,state,exitcode"
LONG_FORMAT = (
    "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,"
    "averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,alloccpus,elapsed,"
    "state,exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,"
    "maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,"
    "alloctres,reqtres,tresusageinave,tresusageinmax,tresusageinmaxn,tresusageinmaxt,tresusageinmin,tresusageinminn,"
    "tresusageinmint,tresusageintot,tresusageoutmax,tresusageoutmaxn,tresusageoutmaxt,tresusageoutave,tresusageouttot"
)
