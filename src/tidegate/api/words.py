"""The words of queries: numbers, and the jobs and tasks that somebody names."""

import msgspec

from tidegate.model.jobs import Job
from tidegate.wire import states
from tidegate.wire.api import JobRow, Problem, ProblemBody
from tidegate.world.arrays import holds

JOBS_ASKED_MAX = 10_000


class RefusedError(Exception):
    """A request that is not answered as it was meant: the status, what is wrong, and what to do."""

    def __init__(self, status: int, what: str, cure: str) -> None:
        super().__init__(what)
        self.status = status
        self.what = what
        self.cure = cure


def problem(what: str, cure: str) -> bytes:
    return msgspec.json.encode(ProblemBody(Problem(what, cure)))


def number(text: str, what: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 18:
        raise RefusedError(400, f"{text[:40]!r} is not {what}", "give a whole number")
    return int(text)


def states_of(text: str) -> frozenset[str]:
    """`failed,timed_out`; nothing: all of them."""
    found = frozenset(text.upper().split(",")) if text else frozenset()
    for state in sorted(found.difference(states.LIVE, states.OVER)):
        raise RefusedError(400, f"there is no state {state[:40]!r}", f"use: {', '.join((*states.LIVE, *states.OVER))}")
    return found


def task_of(job: Job, text: str) -> int:
    """The index that is named, if the job has such a task; -1: none is named, all of the job is meant."""
    if not text:
        return -1
    index = number(text, "an index")
    if job.spec.array is None:
        raise RefusedError(404, f"job {job.id} is no array: it has no task {index}", "name the job alone")
    if not holds(job.spec.array.indices, index):
        first, last = job.spec.array.indices[0], job.spec.array.indices[-1]
        raise RefusedError(404, f"job {job.id} has no task {index}", f"name one of its own, from {first} to {last}")
    return index


class Tasks:
    """`12,13_5`: whole jobs, and single tasks of arrays."""

    def __init__(self, text: str) -> None:
        words = text.split(",") if text else []
        if len(words) > JOBS_ASKED_MAX:
            raise RefusedError(400, f"{len(words)} jobs asked for", f"ask for at most {JOBS_ASKED_MAX} at once")
        self.indices: dict[int, set[int]] = {}  # of the jobs of which only some tasks are meant
        jobs: dict[int, None] = {}
        whole: set[int] = set()
        for word in words:
            job, underscore, index = word.partition("_")
            job_id = number(job, "a job id")
            jobs[job_id] = None
            if underscore:
                self.indices.setdefault(job_id, set()).add(number(index, "an index"))
            else:
                whole.add(job_id)
        for job_id in whole:
            self.indices.pop(job_id, None)
        self.jobs = tuple(jobs)

    def wants(self, row: JobRow) -> bool:
        """A row of a live job."""
        some = self.indices.get(row.id)
        if some is None or row.index is None:
            return True  # a row of several tasks may hold the one that is meant
        return row.index in some

    def wants_any(self, job: int, indices: tuple[int, ...]) -> bool:
        some = self.indices.get(job)
        return some is None or not some.isdisjoint(indices)
