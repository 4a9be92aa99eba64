"""What a job that came by Slurm's commands said beyond what Tidegate knows: carried along, for its environment and for
what those commands show. The kernel never looks inside.
"""

from enum import StrEnum

from tidegate.model.base import Value


class SlurmKind(StrEnum):
    """How the job was asked for."""

    BATCH = "batch"  # sbatch
    RUN = "run"  # srun without an allocation: the job is its first step
    ALLOC = "alloc"  # salloc: its steps come from outside


class Slurm(Value, frozen=True, gc=False, omit_defaults=True):
    """As asked; what was not said is empty or 0. Amounts are of the asker's kind, times in milliseconds."""

    kind: SlurmKind = SlurmKind.BATCH
    tasks: int = 0
    nodes: int = 0
    cpus_per_task: int = 0
    tasks_per_node: int = 0
    node_memory_mib: int = 0
    cpu_memory_mib: int = 0
    gpus: int = 0  # in all
    gres: str = ""
    account: str = ""
    qos: str = ""
    comment: str = ""
    wckey: str = ""
    features: str = ""
    dependency: str = ""
    command: str = ""  # the path of the script, or the words of a run
    line: str = ""  # the words it was asked for with
    host: str = ""  # where it was asked for
    export: str = ""
    reservation: str = ""
    signal: int = 0
    signal_ms: int = 0  # so long before the limit
    signal_batch: bool = False  # to the batch shell, not to the steps
    requeue: bool = True
    exclusive: bool = False
    timeless: bool = False  # no time limit was asked for
    user_held: bool = False
    after: tuple[tuple[int, int], ...] = ()  # (job, milliseconds after its start) that it waits for
