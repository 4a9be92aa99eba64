"""What `scontrol show` writes."""

import os
from importlib.resources import files

from tidegate.api.past import final_endings
from tidegate.model.base import FOREVER_MS
from tidegate.model.jobs import Job
from tidegate.slurm.desk import Answer, Call, Desk
from tidegate.slurm.nodes import NodeView, Partition, load, node_views, partitions
from tidegate.slurm.queue_fields import Sight
from tidegate.slurm.squeue import INVALID_ID, jobs_named
from tidegate.slurm.views import View, ended, live
from tidegate.slurm.words import UNLIMITED, FaultError, gid_of, long_lasting, moment, size, uid_of
from tidegate.wire.hostlist import compress
from tidegate.wire.outputs import filled
from tidegate.wire.slurm import CLUSTER

UNSET = 4_294_967_294
RECENT_MS = 300_000
RECENT_MAX = 10_000


# -- jobs ----------------------------------------------------------------------------------------------------


def jobs_text(desk: Desk, call: Call, name: str, told: dict[str, str]) -> None:
    world = desk.world
    if name:
        try:
            asked = jobs_named(desk, name)
        except FaultError:
            raise FaultError(INVALID_ID) from None
        views = []
        for job_id, index in asked:
            known = world.jobs.get(job_id)
            found = list(live(world, [known])) if known is not None else []
            if known is None or known.spec.array is not None:
                past = [view for ending in final_endings(desk.past.history, job_id) for view in ended(ending)]
                found = sorted([*past, *found], key=lambda view: -1 if view.index is None else view.task)
            views += [view for view in found if index in {-1, view.index} or index in view.indices]
        if not views:
            raise FaultError(INVALID_ID)
        call.answer(written(desk, call, views, told))
        return
    here = list(live(world, list(world.jobs.values())))

    def work() -> Answer:
        history = desk.past.archive.open()
        try:
            recent = [one for one in history.recent(RECENT_MAX) if one.end_ms > call.now - RECENT_MS]
        finally:
            history.close()
        views = [view for ending in reversed(recent) for view in ended(ending)] + here
        return Answer(written(desk, call, views, told) if views else "No jobs in the system\n")

    desk.aside(call, work)


def written(desk: Desk, call: Call, views: list[View], told: dict[str, str]) -> str:
    sight = Sight(call.now, call.env.get("SLURM_TIME_FORMAT", ""), desk.world)
    return "".join(
        record(job_lines(view, sight, is_detailed="details" in told), one_line="oneliner" in told) for view in views
    )


def record(lines: list[str], *, one_line: bool) -> str:
    if one_line:
        return " ".join(lines) + " \n"
    return "\n   ".join(lines) + "\n   \n\n"


def job_lines(view: View, sight: Sight, *, is_detailed: bool) -> list[str]:
    job, said = view.job, view.said
    started = view.start_ms >= 0
    dependency = said.dependency if view.state == "PENDING" else ""
    flags = f"BatchFlag={int(said.kind == 'batch')} Reboot=0"
    lines = [
        id_line(view),
        owner_line(view),
        f"Priority={view.priority} Nice=0 Account={view.account} QOS={view.qos}",
        f"JobState={view.state} Reason={view.reason.partition(':')[0]} Dependency={dependency or '(null)'}",
        f"Requeue={int(said.requeue)} Restarts={max(0, view.attempt - 1)} {flags} ExitCode={exit_code(view)}",
    ]
    if is_detailed:
        lines.append("DerivedExitCode=0:0")
    lines += [*time_lines(view, sight), f"Partition={job.pool} AllocNode:Sid={said.host or 'localhost'}:{view.raw}",
              "ReqNodeList=(null) ExcNodeList=(null)", f"NodeList={view.node_list}"]  # fmt: skip
    if started:
        lines.append(f"BatchHost={view.nodes[0][0] if view.nodes else ''}")
    lines += [*size_lines(view, is_detailed=is_detailed), *work_lines(view), "Power="]
    if said.gres:
        lines.append(f"TresPerNode={said.gres}")
    if said.comment:
        lines.insert(-1, f"Comment={said.comment}")
    return lines


def id_line(view: View) -> str:
    array = view.job.spec.array
    if view.index is None or array is None:
        return f"JobId={view.job.id} JobName={view.job.spec.name}"
    text = view.tasks_text
    at_once = f"ArrayTaskThrottle={array.at_once_max} " if array.at_once_max else ""
    return f"JobId={view.raw} ArrayJobId={view.job.id} ArrayTaskId={text} {at_once}JobName={view.job.spec.name}"


def owner_line(view: View) -> str:
    user = view.job.spec.user
    return f"UserId={user}({uid_of(user)}) GroupId={user}({gid_of(user)}) MCS_label=N/A"


def exit_code(view: View) -> str:
    if view.state in {"CANCELLED", "TIMEOUT"} and view.start_ms >= 0:
        return "0:15"
    if view.state == "OUT_OF_MEMORY":
        return "0:125"
    return f"{view.code}:{view.signal}"


