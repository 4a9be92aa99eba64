"""What a job that came by Slurm's commands is told of itself, and how its outputs are named: for the engine that runs
it, and for those who show it.
"""

import re

from tidegate.model.base import ARRAY_BITS
from tidegate.model.events import Placement
from tidegate.model.jobs import CPUS, GPUS, Job
from tidegate.model.slurm import Slurm, SlurmKind
from tidegate.wire.hostlist import compress

CLUSTER = "tidegate"
ALLOC_NAME = "interactive"
PATTERN = re.compile(r"%(\d*)([%AJNajnstuxb])")
MILLI = 1000
OF_A_TASK = frozenset(
    {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURMD_NODENAME", "SLURM_TASK_PID"}
)
"""What a shell that only holds an allocation is not."""


def raw_id(job: Job, index: int) -> int:
    """The one number that names a task: Slurm gives every task of an array a job id of its own, and the last of them
    that of the array."""
    if job.spec.array is None or index == job.spec.array.indices[-1]:
        return job.id
    return job.id << ARRAY_BITS | index


def shown_id(job: Job, index: int) -> str:
    return str(job.id) if job.spec.array is None else f"{job.id}_{index}"


def account_of(job: Job) -> str:
    said = job.spec.work.slurm if job.spec.work is not None else None
    return said.account if said is not None and said.account else job.spec.user


def fill(pattern: str, job: Job, index: int, nodes: Placement, step: str = "", rank: str = "0", node: int = 0) -> str:
    """A file name pattern of sbatch and srun. `step`: of a step, and its number."""

    def value(found: re.Match[str]) -> str:
        digits, letter = found[1], found[2]
        text = values(letter)
        return text.zfill(min(int(digits), 10)) if digits and letter in "AJajnst" else text

    def values(letter: str) -> str:
        match letter:
            case "%":
                return "%"
            case "A":
                return str(job.id)
            case "J":
                return f"{raw_id(job, index)}.{step}" if step else str(raw_id(job, index))
            case "j":
                return str(raw_id(job, index))
            case "a":
                return str(index) if job.spec.array is not None else "4294967294"
            case "N":
                return nodes[node][0] if nodes else ""
            case "n":
                return str(node)
            case "s":
                return step or "batch"
            case "t":
                return rank
            case "u":
                return job.spec.user
            case "b":
                return str(index % 10) if job.spec.array is not None else "4294967294"
            case _:
                return job.spec.name.replace("/", "_")

    if "\\\\" in pattern:  # a doubled backslash asks for no replacement
        return pattern.replace("\\\\", "")
    return PATTERN.sub(value, pattern)


class Layout:
    """How many processors and tasks of an allocation are on which node."""

    def __init__(self, job: Job, nodes: Placement) -> None:
        said = job.spec.work.slurm if job.spec.work is not None else None
        self.said = said or Slurm()
        shape = job.spec.shape
        chunk = dict(shape.chunk)
        self.names = [name for name, _ in nodes]
        self.cpus = [chunk.get(CPUS, 0) * count // MILLI or 1 for _, count in nodes]
        self.gpus = [chunk.get(GPUS, 0) * count // MILLI for _, count in nodes]
        self.tasks = self._tasks(nodes, stack=shape.stack and shape.count > 1)

    def _tasks(self, nodes: Placement, *, stack: bool) -> list[int]:
        if stack:
            return [count for _, count in nodes]
        said = self.said
        total = said.tasks or said.tasks_per_node * len(nodes) or len(nodes)
        each, rest = divmod(total, max(1, len(nodes)))
        return [each + (place < rest) for place in range(len(nodes))]


def counts(numbers: list[int]) -> str:
    """`2(x2),1`: how Slurm writes what each node has."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][0] == number:
            parts[-1][1] += 1
        else:
            parts.append([number, 1])
    return ",".join(f"{number}(x{times})" if times > 1 else str(number) for number, times in parts)


def variables(job: Job, index: int, attempt: int, nodes: Placement, ids: tuple[int, int], home: str) -> dict[str, str]:
    """The SLURM_* variables of the allocation, as the batch script sees them."""
    work, spec = job.spec.work, job.spec
    layout = Layout(job, nodes)
    said = layout.said
    names, first = compress(layout.names), layout.names[0] if layout.names else ""
    raw = str(raw_id(job, index))
    given = {
        "SLURMD_NODENAME": first,
        "SLURM_CLUSTER_NAME": CLUSTER,
        "SLURM_CONF": f"{home}/slurm.conf",
        "SLURM_CPUS_ON_NODE": str(layout.cpus[0] if layout.cpus else 0),
        "SLURM_GTIDS": "0",
        "SLURM_JOBID": raw,
        "SLURM_JOB_ACCOUNT": account_of(job),
        "SLURM_JOB_CPUS_PER_NODE": counts(layout.cpus),
        "SLURM_JOB_GID": str(ids[1]),
        "SLURM_JOB_ID": raw,
        "SLURM_JOB_NAME": spec.name,
        "SLURM_JOB_NODELIST": names,
        "SLURM_JOB_NUM_NODES": str(len(nodes)),
        "SLURM_JOB_PARTITION": job.pool,
        "SLURM_JOB_QOS": said.qos or spec.klass,
        "SLURM_JOB_UID": str(ids[0]),
        "SLURM_JOB_USER": spec.user,
        "SLURM_LOCALID": "0",
        "SLURM_NNODES": str(len(nodes)),
        "SLURM_NODEID": "0",
        "SLURM_NODELIST": names,
        "SLURM_NODE_ALIASES": "(null)",
        "SLURM_PRIO_PROCESS": "0",
        "SLURM_PROCID": "0",
        "SLURM_SUBMIT_DIR": work.cwd if work is not None else "/",
        "SLURM_SUBMIT_HOST": said.host,
        "SLURM_TASKS_PER_NODE": counts(layout.tasks),
        "SLURM_TASK_PID": "0",  # as the launcher has it
        "SLURM_TOPOLOGY_ADDR": first,
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
        "SLURM_WORKING_CLUSTER": f"{CLUSTER}:127.0.0.1:6817:9728:109",
    }
    given |= asked(said) | in_array(job, index)
    if any(layout.gpus):
        given["SLURM_GPUS_ON_NODE"] = str(layout.gpus[0])
    if attempt > 1:
        given["SLURM_RESTART_COUNT"] = str(attempt - 1)
    if said.kind is SlurmKind.ALLOC:
        return {name: value for name, value in given.items() if name not in OF_A_TASK}
    return given


def in_array(job: Job, index: int) -> dict[str, str]:
    array = job.spec.array
    if array is None:
        return {}
    indices = array.indices
    return {
        "SLURM_ARRAY_JOB_ID": str(job.id),
        "SLURM_ARRAY_TASK_ID": str(index),
        "SLURM_ARRAY_TASK_COUNT": str(len(indices)),
        "SLURM_ARRAY_TASK_MAX": str(indices[-1]),
        "SLURM_ARRAY_TASK_MIN": str(indices[0]),
        "SLURM_ARRAY_TASK_STEP": str(indices[1] - indices[0] if len(indices) > 1 else 1),
    }


def asked(said: Slurm) -> dict[str, str]:
    """Of what was asked for: a variable only where it was said, for scripts ask whether it is set."""
    given = {}
    if said.tasks:
        given["SLURM_NTASKS"] = given["SLURM_NPROCS"] = str(said.tasks)
    if said.cpus_per_task:
        given["SLURM_CPUS_PER_TASK"] = str(said.cpus_per_task)
    if said.tasks_per_node:
        given["SLURM_NTASKS_PER_NODE"] = str(said.tasks_per_node)
    if said.node_memory_mib:
        given["SLURM_MEM_PER_NODE"] = str(said.node_memory_mib)
    if said.cpu_memory_mib:
        given["SLURM_MEM_PER_CPU"] = str(said.cpu_memory_mib)
    if said.gpus:
        given["SLURM_GPUS"] = str(said.gpus)
    if said.dependency:
        given["SLURM_JOB_DEPENDENCY"] = said.dependency
    if said.reservation:
        given["SLURM_JOB_RESERVATION"] = said.reservation
    if said.export and said.export.split(",")[0] != "ALL":
        given["SLURM_EXPORT_ENV"] = said.export
        if said.export.split(",")[0] == "NONE":
            given["SLURM_GET_USER_ENV"] = "1"
    return given
