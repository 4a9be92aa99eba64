"""Admission: what the policy lets in. A refusal says which rule, why, and what would be let in."""

from collections.abc import Iterator

from tidegate.model.commands import Refused
from tidegate.model.jobs import CPUS, GPUS, MEMORY, JobSpec
from tidegate.model.policy import MINUTE_MS, NODES, PART_BITS, Bound, Preempt, Rule
from tidegate.policy.calendar import closed_until
from tidegate.policy.share import Shares
from tidegate.policy.tide import lasts_until
from tidegate.world.accounts import is_of_user, queue_of, user_of
from tidegate.world.world import World

NAMED_MAX = 12
"""So many queues are listed in a refusal."""


def refusal(world: World, spec: JobSpec, now: int) -> Refused | None:
    policy = world.policy
    if policy.queues and spec.queue not in policy.queues:
        return no_queue(world, spec.queue)
    for whose, most in _longest(world, spec):
        if most and spec.limit_ms > most:
            return Refused(
                f"the time limit of {lasting(spec.limit_ms)} is longer than {whose} allows",
                f"ask for at most {lasting(most)}",
            )
    for name, rule in policy.admission.items():
        if _meets(world, spec, rule):
            refused = _by_rule(world, spec, name, rule, now)
            if refused is not None:
                return refused
    return _undecided(world, spec) or (_over_limit(world, spec, now) if policy.queues else None)


KEEPS_OR_GIVES_UP = frozenset({Preempt.NEVER, Preempt.SAVERS, Preempt.SUSPEND, Preempt.CANCEL})


def _undecided(world: World, spec: JobSpec) -> Refused | None:
    """Who may be ended to go on later says what becomes of its work. What nothing runs of, as in a replay, need not."""
    known = world.policy.classes.get(spec.klass)
    if known is None or known.preempt in KEEPS_OR_GIVES_UP or spec.work is None:
        return None
    if spec.checkpoint is not None or spec.starts_over:
        return None
    return Refused(
        f"jobs of class {spec.klass!r} may be interrupted, and this one does not say whether it can save itself",
        "submit it with --checkpoint, or with --no-checkpoint if it may be begun anew",
    )


def default_pool(world: World) -> str:
    """Where a job goes that names no pool: the first by name."""
    return next(iter(world.pools)) if len(world.pools) == 1 else min(world.pools, default="")


def no_queue(world: World, name: str) -> Refused:
    known = sorted(world.policy.queues)
    if not known:
        return Refused(f"there is no queue {name!r}: the policy has none", "list queues in the policy")
    more = f" and {len(known) - NAMED_MAX} more" if len(known) > NAMED_MAX else ""
    return Refused(f"there is no queue {name!r}", f"name one of: {', '.join(known[:NAMED_MAX])}{more}")


# -- time limits -------------------------------------------------------------------------------------------


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


# -- rules -------------------------------------------------------------------------------------------------


def _meets(world: World, spec: JobSpec, rule: Rule) -> bool:
    """All that it says of the job holds; the hours are left to see."""
    if rule.queues and not any(spec.queue == queue or spec.queue.startswith(f"{queue}/") for queue in rule.queues):
        return False
    if (rule.classes and spec.klass not in rule.classes) or spec.klass in rule.unless_classes:
        return False
    if spec.limit_ms < rule.time_from_ms or (rule.needs_tags and not _missing(spec, rule)):
        return False
    return all(_asked(spec, bound.resource) >= amount_of(world, bound) for bound in rule.at_least)


def _missing(spec: JobSpec, rule: Rule) -> list[str]:
    given = {tag for tag, value in spec.tags if value}
    return [tag for tag in rule.needs_tags if tag not in given]


def _asked(spec: JobSpec, resource: str) -> int:
    shape = spec.shape
    if resource == NODES:
        return 1 if shape.stack else shape.count
    return sum([amount for name, amount in shape.chunk if name == resource]) * shape.count


