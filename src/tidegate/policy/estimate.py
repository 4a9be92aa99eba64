"""Estimate: how long planning assumes a job to run, and what it assumes when a run takes longer."""

from typing import assert_never

from tidegate.model.jobs import Job, JobSpec
from tidegate.model.policy import Estimate, EstimateFrom
from tidegate.world.records import Pause, Run
from tidegate.world.world import World

SECOND_MS = 1000


def estimate(world: World, spec: JobSpec, now: int) -> int:
    """Fixed at submission, never over the limit."""
    if spec.expected_ms:
        return min(spec.expected_ms, spec.limit_ms)
    match world.policy.estimate.source:
        case EstimateFrom.LIMIT:
            return spec.limit_ms
        case EstimateFrom.LAST_TWO:
            known = world.last_runs.get(spec.user)
            runs = known.known(now) if known else ()
            if len(runs) < 2:
                return spec.limit_ms
            mean = sum(runs) // 2
            return min(max(SECOND_MS, mean - mean % SECOND_MS), spec.limit_ms)  # finer would be false precision
        case _:
            assert_never(world.policy.estimate.source)


def remaining(policy: Estimate, estimate_ms: int, kept_ms: int) -> int:
    """What is left of one that has saved so much of its work; one that outlived its estimate takes the next step."""
    if kept_ms < estimate_ms:
        return estimate_ms - kept_ms
    for step in policy.raise_steps_ms:
        if kept_ms < estimate_ms + step:
            return estimate_ms + step - kept_ms
    return max(1, kept_ms // 4)


def raised_end(policy: Estimate, job: Job, run: Run, pause: Pause | None, now: int) -> int:
    """The next end to assume for a run that outlived the last one; later than `now`.

    Steps are taken from the first estimate and end at the limit. Past the limit (an engine that does not
    enforce it) a quarter of the time run so far is added, so that a run of any length takes few raises. Of one
    that is suspended a quarter of the time since then is added. What it was suspended before does not count.
    """
    start_ms = run.start_ms
    if pause is not None:
        if pause.stopped:
            return now + pause.left_ms + max(60_000, (now - pause.at) // 4)
        start_ms += pause.before_ms
    steps = policy.raise_steps_ms
    limit_end = start_ms + job.spec.limit_ms
    if run.raises < len(steps):
        end = min(start_ms + job.estimate_ms + steps[run.raises], limit_end)
    else:
        end = limit_end
    if end > now:
        return end
    return limit_end if limit_end > now else now + max(60_000, (now - start_ms) // 4)
