"""Rungs: how far a job has sunk by what it has used so far. For orders that go by feedback (docs/decisions/0018).

Used is the run time of all attempts times the GPUs of the job; of one that asks for none, its cpus by
`feedback.cpus_per_gpu`. It changes only while the job runs, so a job that waits stays where it is.
"""

from bisect import bisect_right

from tidegate.model.jobs import CPUS, GPUS, Job, JobSpec
from tidegate.model.policy import BY_STANDING, SAVE_FIRST, OrderBy, PolicySpec, Preempt
from tidegate.world.records import Run, Tries

Standing = tuple[int, int, int]
"""(rung, since when it waits, how much of its work is saved).

Rung -1: it does not sink; 0 for when and how much: as it was submitted.
"""
AS_SUBMITTED: Standing = (-1, 0, 0)
ON_TOP: Standing = (0, 0, 0)
MILLI = 1000


def goes_by_standing(policy: PolicySpec) -> bool:
    """Does it matter anywhere what a job that waits has used or saved?"""
    return policy.order.by in BY_STANDING


def sinks(policy: PolicySpec, spec: JobSpec) -> bool:
    """By feedback go those who can be interrupted: nobody who cannot is pushed aside for what he has used.

    One that is suspended gives back its cpus alone and waits where it is: no place in a line is found for it.
    """
    if policy.order.by is not OrderBy.FEEDBACK:
        return False
    known = policy.classes.get(spec.klass)
    if known is None or known.preempt in (Preempt.NEVER, Preempt.SUSPEND):
        return False
    return known.preempt not in SAVE_FIRST or spec.checkpoint is not None


def standing_of(policy: PolicySpec, job: Job, tries: Tries | None) -> Standing:
    """`tries`: of the task that has its turn next."""
    if not sinks(policy, job.spec):
        return AS_SUBMITTED if tries is None or not tries.kept_ms else (-1, 0, tries.kept_ms)
    if tries is None:
        return ON_TOP
    return (rung_of(policy, job, tries.ran_ms), tries.until, tries.kept_ms)


def rung_of(policy: PolicySpec, job: Job, ran_ms: int) -> int:
    return bisect_right(policy.feedback.rungs_ms, ran_ms * pace(policy, job.spec) // MILLI)


def rung_now(policy: PolicySpec, job: Job, run: Run, tries: Tries | None, now: int) -> int:
    """Of one that runs."""
    before = 0 if tries is None else tries.ran_ms
    return rung_of(policy, job, before + now - run.start_ms)


def sinks_below_at(policy: PolicySpec, job: Job, run: Run, tries: Tries | None, rung: int) -> int | None:
    """When one that runs is further down than the rung; None: never, for that is the lowest."""
    edges = policy.feedback.rungs_ms
    if rung >= len(edges):
        return None
    before = 0 if tries is None else tries.ran_ms
    needed = -(-edges[rung] * MILLI // pace(policy, job.spec))
    return run.start_ms + max(0, needed - before)


def pace(policy: PolicySpec, spec: JobSpec) -> int:
    """Thousandths of a GPU, all chunks together; at least one."""
    shape = spec.shape
    gpus = cpus = 0
    for name, amount in shape.chunk:
        if name == GPUS:
            gpus = amount
        elif name == CPUS:
            cpus = amount
    return max(1, gpus * shape.count if gpus else cpus * shape.count // policy.feedback.cpus_per_gpu)


def waits_since(job: Job, tries: Tries | None) -> int:
    """Since it was submitted, or since it last ran."""
    return job.submit_ms if tries is None else max(job.submit_ms, tries.until)


def turn_until(policy: PolicySpec, job: Job, run: Run, tries: Tries | None) -> int:
    """One that had waited for the bound before it started has a turn until then; 0: it had not."""
    rules = policy.feedback
    if run.start_ms - waits_since(job, tries) < rules.ageing_bound_ms:
        return 0
    return run.start_ms + rules.turn_ms