def amount_of(world: World, bound: Bound) -> int:
    """At least 1: nobody asks for a part of nothing."""
    if not bound.part:
        return bound.amount
    if bound.resource == NODES:
        return max(1, len(world.nodes) * bound.part >> PART_BITS)
    column = world.columns.get(bound.resource)
    whole = 0
    for pool in world.pools.values():
        if column is not None and column < len(pool.capacity):
            whole += pool.capacity[column]
    return max(1, whole * bound.part >> PART_BITS)


def _by_rule(world: World, spec: JobSpec, name: str, rule: Rule, now: int) -> Refused | None:
    """None: the job could not begin before the hours of the rule are over."""
    cures = []
    if rule.tides:
        over = tide_over(world, spec.pool or default_pool(world), rule.tides, now)
        if over is None:
            return None
        cures.append(over)
    begin = max(now, spec.begin_ms)
    opens = closed_until(rule.closed, rule.utc_offset_ms, begin)
    if opens == begin:
        return None
    if opens is not None:
        cures.append(f"submit it to begin in {lasting(-(-(opens - now) // MINUTE_MS) * MINUTE_MS)} or later")
    if rule.needs_tags:
        cures.append(f"tag it with {', '.join(_missing(spec, rule))}")
    cures += [f"ask for less than {said(bound.resource, amount_of(world, bound))}" for bound in rule.at_least]
    if rule.time_from_ms:
        cures.append(f"ask for less than {lasting(rule.time_from_ms)}")
    if rule.unless_classes:
        cures.append(f"take class {' or '.join(rule.unless_classes)}")
    elif rule.classes:
        cures.append("take another class")
    if rule.queues:
        cures.append("take another queue")
    why = f": {rule.why}" if rule.why else ""
    return Refused(f"rule {name!r} of the policy refuses the job{why}", ", or ".join(cures) or "submit it another day")


def tide_over(world: World, pool: str, tides: tuple[str, ...], now: int) -> str | None:
    """What to wait for; None: the tide of the pool is none of these now."""
    gauge = world.gauges.get(pool)
    if gauge is None or gauge.state not in tides:
        return None
    left = max(0, lasts_until(world, gauge) - now)
    soonest = f", in {lasting(-(-left // MINUTE_MS) * MINUTE_MS)} at the earliest" if left else ""
    return f"submit it again when the tide of pool {pool!r} is no longer {gauge.state}{soonest} (`tide tide` tells)"


# -- limits of queues --------------------------------------------------------------------------------------


def _over_limit(world: World, spec: JobSpec, now: int) -> Refused | None:
    """Would it start if nothing else ran in its queues?"""
    names = {column: resource for resource, column in world.columns.items()}
    for branch in Shares(world, now).path(spec.queue, spec.user):
        for column, most in branch.limit:
            resource = names[column]
            asked = _asked(spec, resource)
            if asked > most:
                queue = queue_of(branch.name)
                whose = (
                    f"user {user_of(branch.name)!r} in queue {queue!r}"
                    if is_of_user(branch.name)
                    else f"queue {queue!r}"
                )
                return Refused(
                    f"{said(resource, asked)} are more than {whose} may ever hold, which is {said(resource, most)}",
                    "ask for less, or in another queue",
                )
    return None


# -- words -------------------------------------------------------------------------------------------------


def said(resource: str, amount: int) -> str:
    """The amount as people write it."""
    if resource in {CPUS, GPUS}:
        whole, rest = divmod(amount, 1000)
        return f"{whole}.{rest:03}".rstrip("0") + f" {resource}" if rest else f"{whole} {resource}"
    return f"{amount} MiB of memory" if resource == MEMORY else f"{amount} {resource}"


def lasting(ms: int) -> str:
    """The duration as people write it, to the second."""
    left, text = ms // 1000, ""
    for unit, seconds in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        number, left = divmod(left, seconds)
        text += f"{number}{unit}" if number else ""
    return text or "0s"
