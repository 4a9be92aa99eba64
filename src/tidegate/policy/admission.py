"""Admission: what the policy lets in. A refusal says which rule, and what would be let in."""

from collections.abc import Iterator

from tidegate.model.commands import Refused
from tidegate.model.jobs import JobSpec
from tidegate.model.policy import Preempt
from tidegate.policy.share import Shares
from tidegate.world.world import World

NAMED_MAX = 12
"""So many queues are listed in a refusal."""


def refusal(world: World, spec: JobSpec, now: int) -> Refused | None:
    policy = world.policy
    if policy.queues and spec.queue not in policy.queues:
        known = sorted(policy.queues)
        more = f" and {len(known) - NAMED_MAX} more" if len(known) > NAMED_MAX else ""
        return Refused(f"there is no queue {spec.queue!r}", f"name one of: {', '.join(known[:NAMED_MAX])}{more}")
    for whose, most in _longest(world, spec):
        if most and spec.limit_ms > most:
            return Refused(
                f"the time limit of {spec.limit_ms // 1000} s is longer than {whose} allows",
                f"ask for at most {most // 1000} s",
            )
    return _undecided(world, spec) or (_over_limit(world, spec, now) if policy.queues else None)


def _undecided(world: World, spec: JobSpec) -> Refused | None:
    """Who may be interrupted says what becomes of its work. What nothing runs of, as in a replay, need not."""
    known = world.policy.classes.get(spec.klass)
    if known is None or known.preempt in {Preempt.NEVER, Preempt.CANCEL} or spec.work is None:
        return None
    if spec.checkpoint is not None or spec.starts_over:
        return None
    return Refused(
        f"jobs of class {spec.klass!r} may be interrupted, and this one does not say whether it can save itself",
        "submit it with --checkpoint, or with --no-checkpoint if it may be begun anew",
    )


def _longest(world: World, spec: JobSpec) -> Iterator[tuple[str, int]]:
    policy = world.policy
    known = policy.classes.get(spec.klass)
    if known is not None:
        yield f"class {spec.klass!r}", known.run_max_ms
    at = len(spec.queue) if policy.queues else 0
    while at > 0:
        queue = policy.queues.get(spec.queue[:at])
        if queue is not None:
            yield f"queue {spec.queue[:at]!r}", queue.run_max_ms
        at = spec.queue.rfind("/", 0, at)


def _over_limit(world: World, spec: JobSpec, now: int) -> Refused | None:
    """Would it start if nothing else ran in its queues?"""
    asked = {resource: amount * spec.shape.count for resource, amount in spec.shape.chunk}
    names = {column: resource for resource, column in world.columns.items()}
    for branch in Shares(world, now).path(spec.queue, spec.user):
        for column, most in branch.limit:
            resource = names[column]
            if asked.get(resource, 0) > most:
                return Refused(
                    f"{asked[resource]} {resource} are more than {branch.name!r} may ever hold, which is {most}",
                    "ask for less, or in another queue",
                )
    return None
