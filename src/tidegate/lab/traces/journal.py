"""Tidegate's own journal as a workload: what was submitted, to which nodes, and how long it ran.

Under another policy the past goes otherwise, so only what came from outside is taken: jobs and the nodes they
could run on, and the run time of each job, which is its last attempt's. Cancelled and unfinished jobs are left out.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from tidegate.lab.workload import Arrival, Kind, Problems, Runtimes, TraceOptions, Workload
from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS
from tidegate.model.commands import Submit
from tidegate.model.jobs import Job, Outcome
from tidegate.model.nodes import Node


def workload_from_events(
    events: Iterable[ev.Event], options: TraceOptions, known_nodes: Iterable[Node] = ()
) -> Workload:
    """`known_nodes`: where the events do not begin at the beginning; of jobs submitted before, nothing is told."""
    jobs: dict[int, Job] = {}
    nodes: dict[str, Node] = {node.name: node for node in known_nodes}
    started: dict[int, int] = {}
    stopped: dict[int, int] = {}  # suspended, since when
    ran: dict[int, int] = {}  # by job; of an array the longest of its tasks
    problems = Problems(options.shown_max)
    for event in events:
        match event:
            case ev.JobSubmitted():
                jobs[event.job.id] = event.job
                problems.lines += 1
            case ev.NodeChanged():
                nodes.setdefault(event.node.name, event.node)
            case ev.JobStarted():
                started[event.task] = event.at
            case ev.JobSuspended():
                stopped[event.task] = event.at
            case ev.JobResumed() if event.task in started and event.task in stopped:
                started[event.task] += event.at - stopped.pop(event.task)  # as if it had started so much later
            case ev.JobEnded() if event.task in started and event.outcome is not Outcome.CANCELLED:
                until = stopped.pop(event.task, event.at)
                job, run_ms = event.task >> ARRAY_BITS, until - started.pop(event.task)
                if job in jobs:
                    ran[job] = max(ran.get(job, 0), run_ms)
            case _:
                pass
    for job_id in jobs:
        if job_id not in ran:
            problems.leave_out(Kind.NOT_ENDED)
    exact = options.runtimes is Runtimes.EXACT
    arrivals = [_arrival(jobs[job], run_ms, exact=exact) for job, run_ms in ran.items()]
    arrivals.sort(key=lambda arrival: (arrival.at_ms, arrival.submit.job))
    return Workload(format="journal", arrivals=arrivals, problems=problems, nodes=tuple(nodes.values()))


def _arrival(job: Job, run_ms: int, *, exact: bool) -> Arrival:
    spec = replace(job.spec, held=False, expected_ms=max(1, run_ms) if exact else job.spec.expected_ms)
    return Arrival(job.submit_ms, Submit(spec=spec, job=job.id), run_ms, job.id)