def time_lines(view: View, sight: Sight) -> list[str]:
    job, is_held = view.job, view.reason == "JobHeldUser"
    spec = job.spec
    limit = "UNLIMITED" if view.limit_ms == UNLIMITED else long_lasting(view.limit_ms)
    eligible = "Unknown" if is_held else sight.moment(max(job.submit_ms, spec.begin_ms))
    start = sight.moment(sight.start_ms(view)) if sight.start_ms(view) else "Unknown"
    end = "Unknown"
    if view.end_ms >= 0:
        end = sight.moment(view.end_ms)
        start = start if view.start_ms >= 0 else end
    elif view.start_ms >= 0 and view.limit_ms != UNLIMITED:
        end = sight.moment(view.start_ms + view.limit_ms)
    deadline = sight.moment(spec.deadline_ms) if spec.deadline_ms < FOREVER_MS else "N/A"
    evaluated = sight.moment(view.start_ms if view.start_ms >= 0 else job.submit_ms)
    return [
        f"RunTime={long_lasting(view.elapsed_ms(sight.now))} TimeLimit={limit} TimeMin=N/A",
        f"SubmitTime={sight.moment(job.submit_ms)} EligibleTime={eligible}",
        f"AccrueTime={eligible}",
        f"StartTime={start} EndTime={end} Deadline={deadline}",
        f"SuspendTime=None SecsPreSuspend=0 LastSchedEval={evaluated} Scheduler=Main",
    ]


def size_lines(view: View, *, is_detailed: bool) -> list[str]:
    said, layout = view.said, view.layout
    per_task = said.cpus_per_task or 1
    nodes = f"{said.nodes}-{said.nodes}" if said.nodes and view.state == "PENDING" else str(view.node_count)
    tasks = view.tasks
    memory = (
        f"MinMemoryCPU={size(said.cpu_memory_mib)}" if said.cpu_memory_mib else f"MinMemoryNode={size(view.memory_mib)}"
    )
    lines = [
        f"NumNodes={nodes} NumCPUs={view.cpus} NumTasks={tasks} CPUs/Task={per_task} ReqB:S:C:T=0:0:*:*",
        f"TRES={view.tres}",
        f"Socks/Node=* NtasksPerN:B:S:C={said.tasks_per_node}:0:*:* CoreSpec=*",
    ]
    if is_detailed and view.start_ms >= 0:
        gres = f"gpu:{layout.gpus[0]}" if any(layout.gpus) else ""
        lines.append(f"JOB_GRES={gres or '(null)'}")
        each = view.memory_mib // max(1, len(layout.names))
        for name, cpus, gpus in zip(layout.names, layout.cpus, layout.gpus, strict=True):
            held = f"gpu:{gpus}(IDX:0-{gpus - 1})" if gpus else ""
            lines.append(f"  Nodes={name} CPU_IDs=0-{cpus - 1} Mem={each} GRES={held}")
    share = "NO" if said.exclusive or said.nodes > 1 else "OK"
    lines += [
        f"MinCPUsNode={per_task * (said.tasks_per_node or 1)} {memory} MinTmpDiskNode=0",
        f"Features={said.features or '(null)'} DelayBoot=00:00:00",
        f"OverSubscribe={share} Contiguous=0 Licenses=(null) Network=(null)",
    ]
    return lines


def work_lines(view: View) -> list[str]:
    work = view.job.spec.work
    if work is None:
        return ["Command=(null)", "WorkDir=/"]
    out, errors = (output(view, text) for text in (work.stdout, work.stderr or work.stdout))
    lines = [f"Command={view.said.command or '(null)'}", f"WorkDir={work.cwd}"]
    if view.said.kind == "batch":
        lines += [f"StdErr={errors}", f"StdIn={work.stdin or '/dev/null'}", f"StdOut={out}"]
    return lines


def output(view: View, pattern: str) -> str:
    if view.index is not None and view.index < 0:
        return pattern.replace("%A", str(view.job.id)).replace("%a", str(UNSET)).replace("%j", str(view.job.id))
    return filled(pattern, view.job, max(0, view.index or 0), 1, view.nodes)


def script_of(desk: Desk, call: Call, text: str) -> tuple[int, str]:
    if not text.isdecimal():
        raise FaultError(f"scontrol: error: Invalid job id {text}\n")
    job: Job | None = desk.world.jobs.get(int(text)) or desk.past.job(int(text))
    if job is None or job.spec.work is None or not job.spec.work.script:
        raise FaultError("job script retrieval failed: Invalid job id specified\n")
    if not call.peer.may_touch(job.spec.user):
        raise FaultError("job script retrieval failed: Access/permission denied\n")
    return job.id, job.spec.work.script


