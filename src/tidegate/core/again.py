"""Again: an attempt is over and its task has not completed. Does it wait for another one, and from when on?

What a job does to itself is failed and goes by its retry rule; what happens to it is lost and goes by `losses_max`.
Both are counted apart, and both wait longer every time, so that nothing broken can spin.
"""

from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS
from tidegate.model.engine import Ended
from tidegate.model.jobs import Cause, JobSpec, Outcome, Retry
from tidegate.world.world import World

LOSS_BACKOFF_MS = 1000
"""Before the attempt after the second loss; the first is tried again at once."""
LOSS_BACKOFF_MAX_MS = 600_000
DOUBLINGS_MAX = 40


def ended_badly(world: World, report: Ended, now: int, *, blames: bool) -> ev.AttemptFailed | ev.JobEnded:
    """By itself: another attempt if the retry rule says so and it can still end in time."""
    task = report.task
    job = world.jobs[task >> ARRAY_BITS]
    retry = job.spec.retry
    tries = world.tries.get(task)
    failed = 0 if tries is None else tries.failed
    if failed < retry.times and _is_tried_again(retry, report):
        until = now + backoff(retry.backoff_ms, failed, retry.backoff_max_ms)
        if until + job.estimate_ms <= job.spec.deadline_ms:
            return ev.AttemptFailed(
                now, task, report.attempt, report.outcome, until, report.code, report.signal, report.used, report.why,
                blames,
            )  # fmt: skip
    return ended(report, report.outcome, now, blames=blames)


def ended(report: Ended, outcome: Outcome, now: int, *, blames: bool = False) -> ev.JobEnded:
    return ev.JobEnded(
        now, report.task, report.attempt, outcome, report.code, report.why, report.signal, report.used, blames
    )


def _is_tried_again(retry: Retry, report: Ended) -> bool:
    cause = cause_of(report)
    for rule in retry.on:
        if rule.cause is cause:
            match cause:
                case Cause.EXIT:
                    found = rule.low <= report.code <= rule.high
                case Cause.SIGNAL:
                    found = rule.low <= report.signal <= rule.high
                case _:
                    found = True
            if found:
                return True
    return False


def cause_of(report: Ended) -> Cause | None:
    """None: not a way to end that a retry rule could name."""
    match report.outcome:
        case Outcome.FAILED:
            return Cause.SIGNAL if report.signal else Cause.EXIT
        case Outcome.OUT_OF_MEMORY:
            return Cause.OUT_OF_MEMORY
        case Outcome.TIMED_OUT:
            return Cause.TIMED_OUT
        case _:
            return None


def lose(
    world: World, task: int, attempt: int, why: str, now: int, *, blames: bool = False
) -> ev.AttemptLost | ev.JobEnded:
    """A lost attempt waits again, unless it lost too many or was to end anyway."""
    halt = world.halting.get(task)
    if halt is not None:
        if halt.again:
            return ev.AttemptLost(now, task, attempt, why, False, now)
        return ev.JobEnded(now, task, attempt, halt.outcome, 0, why)
    spec: JobSpec = world.jobs[task >> ARRAY_BITS].spec
    tries = world.tries.get(task)
    before = 0 if tries is None else tries.lost
    if before >= spec.losses_max:
        why = f"{why}; attempt {attempt} was the last"
        return ev.JobEnded(now, task, attempt, Outcome.LOST, 0, why, blames=blames)
    until = now + backoff(LOSS_BACKOFF_MS, before - 1, LOSS_BACKOFF_MAX_MS) if before else now
    return ev.AttemptLost(now, task, attempt, why, True, until, blames)


def backoff(first_ms: int, before: int, most_ms: int) -> int:
    """Twice as long every time."""
    return min(first_ms << min(before, DOUBLINGS_MAX), most_ms)
