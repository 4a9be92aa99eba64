"""A policy is data: small named pieces and their parameters. One YAML file, one of these."""

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from tidegate.model.base import Value

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DEPTH_ALL = 1 << 30


class OrderBy(StrEnum):
    FCFS = "fcfs"
    SHORTEST = "shortest"
    SMALLEST_AREA = "smallest-area"
    EXPANSION = "expansion"
    DEFERRED = "deferred"
    PRIORITY = "priority"


class CandidateOrder(StrEnum):
    SAME = "same"
    SHORTEST = "shortest"


class FitBy(StrEnum):
    FIRST = "first"
    BEST = "best"
    PACK = "pack"
    SPREAD = "spread"


class EstimateFrom(StrEnum):
    LIMIT = "limit"
    LAST_TWO = "last-two"


class Order(Value, frozen=True, gc=False, forbid_unknown_fields=True):
    """Who goes first."""

    by: Annotated[OrderBy, Meta(description="what is compared; every order ends in submit time and job id")] = (
        OrderBy.FCFS
    )
    ageing_bound_ms: Annotated[
        int,
        Meta(
            ge=0,
            description="a job that waited this long goes before all younger ones and holds a promised start; 0: never",
        ),
    ] = 0
    aged_promises_max: Annotated[
        int,
        Meta(
            ge=1,
            description="how many jobs past the bound hold a promise, beside `backfill.depth`; "
            "with more of them in a pool nobody goes ahead at all",
        ),
    ] = 16
    per_doubling_ms: Annotated[
        int,
        Meta(
            ge=0,
            description="under `deferred` a job counts as submitted so much later for every doubling "
            "of the time it is likely to run",
        ),
    ] = 6 * HOUR_MS
    short_ms: Annotated[
        int, Meta(ge=1, description="where doublings begin: under `deferred` run times well below it are all the same")
    ] = MINUTE_MS
    scout_from: Annotated[
        int,
        Meta(
            ge=0,
            description="under `deferred`, where so many alike jobs wait and none runs, the first is not deferred: "
            "it tells how long the others will take; 0: none is sent ahead",
        ),
    ] = 20
    why: str = ""


class Backfill(Value, frozen=True, gc=False, forbid_unknown_fields=True):
    """Who may go ahead of a job that does not fit."""

    depth: Annotated[
        int,
        Meta(
            ge=0,
            description="how many waiting jobs hold a promised start that nobody behind may delay; 0: none goes ahead",
        ),
    ] = 1
    order: Annotated[CandidateOrder, Meta(description="in which order the others are tried")] = CandidateOrder.SAME
    why: str = ""


class Fit(Value, frozen=True, gc=False, forbid_unknown_fields=True):
    """Which nodes, among those that can hold the job."""

    by: FitBy = FitBy.FIRST
    why: str = ""


RAISE_STEPS_MS = tuple(m * MINUTE_MS for m in (1, 5, 15, 30, 60, 120, 300, 600, 1200, 3000, 6000))


class Estimate(Value, frozen=True, gc=False, forbid_unknown_fields=True):
    """How long planning assumes a job to run."""

    source: Annotated[EstimateFrom, Meta(description="the job's limit, or the mean of its user's last two runs")] = (
        EstimateFrom.LIMIT
    )
    raise_steps_ms: Annotated[
        tuple[int, ...], Meta(description="what is added, step by step, when a run outlives its estimate")
    ] = RAISE_STEPS_MS
    why: str = ""


class JobClass(Value, frozen=True, gc=False, forbid_unknown_fields=True):
    """A priority class. Its head start is time: it counts as submitted that much earlier."""

    head_start_ms: int = 0
    why: str = ""


class Cycle(Value, frozen=True, gc=False, forbid_unknown_fields=True):
    """Where one pass stops, in counts; the next pass goes on from there."""

    starts_max: Annotated[int, Meta(ge=1, description="jobs started in one pass")] = 100_000
    why: str = ""


class PolicySpec(Value, frozen=True, gc=False, forbid_unknown_fields=True):
    name: str
    order: Order = Order()
    backfill: Backfill = Backfill()
    fit: Fit = Fit()
    estimate: Estimate = Estimate()
    classes: dict[str, JobClass] = msgspec.field(default_factory=dict)
    cycle: Cycle = Cycle()
    why: str = ""
