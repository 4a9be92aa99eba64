"""Events, endings and worlds for the tests of journals."""

from tidegate.model import events as ev
from tidegate.model.base import task_key
from tidegate.model.history import Ending
from tidegate.model.jobs import Array, Job, JobSpec, Outcome, Shape, Used, Work, amounts

ONE_CPU = Shape(amounts(cpus=1000))


def job_of(number: int, **spec: object) -> Job:
    given = {"user": "ann", "name": f"job{number}", "work": Work(("/bin/true",)), **spec}
    return Job(number, 1000 + number, 60_000, "p", JobSpec(shape=ONE_CPU, limit_ms=60_000, **given))  # type: ignore[arg-type]


def array_of(number: int, indices: tuple[int, ...], **spec: object) -> Job:
    return job_of(number, array=Array(indices), **spec)


def events_of(count: int, first: int = 1) -> list[ev.Event]:
    """Of four kinds, each different from all others."""
    found: list[ev.Event] = []
    for number in range(first, first + count):
        at, task = 1000 + number, task_key(number)
        kinds: tuple[ev.Event, ...] = (
            ev.JobSubmitted(at, job_of(number)),
            ev.JobStarted(at, task, 1, at + 60_000, (("n0", 1),), False),
            ev.JobLaunched(at, task, 1),
            ev.JobEnded(at, task, 1, Outcome.FAILED, number % 256, used=Used(1, 2)),
        )
        found.append(kinds[number % 4])
    return found


def ending(job: Job, **known: object) -> Ending:
    given = {"indices": (0,), "attempt": 1, "final": True, "outcome": Outcome.COMPLETED, "end_ms": job.submit_ms + 10,
             "start_ms": job.submit_ms + 5, "nodes": (("n0", 1),), **known}  # fmt: skip
    return Ending(job, **given)  # type: ignore[arg-type]  # a dict of many types