def steps_text(desk: Desk, call: Call, name: str) -> Answer:
    """Those that run."""
    lines = []
    wanted, _, number = name.partition(".")
    of_jobs = desk.steps.of_jobs(desk.world.jobs)
    for steps in of_jobs.values():
        for step in steps:
            if step.end_ms or (wanted and str(step.job) != wanted) or (number and str(step.number) != number):
                continue
            job = desk.world.jobs[step.job]
            lines.append(
                f"StepId={step.job}.{step.number} UserId={uid_of(job.spec.user)} "
                f"StartTime={moment(step.start_ms)} TimeLimit=UNLIMITED\n"
                f"   State=RUNNING Partition={job.pool} NodeList={step.nodes}\n"
                f"   Nodes={len(step.nodes.split(','))} CPUs={step.cpus} Tasks={step.tasks} Name={step.name}\n\n"
            )
    del call
    if not lines and name:
        return Answer(err=f"Job step {name} not found\n", code=1)
    return Answer("".join(lines) or "No job steps in the system\n")


# -- nodes, partitions, configuration ------------------------------------------------------------------------


def nodes_text(desk: Desk, call: Call, name: str, told: dict[str, str]) -> str:
    del call
    views = node_views(desk.world)
    if name:
        views = [view for view in views if view.name == name] or views_in(views, name)
    if not views:
        raise FaultError("", 1, f"Node {name} not found\n")
    return "".join(block(node_lines(desk, view), one_line="oneliner" in told) for view in views)


def views_in(views: list[NodeView], name: str) -> list[NodeView]:
    from tidegate.wire.hostlist import HostlistError, expand

    try:
        wanted = set(expand(name))
    except HostlistError:
        return []
    return [view for view in views if view.name in wanted]


def block(lines: list[str], *, one_line: bool) -> str:
    return " ".join(lines) + "\n" if one_line else "\n   ".join(lines) + "\n\n"


def node_lines(desk: Desk, view: NodeView) -> list[str]:
    system = os.uname()
    began = moment(desk.began_ms)
    state = {"mixed": "MIXED", "idle": "IDLE", "allocated": "ALLOCATED", "drained": "IDLE+DRAIN",
             "draining": "MIXED+DRAIN", "down": "DOWN"}[view.state]  # fmt: skip
    free = f"FreeMem={view.memory - view.memory_used}"
    used = f"cpu={view.cpus_used}" if view.cpus_used else ""
    used += f",mem={view.memory_used}M" if view.memory_used else ""
    used += f",gres/gpu={view.gpus_used}" if view.gpus_used else ""
    lines = [
        f"NodeName={view.name} Arch={system.machine} CoresPerSocket=1 ",
        f"CPUAlloc={view.cpus_used} CPUEfctv={view.cpus} CPUTot={view.cpus} CPULoad={load():.2f}",
        f"AvailableFeatures={view.features}",
        f"ActiveFeatures={view.features}",
        f"Gres={view.gres}",
        f"NodeAddr=127.0.0.1 NodeHostName={desk.host} Port=6818 Version=22.05.8",
        f"OS={system.sysname} {system.release} {system.version} ",
        f"RealMemory={view.memory} AllocMem={view.memory_used} {free} Sockets={view.cpus} Boards=1",
        f"State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A",
        f"Partitions={view.pool} ",
        f"BootTime={began} SlurmdStartTime={began}",
        f"LastBusyTime={began}",
        f"CfgTRES={view.tres}",
        f"AllocTRES={used}",
        "CapWatts=n/a",
        "CurrentWatts=0 AveWatts=0",
        "ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s",
    ]
    if view.why != "none":
        lines.append(f"Reason={view.row.why} [root@{began}]")
    return lines


def partitions_text(desk: Desk, call: Call, name: str, told: dict[str, str]) -> str:
    del call
    found = [one for one in partitions(desk.world) if name in {"", one.name}]
    if not found:
        raise FaultError("", 1, f"Partition {name} not found\n")
    return "".join(block(partition_lines(one), one_line="oneliner" in told) for one in found)


def partition_lines(one: Partition) -> list[str]:
    return [
        f"PartitionName={one.name}",
        "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL",
        f"AllocNodes=ALL Default={'YES' if one.is_default else 'NO'} QoS=N/A",
        "DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO",
        "MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED",
        f"Nodes={compress([node.name for node in one.nodes])}",
        "PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO",
        "OverTimeLimit=NONE PreemptMode=OFF",
        f"State=UP TotalCPUs={one.cpus} TotalNodes={len(one.nodes)} SelectTypeParameters=NONE",
        "JobDefaults=(null)",
        "DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED",
        f"TRES={one.tres}",
    ]


def config_text(desk: Desk, call: Call, name: str, told: dict[str, str]) -> str:
    """What clients look up in it, and what else a reader expects there."""
    del name, told
    text = files("tidegate.slurm").joinpath("config.txt").read_text()
    home = str(desk.past.home)
    filled_in = {
        "AT": moment(call.now), "BOOT": moment(desk.began_ms), "CLUSTER": CLUSTER, "HOST": desk.host, "HOME": home,
        "NODES": str(len(desk.world.nodes)), "USER": desk.access.name, "UID": str(desk.access.uid),
        "NEXT": str(desk.world.next_job),
    }  # fmt: skip
    for word, value in filled_in.items():
        text = text.replace(f"<{word}>", value)
    return f"{text}\nSlurmctld(primary) at {desk.host} is UP\n"
