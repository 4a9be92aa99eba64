"""A policy is data: small named pieces and their parameters. One YAML file, one of these.

Defaults are left out where it is written, so that a new field changes no digest of an old journal.
"""

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from tidegate.model.base import Value

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
DEPTH_ALL = 1 << 30
LEVEL_MAX = 1000
PART_BITS = 20
WEIGHT_MAX = 1_000_000
RUNGS_MAX = 8
NODES = "nodes"
"""In a rule of admission: not a resource, but how many nodes a job is spread over."""


class OrderBy(StrEnum):
    FCFS = "fcfs"
    SHORTEST = "shortest"
    SMALLEST_AREA = "smallest-area"
    EXPANSION = "expansion"
    DEFERRED = "deferred"
    PRIORITY = "priority"
    SHORTEST_REMAINING = "shortest-remaining"
    FEEDBACK = "feedback"


BY_STANDING = (OrderBy.FEEDBACK, OrderBy.SHORTEST_REMAINING)
"""Orders by what a job that waits has used or saved."""


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


class Order(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """Who goes first."""

    by: Annotated[OrderBy, Meta(description="what is compared; every order ends in submit time and job id")] = (
        OrderBy.FCFS
    )
    ageing_bound_ms: Annotated[
        int,
        Meta(
            ge=0,
            description="a job that waited this long goes before all younger ones and holds a promised start; "
            "0: never; not said, 7d under an order that could starve it",
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
    then: Annotated[OrderBy, Meta(description="under `feedback`: what is compared within a rung")] = OrderBy.FCFS
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
            description="under `deferred`, where so many alike jobs wait and none runs, the first is put ahead, "
            "by `per_doubling` for every doubling of their number: it tells how long the others will take; 0: none is",
        ),
    ] = 2
    wide_ms: Annotated[
        int,
        Meta(
            ge=0,
            description="under `deferred` a job that takes all of its pool counts as submitted so much earlier, others "
            "by their share: room for them is hard to find",
        ),
    ] = 12 * HOUR_MS
    why: str = ""


class Feedback(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """How jobs that can be interrupted sink by what they use, and rise by waiting."""

    rungs_ms: Annotated[
        tuple[int, ...],
        Meta(description="the edges between the rungs: what a job has used, run time times GPUs, rising"),
    ] = (4 * HOUR_MS, 32 * HOUR_MS, 256 * HOUR_MS)
    cpus_per_gpu: Annotated[int, Meta(ge=1, description="of a job that asks for no GPU, so many cpus count as one")] = 8
    ageing_bound_ms: Annotated[
        int,
        Meta(
            ge=1,
            description="a job that waited this long, since it was submitted or last ran, goes first "
            "and may take the room of any job of no higher level",
        ),
    ] = 7 * DAY_MS
    turn_ms: Annotated[
        int, Meta(ge=0, description="then it runs this long before it may be interrupted for what it has used")
    ] = 6 * HOUR_MS
    why: str = ""


class Backfill(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """Who may go ahead of a job that does not fit."""

    depth: Annotated[
        int,
        Meta(
            ge=0,
            description="how many waiting jobs hold a promised start that nobody behind may delay; 0: none goes ahead",
        ),
    ] = 1
    order: Annotated[CandidateOrder, Meta(description="in which order the others are tried")] = CandidateOrder.SAME
    slip_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="by how much of a hundred of its run time those who go ahead may delay the one job that holds "
            "a promise, all in all; 0: not at all",
        ),
    ] = 0
    firm_after_ms: Annotated[
        int,
        Meta(
            ge=0,
            description="a promise to a job that has not waited so long may be put off: under order `deferred` others "
            "go ahead where they are likely to end in time, whatever their limits say; 0: every promise is firm",
        ),
    ] = 0
    why: str = ""


class Fit(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """Which nodes, among those that can hold the job."""

    by: FitBy = FitBy.FIRST
    why: str = ""


RAISE_STEPS_MS = tuple(m * MINUTE_MS for m in (1, 5, 15, 30, 60, 120, 300, 600, 1200, 3000, 6000))


class Estimate(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """How long planning assumes a job to run."""

    source: Annotated[EstimateFrom, Meta(description="the job's limit, or the mean of its user's last two runs")] = (
        EstimateFrom.LIMIT
    )
    raise_steps_ms: Annotated[
        tuple[int, ...], Meta(description="what is added, step by step, when a run outlives its estimate")
    ] = RAISE_STEPS_MS
    why: str = ""


class Preempt(StrEnum):
    """How a job makes room for another."""

    NEVER = "never"
    SAVERS = "savers"
    CHECKPOINT = "checkpoint"
    SUSPEND = "suspend"
    REQUEUE = "requeue"
    CANCEL = "cancel"


SAVE_FIRST = (Preempt.SAVERS, Preempt.CHECKPOINT)
"""Nobody is interrupted who cannot save itself."""


class JobClass(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """A priority class: a level, and within it a head start in time."""

    level: Annotated[
        int,
        Meta(
            ge=-LEVEL_MAX,
            le=LEVEL_MAX,
            description="jobs of a higher level go before all of a lower one; may be negative",
        ),
    ] = 0
    head_start_ms: int = 0
    run_max_ms: Annotated[int, Meta(ge=0, description="the longest time limit a job may ask for; 0: any")] = 0
    preempt: Annotated[
        Preempt,
        Meta(
            description="how its jobs make room for others: not at all; by saving themselves, those that say they can; "
            "the same, and every job has to say; by being stopped in place and lending their cpus; "
            "by being ended and waiting again, saved if they can; by being ended for good"
        ),
    ] = Preempt.NEVER
    ageing_bound_ms: Annotated[
        int, Meta(ge=0, description="as `order.ageing_bound`, for jobs of this class; 0: as it says there")
    ] = 0
    why: str = ""


class Bound(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """So much of a resource: an amount, or else a part of all there is, with PART_BITS bits."""

    resource: str
    amount: int = 0
    part: int = 0


Bounds = tuple[Bound, ...]
"""Sorted by resource, each named once."""


class Users(StrEnum):
    TOGETHER = "together"
    FAIR = "fair"


class Queue(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """A queue of the tree. Its name in the policy is its path: `lab/vision` is a part of `lab`."""

    weight: Annotated[
        int, Meta(ge=1, le=WEIGHT_MAX, description="its part of what its neighbours share, against theirs")
    ] = 1
    guarantee: Annotated[
        Bounds, Meta(description="what it gets before its neighbours borrow; what it leaves idle is lent")
    ] = ()
    limit: Annotated[Bounds, Meta(description="the most it may hold at once; none: all there is")] = ()
    users: Annotated[Users, Meta(description="how its users share it: in one line, or each as a queue of its own")] = (
        Users.TOGETHER
    )
    user_limit: Annotated[Bounds, Meta(description="the most that one of its users may hold at once")] = ()
    run_max_ms: Annotated[int, Meta(ge=0, description="the longest time limit a job may ask for; 0: any")] = 0
    approvers: Annotated[
        tuple[str, ...],
        Meta(description="users who may let it, and its parts, hold more than the limit for a time (`tide quota`)"),
    ] = ()
    why: str = ""


class Share(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """How the use of the past counts between queues."""

    half_life_ms: Annotated[
        int, Meta(ge=0, description="use this long ago counts half; 0: only what is held now counts")
    ] = 0
    why: str = ""


class Hours(Value, frozen=True, gc=False, forbid_unknown_fields=True):
    """From one minute of the day to another, on these days of the week; past midnight where it ends before it began."""

    days: int  # a bit a day, Monday the lowest
    start: int  # minutes since midnight
    end: int


class Tide(StrEnum):
    """How demand stands in a pool."""

    CALM = "calm"
    RISING = "rising"  # more than usual; it has not held yet
    SURGE = "surge"
    EBBING = "ebbing"  # as much as usual again; it has not held yet


class Rule(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """Which jobs are refused: those for which all that it says holds."""

    at_least: Annotated[
        Bounds,
        Meta(description="jobs that ask for as much or more of each of these, or of `nodes`, each task by itself"),
    ] = ()
    time_from_ms: Annotated[int, Meta(ge=0, description="jobs with a time limit as long or longer; 0: any")] = 0
    queues: Annotated[tuple[str, ...], Meta(description="jobs of these queues and their parts; none: of all")] = ()
    classes: Annotated[tuple[str, ...], Meta(description="jobs of these classes; none: of all")] = ()
    unless_classes: Annotated[tuple[str, ...], Meta(description="but not jobs of these classes")] = ()
    needs_tags: Annotated[tuple[str, ...], Meta(description="jobs that lack one of these tags; none: all jobs")] = ()
    closed: Annotated[
        tuple[Hours, ...],
        Meta(description="jobs that could begin in these hours; none: always"),
    ] = ()
    tides: Annotated[
        tuple[str, ...],
        Meta(description="jobs of a pool whose tide is one of these now (rising, surge, ebbing); none: any"),
    ] = ()
    utc_offset_ms: Annotated[
        int, Meta(description="how far the clock of `closed` is ahead of UTC; may be negative")
    ] = 0
    why: Annotated[str, Meta(description="told to whoever is refused")] = ""


class Preemption(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """Whose work is interrupted for whom, and how much of it at most."""

    level_gap: Annotated[
        int, Meta(ge=0, description="jobs of a level so much higher may interrupt those of a lower one; 0: they wait")
    ] = 1
    reclaim_after_ms: Annotated[
        int, Meta(ge=0, description="a queue within its guarantee waits this long, then takes back what it has lent")
    ] = 5 * MINUTE_MS
    share_margin_percent: Annotated[
        int,
        Meta(
            ge=0, le=100, description="a queue may interrupt one whose share stays larger by this much of all; 0: never"
        ),
    ] = 0
    min_run_ms: Annotated[int, Meta(ge=0, description="nobody is interrupted who has not run this long")] = (
        5 * MINUTE_MS
    )
    budget_percent: Annotated[
        int, Meta(ge=0, le=100, description="how many of the running jobs may be interrupted a minute, at least one")
    ] = 10
    user_max: Annotated[
        int, Meta(ge=0, description="how many jobs of one user may be interrupted a minute; 0: any")
    ] = 10
    grace_ms: Annotated[int, Meta(ge=0, description="how long they are expected to take to save themselves and go")] = (
        MINUTE_MS
    )
    hold_ms: Annotated[int, Meta(ge=1, description="how long the room is kept for the one it was made for")] = (
        10 * MINUTE_MS
    )
    why: str = ""


class Checkpoints(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """When jobs that can save themselves are asked to."""

    every_ms: Annotated[
        int, Meta(ge=0, description="how often a job of a class that may be preempted is asked; 0: only when it is")
    ] = 5 * MINUTE_MS
    write_mib_s: Annotated[
        int,
        Meta(ge=0, description="MiB a second that all of them together are to write; asks are spread by it; 0: any"),
    ] = 0
    size_mib: Annotated[int, Meta(ge=0, description="MiB that a job is taken to write if it does not say")] = 1024
    at_once_max: Annotated[int, Meta(ge=0, description="how many may be saving at once; 0: any number")] = 0
    answer_max_ms: Annotated[int, Meta(ge=1, description="an ask that is not answered by then is given up")] = HOUR_MS
    why: str = ""


class Reservations(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """What users may reserve by themselves, and when a reservation is given back."""

    unused_grace_ms: Annotated[
        int, Meta(ge=0, description="one that nothing runs in for so long is given back; 0: it is kept to its end")
    ] = 0
    user_hours: Annotated[
        Bounds,
        Meta(
            description="resource-hours that all reservations of one user may hold, whatever is still to come of them; "
            "none: only operators reserve"
        ),
    ] = ()
    user_ahead_ms: Annotated[int, Meta(ge=1, description="how far ahead one that a user makes may begin")] = (
        7 * 24 * HOUR_MS
    )
    user_lasts_max_ms: Annotated[int, Meta(ge=1, description="how long one that a user makes may last")] = 24 * HOUR_MS
    why: str = ""


class Kept(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """Nodes of a pool that only jobs of some classes may use, at any time."""

    nodes: Annotated[int, Meta(ge=0, description="so many nodes, the last of the pool that take work")] = 0
    percent: Annotated[
        int, Meta(ge=0, le=100, description="or so much of the pool's nodes, rounded up; the larger of the two counts")
    ] = 0
    pool: Annotated[str, Meta(description="of this pool; none: of each")] = ""
    classes: Annotated[tuple[str, ...], Meta(description="jobs of these classes may use them; none: nobody may")] = ()
    why: str = ""


class Cycle(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """Where one pass stops, in counts; the next pass goes on from there."""

    starts_max: Annotated[int, Meta(ge=1, description="jobs started in one pass")] = 100_000
    why: str = ""


class InTide(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """What is otherwise while the tide of a pool is so; None: as it is in a calm."""

    order: Annotated[
        Order | None, Meta(description="as `order`; what it does not say is as there, in this and the next three")
    ] = None
    backfill: Annotated[Backfill | None, Meta(description="as `backfill`")] = None
    fit: Annotated[Fit | None, Meta(description="as `fit`")] = None
    preemption: Annotated[Preemption | None, Meta(description="as `preemption`")] = None
    why: str = ""


class Tides(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """When demand in a pool is a burst, and what it changes there."""

    depth: Annotated[
        int, Meta(ge=0, le=10_000, description="a sign: more tasks than this wait in the pool; 0: no sign")
    ] = 10
    arrivals: Annotated[
        int, Meta(ge=0, le=1000, description="a sign: so many times as many tasks come as usual, or more; 0: no sign")
    ] = 5
    arrivals_min: Annotated[
        int, Meta(ge=1, description="fewer than this within `window` are none, whatever is usual")
    ] = 20
    wait_ms: Annotated[
        int, Meta(ge=0, description="a sign: those that started lately had waited longer, on average; 0: no sign")
    ] = 0
    utilization_percent: Annotated[
        int, Meta(ge=0, le=100, description="depth is a sign only where so much of a resource is in use; 0: anywhere")
    ] = 0
    ebb_percent: Annotated[
        int, Meta(ge=0, le=100, description="a burst is over when every sign is down to this part of its mark")
    ] = 50
    window_ms: Annotated[int, Meta(ge=1, description="what lately is: what is older by this counts half")] = (
        5 * MINUTE_MS
    )
    baseline_ms: Annotated[
        int,
        Meta(
            ge=1,
            description="what usual is, likewise; until a quarter of it has been seen, arrivals count for nothing",
        ),
    ] = 24 * HOUR_MS
    hold_ms: Annotated[int, Meta(ge=0, description="rising becomes surge after this, and a surge lasts as long")] = (
        5 * MINUTE_MS
    )
    ebb_ms: Annotated[int, Meta(ge=0, description="ebbing becomes calm after this")] = 15 * MINUTE_MS
    states: Annotated[
        dict[str, InTide], Meta(description="what is otherwise in a pool while it is `rising`, in `surge`, `ebbing`")
    ] = msgspec.field(default_factory=dict)
    why: str = ""


class PolicySpec(Value, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    order: Order = Order()
    backfill: Backfill = Backfill()
    fit: Fit = Fit()
    estimate: Estimate = Estimate()
    classes: dict[str, JobClass] = msgspec.field(default_factory=dict)
    queues: dict[str, Queue] = msgspec.field(default_factory=dict)
    share: Share = Share()
    preemption: Preemption = Preemption()
    checkpoints: Checkpoints = Checkpoints()
    cycle: Cycle = Cycle()
    reservations: Reservations = Reservations()
    kept: dict[str, Kept] = msgspec.field(default_factory=dict)
    admission: dict[str, Rule] = msgspec.field(default_factory=dict)
    tide: Tides | None = None
    feedback: Feedback = Feedback()
    why: str = ""


def in_tides(policy: PolicySpec) -> dict[str, PolicySpec]:
    """The whole policy as it is in each state of the tide that changes something."""
    if policy.tide is None:
        return {}
    return {
        state: replace(
            policy,
            order=other.order or policy.order,
            backfill=other.backfill or policy.backfill,
            fit=other.fit or policy.fit,
            preemption=other.preemption or policy.preemption,
        )
        for state, other in policy.tide.states.items()
    }
