"""Where the output and the checkpoints of a task go: patterns of users, and places in the server's home."""

from collections.abc import Callable

from tidegate.model.events import Placement
from tidegate.model.jobs import Job
from tidegate.wire import slurm

OWN_FILE = "-"
"""As the pattern of stderr: a file of its own in the home."""
JOBS_PER_SHARD = 1000
TASKS_PER_SHARD = 1000
"""Directories stay small however many jobs there were."""

_FIELDS: dict[str, Callable[[Job, int, int], str]] = {
    "j": lambda job, _index, _attempt: str(job.id),
    "a": lambda _job, index, _attempt: str(index),
    "t": lambda _job, _index, attempt: str(attempt),
    "x": lambda job, _index, _attempt: job.spec.name.replace("/", "_"),
    "u": lambda job, _index, _attempt: job.spec.user,
    "n": lambda job, _index, _attempt: job.spec.name.replace("/", "_"),
    "%": lambda _job, _index, _attempt: "%",
}


def fill(pattern: str, job: Job, index: int, attempt: int) -> str:
    """%j job, %a array index, %t attempt, %x or %n name, %u user, %% a percent sign; anything else stays as it is."""
    parts = pattern.split("%")
    text, rest = parts[0], parts[1:]
    while rest:
        part = rest.pop(0)
        if not part and rest:  # %%: what follows is plain
            text += "%" + rest.pop(0)
            continue
        field = _FIELDS.get(part[:1])
        text += field(job, index, attempt) + part[1:] if field else "%" + part
    return text


def filled(pattern: str, job: Job, index: int, attempt: int, nodes: Placement = ()) -> str:
    """In the way of the commands by which the job came."""
    if job.spec.work is not None and job.spec.work.slurm is not None:
        return slurm.fill(pattern, job, index, nodes)
    return fill(pattern, job, index, attempt)


def output_path(home: str, job: Job, index: int, attempt: int) -> str:
    """The file of a task that named none; all attempts share it, each after the one before."""
    del attempt  # said by callers that have it, as for `fill`
    shard = f"{home}/output/{job.id // JOBS_PER_SHARD}"
    if job.spec.array is None:
        return f"{shard}/{job.id}.out"
    return f"{shard}/{job.id}/{index // TASKS_PER_SHARD}/{index}.out"


def errors_path(home: str, job: Job, index: int, attempt: int) -> str:
    """The same for an stderr that is to be a file of its own."""
    return output_path(home, job, index, attempt).removesuffix(".out") + ".err"


def outputs_of(home: str, job: Job, index: int, attempt: int) -> tuple[str, str]:
    """Where stdout and stderr of an attempt are found."""
    work = job.spec.work
    pattern = work.stdout if work is not None else ""
    out = filled(pattern, job, index, attempt) if pattern else output_path(home, job, index, attempt)
    errors = work.stderr if work is not None else ""
    if errors == OWN_FILE:
        return out, errors_path(home, job, index, attempt)
    return out, filled(errors, job, index, attempt) if errors else out


def checkpoints_of(home: str, job: Job, index: int) -> str:
    """Where a task saves itself: a directory or the URL of one, the same for every attempt."""
    said = job.spec.checkpoint
    if said is not None and said.where:
        return fill(said.where, job, index, 0)
    place = f"{checkpoints_place(home)}/{job.id // JOBS_PER_SHARD}/{job.id}"
    return place if job.spec.array is None else f"{place}_{index}"


def checkpoints_place(home: str) -> str:
    return f"{home}/checkpoints"
