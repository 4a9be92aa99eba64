"""What is allowed in a policy and probably not meant."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tidegate.model.policy import CandidateOrder, Feedback, Order, OrderBy, PolicySpec, Preempt

MAY_STARVE = (OrderBy.SHORTEST, OrderBy.SHORTEST_REMAINING, OrderBy.SMALLEST_AREA, OrderBy.EXPANSION)
"""Orders under which those who come later can go before a job without end."""


def may_starve(order: Order) -> bool:
    """Of what feedback orders those who sink have a bound of their own; the others go by what comes second."""
    return (order.then if order.by is OrderBy.FEEDBACK else order.by) in MAY_STARVE


class Hint(NamedTuple):
    path: str
    message: str
    cure: str


def hints(spec: PolicySpec) -> Iterator[Hint]:
    yield from _order(spec)
    yield from _backfill(spec)
    yield from _classes(spec)
    yield from _queues(spec)
    yield from _admission(spec)
    for name, kept in spec.kept.items():
        if not kept.classes:
            yield Hint(f"kept.{name}", "nobody may use what it keeps", "list the classes that may")
        for klass in kept.classes:
            if klass not in spec.classes:
                yield Hint(f"kept.{name}", f"class {klass!r} is not listed under classes", "list it, or mend the name")
    yield from _tides(spec)
    steps = spec.estimate.raise_steps_ms
    if any(step <= 0 for step in steps[:1]) or any(b <= a for a, b in pairwise(steps)):
        yield Hint("estimate.raise_steps", "a step that is not above the one before adds nothing", "let them rise")


def _order(spec: PolicySpec) -> Iterator[Hint]:
    order = spec.order
    by_feedback = order.by is OrderBy.FEEDBACK
    if by_feedback and all(known.preempt is Preempt.NEVER for known in spec.classes.values()):
        yield Hint("order.by", "no class may be interrupted, so nobody sinks", "say preempt: savers in a class")
    if order.then is not OrderBy.FCFS and not by_feedback:
        yield Hint("order.then", f"has no effect under order {order.by.value}", "set by to feedback")
    if spec.feedback != Feedback() and not by_feedback:
        yield Hint("feedback", f"has no effect under order {order.by.value}", "set order to feedback")
    if may_starve(order) and not order.ageing_bound_ms:
        yield Hint(
            "order.ageing_bound",
            f"under {order.by.value} a job can starve: later ones may go before it without end",
            "leave it out for 7d, or set one, unless a published simulation is to be reproduced",
        )
    if order.by is OrderBy.DEFERRED and not order.per_doubling_ms:
        yield Hint("order.per_doubling", "nothing is deferred, so it is first come first served", "set it, such as 6h")


def _backfill(spec: PolicySpec) -> Iterator[Hint]:
    backfill = spec.backfill
    if backfill.depth:
        return
    if backfill.order is not CandidateOrder.SAME:
        yield Hint("backfill.order", "with depth none nobody goes ahead, so it has no effect", "set depth to 1 or more")
    if spec.order.by is not OrderBy.FCFS:
        yield Hint(
            "backfill.depth",
            "nobody goes ahead of a job that does not fit, so nodes stand idle",
            "set depth to 1 or more",
        )


def _queues(spec: PolicySpec) -> Iterator[Hint]:
    if spec.share.half_life_ms and not spec.queues:
        yield Hint("share.half_life", "use is shared between queues, and there are none", "list queues")
    neighbours = Counter(name.rpartition("/")[0] for name in spec.queues)
    for name, queue in spec.queues.items():
        at, above = f"queues.{name}", name.rpartition("/")[0]
        parts = [other for other in spec.queues if other.startswith(f"{name}/")]
        if queue.weight != 1 and neighbours[above] == 1:
            yield Hint(f"{at}.weight", "has no effect without a neighbour", "leave it out, or list another queue there")
        given = {bound.resource for bound in spec.queues[above].guarantee} if above in spec.queues else set[str]()
        for bound in queue.guarantee if above else ():
            if bound.resource not in given:
                yield Hint(
                    f"{at}.guarantee.{bound.resource}",
                    f"counts only against its neighbours: {above} itself is guaranteed none",
                    f"guarantee {above} as much",
                )
        if queue.approvers and not any(spec.queues[one].limit for one in (name, *parts)):
            yield Hint(f"{at}.approvers", "there is no limit here that could be exceeded", "set a limit")


def _admission(spec: PolicySpec) -> Iterator[Hint]:
    for name, rule in spec.admission.items():
        for klass in (*rule.classes, *rule.unless_classes):
            if klass not in spec.classes:
                yield Hint(
                    f"admission.{name}", f"class {klass!r} is not listed under classes", "list it, or mend the name"
                )
        if rule.utc_offset_ms and not rule.closed:
            yield Hint(f"admission.{name}.utc_offset", "has no effect without closed hours", "leave it out")


def _tides(spec: PolicySpec) -> Iterator[Hint]:
    if spec.tide is None:
        return
    for state, other in spec.tide.states.items():
        order = other.order or spec.order
        if order.by in MAY_STARVE and not order.ageing_bound_ms and spec.order.by not in MAY_STARVE:
            yield Hint(
                f"tide.states.{state}.order", f"under {order.by.value} a job can starve while the tide is {state}",
                "set order.ageing_bound, such as 24h",
            )  # fmt: skip
    if spec.tide.window_ms * 4 > spec.tide.baseline_ms:
        yield Hint("tide.baseline", "is hardly longer than the window: a burst becomes the usual", "set a longer one")


def _classes(spec: PolicySpec) -> Iterator[Hint]:
    if len({0, *(known.level for known in spec.classes.values())}) > 1:
        bounds = [spec.order.ageing_bound_ms or known.ageing_bound_ms for known in spec.classes.values()]
        if not all(bounds):
            yield Hint(
                "classes",
                "jobs of a lower level can starve: those of a higher one go first without end",
                "set order.ageing_bound, such as 24h",
            )
    by_priority = spec.order.by is OrderBy.PRIORITY
    if by_priority and not any(known.head_start_ms for known in spec.classes.values()):
        yield Hint("order.by", "no class has a head start, so priority is first come first served", "list classes")
    if not by_priority:
        for name, known in spec.classes.items():
            if known.head_start_ms:
                yield Hint(
                    f"classes.{name}",
                    f"a head start has no effect under order {spec.order.by.value}",
                    "set order to priority, or leave the head start out",
                )
