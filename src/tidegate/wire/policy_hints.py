"""What is allowed in a policy and probably not meant."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tidegate.model.policy import CandidateOrder, OrderBy, PolicySpec

MAY_STARVE = (OrderBy.SHORTEST, OrderBy.SMALLEST_AREA, OrderBy.EXPANSION)
"""Orders under which those who come later can go before a job without end."""


class Hint(NamedTuple):
    path: str
    message: str
    cure: str


def hints(spec: PolicySpec) -> Iterator[Hint]:
    yield from _order(spec)
    yield from _backfill(spec)
    yield from _classes(spec)
    steps = spec.estimate.raise_steps_ms
    if any(step <= 0 for step in steps[:1]) or any(b <= a for a, b in pairwise(steps)):
        yield Hint("estimate.raise_steps", "a step that is not above the one before adds nothing", "let them rise")


def _order(spec: PolicySpec) -> Iterator[Hint]:
    order = spec.order
    if order.by in MAY_STARVE and not order.ageing_bound_ms:
        yield Hint(
            "order.ageing_bound",
            f"under {order.by.value} a job can starve: later ones may go before it without end",
            "set ageing_bound, such as 24h, unless a published simulation is to be reproduced",
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


def _classes(spec: PolicySpec) -> Iterator[Hint]:
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
