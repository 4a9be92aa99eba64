"""What each entry of a policy allows and all of them together do not: errors, as the reader's own are."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tidegate.model.policy import (
    BY_STANDING,
    NODES,
    PART_BITS,
    RUNGS_MAX,
    Bound,
    Bounds,
    OrderBy,
    PolicySpec,
    Queue,
    Tide,
)
from tidegate.wire.bounds import format_bound

PART = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
LEVELS_MAX = 10
ALL = 1 << PART_BITS


class Fault(NamedTuple):
    path: str
    message: str
    cure: str


def faults(spec: PolicySpec) -> Iterator[Fault]:
    for name, queue in spec.queues.items():
        words = name.split("/")
        if len(words) > LEVELS_MAX or not all(PART.fullmatch(word) for word in words):
            yield Fault(
                f"queues.{name}", "is no path of a queue",
                f"write up to {LEVELS_MAX} words of letters, digits, - and _, such as lab/vision",
            )  # fmt: skip
        else:
            yield from _queue(spec, name, queue)
    yield from _guarantees(spec)
    yield from _feedback(spec)
    yield from _tides(spec)
    for name, rule in spec.admission.items():
        for queue_name in rule.queues if spec.queues else ():
            if queue_name not in spec.queues and not has_parts(spec, queue_name):
                yield Fault(f"admission.{name}.queues", f"there is no queue {queue_name!r}", "name one under queues")
        for bound in rule.at_least:
            if not bound.amount and not bound.part:
                yield Fault(f"admission.{name}.at_least.{bound.resource}", "every job asks for as much", "leave it out")

    for name, kept in spec.kept.items():
        if not kept.nodes and not kept.percent:
            yield Fault(f"kept.{name}", "keeps nothing", "say how many nodes, or how much percent of them")
    for bound in spec.reservations.user_hours:
        if bound.part or bound.resource == NODES:
            yield Fault(
                f"reservations.user_hours.{bound.resource}", "is no amount of a resource",
                "write how much of it for an hour, such as gpus: 32",
            )  # fmt: skip


def _feedback(spec: PolicySpec) -> Iterator[Fault]:
    rungs = spec.feedback.rungs_ms
    if spec.order.then is OrderBy.FEEDBACK:
        yield Fault("order.then", "a rung has no rungs", "name another order")
    if len(rungs) > RUNGS_MAX or any(b <= a for a, b in pairwise((0, *rungs))):
        yield Fault("feedback.rungs", "are no edges between rungs", f"write up to {RUNGS_MAX} durations that rise")


def has_parts(spec: PolicySpec, queue: str) -> bool:
    return any(other.startswith(f"{queue}/") for other in spec.queues)


def _queue(spec: PolicySpec, name: str, queue: Queue) -> Iterator[Fault]:
    at = f"queues.{name}"
    for what in ("guarantee", "limit", "user_limit"):
        for bound in getattr(queue, what):
            if bound.resource == NODES:
                yield Fault(f"{at}.{what}.nodes", "nodes are no resource", "bound what they have: cpus, gpus, memory")
            elif what == "guarantee" and not bound.amount and not bound.part:
                yield Fault(f"{at}.guarantee.{bound.resource}", "guarantees nothing", "leave it out")
    for small, large in (("guarantee", "limit"), ("user_limit", "limit")):
        yield from _above(f"{at}.{small}", getattr(queue, small), getattr(queue, large), f"the {large} of {name}")
    above = name.rpartition("/")[0]
    while above:
        limit = spec.queues[above].limit if above in spec.queues else ()
        yield from _above(f"{at}.guarantee", queue.guarantee, limit, f"the limit of {above}")
        above = above.rpartition("/")[0]


def _above(path: str, small: Bounds, large: Bounds, what: str) -> Iterator[Fault]:
    """Amounts against amounts, and parts against parts: what the nodes have is not known here."""
    most = {bound.resource: bound for bound in large}
    for bound in small:
        bounding = most.get(bound.resource)
        if bounding is not None and _exceeds(bound, bounding):
            yield Fault(
                f"{path}.{bound.resource}", f"{format_bound(bound)} is more than {what}, {format_bound(bounding)}",
                "lower the one or raise the other",
            )  # fmt: skip


TURNED = (Tide.RISING.value, Tide.SURGE.value, Tide.EBBING.value)


def _tides(spec: PolicySpec) -> Iterator[Fault]:
    states = spec.tide.states if spec.tide is not None else {}
    for state, other in states.items():
        if other.order is not None and other.order.by is not spec.order.by:
            for by in (spec.order.by, other.order.by):
                if by in BY_STANDING:
                    yield Fault(
                        f"tide.states.{state}.order.by", f"{by.value} cannot come and go with the tide",
                        "name another order there, and in the policy itself",
                    )  # fmt: skip
        if state not in TURNED:
            cure = "say it in the policy itself" if state == Tide.CALM else f"name one of: {', '.join(TURNED)}"
            yield Fault(f"tide.states.{state}", "is no tide that changes anything", cure)
    for name, rule in spec.admission.items():
        for state in rule.tides:
            if state not in TURNED:
                yield Fault(
                    f"admission.{name}.tides", f"{state!r} is no tide in which jobs are refused",
                    f"name one of: {', '.join(TURNED)}",
                )  # fmt: skip
        if rule.tides and spec.tide is None:
            yield Fault(f"admission.{name}.tides", "the policy has no tide", "write 'tide: {}' at least")


def _exceeds(bound: Bound, other: Bound) -> bool:
    if bound.part and other.part:
        return bound.part > other.part
    return not bound.part and not other.part and bound.amount > other.amount


def _guarantees(spec: PolicySpec) -> Iterator[Fault]:
    """What the parts of a queue are guaranteed together, against its own guarantee; at the top, all there is."""
    sums: dict[tuple[str, str], Bound] = {}
    for name, queue in spec.queues.items():
        parent = name.rpartition("/")[0]
        for bound in queue.guarantee:
            known = sums.get((parent, bound.resource), Bound(bound.resource))
            sums[parent, bound.resource] = Bound(bound.resource, known.amount + bound.amount, known.part + bound.part)
    for (parent, resource), total in sums.items():
        own = spec.queues[parent].guarantee if parent in spec.queues else ()
        given = next((bound for bound in own if bound.resource == resource), Bound(resource, part=ALL))
        path, whose = (f"queues.{parent}", f"the parts of {parent}") if parent else ("queues", "the queues")
        for one, other in ((Bound(resource, total.amount), given), (Bound(resource, part=total.part), given)):
            if (one.amount or one.part) and _exceeds(one, other):
                yield Fault(
                    path,
                    f"{whose} are guaranteed {format_bound(one)} {resource} together, of {format_bound(other)}",
                    f"lower a guarantee{f', or raise that of {parent}' if own else ''}",
                )
