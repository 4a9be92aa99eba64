"""Events: facts, past tense, complete. The state is a fold over them and nothing else.

`at` is the `now` of the turn of the loop that established the fact.
"""

from tidegate.model.base import Value
from tidegate.model.jobs import Job, Outcome
from tidegate.model.nodes import Node
from tidegate.model.policy import PolicySpec

Placement = tuple[tuple[str, int], ...]
"""(node, chunks there), in node order of the pool."""


class JobSubmitted(Value, frozen=True, gc=False, tag=True):
    at: int
    job: Job
    key: str = ""


class JobReady(Value, frozen=True, gc=False, tag=True):
    """Nothing but capacity and rank keeps the job waiting any more."""

    at: int
    job: int


class JobHeld(Value, frozen=True, gc=False, tag=True):
    at: int
    job: int
    by: str


class JobReleased(Value, frozen=True, gc=False, tag=True):
    at: int
    job: int
    by: str


class JobStarted(Value, frozen=True, gc=False, tag=True):
    at: int
    task: int
    attempt: int
    expected_end: int
    nodes: Placement
    backfilled: bool


class JobLaunched(Value, frozen=True, gc=False, tag=True):
    """The engine has the attempt running."""

    at: int
    task: int
    attempt: int


class HaltRequested(Value, frozen=True, gc=False, tag=True):
    at: int
    task: int
    attempt: int
    outcome: Outcome
    by: str


class AttemptLost(Value, frozen=True, gc=False, tag=True):
    """The attempt is gone through no fault of the job; the task waits again."""

    at: int
    task: int
    attempt: int
    why: str


class JobEnded(Value, frozen=True, gc=False, tag=True):
    """A task has its final outcome. `attempt` 0: it never started."""

    at: int
    task: int
    attempt: int
    outcome: Outcome
    code: int = 0
    why: str = ""


class JobDropped(Value, frozen=True, gc=False, tag=True):
    """Every task of the job that has not started ends so."""

    at: int
    job: int
    outcome: Outcome
    why: str


class TimePassed(Value, frozen=True, gc=False, tag=True):
    """All that time and ended jobs made true by then has been looked at; what follows from it comes next."""

    at: int


class EstimateRaised(Value, frozen=True, gc=False, tag=True):
    """A run outlived its estimate; planning now assumes this end."""

    at: int
    task: int
    attempt: int
    expected_end: int


class NodeChanged(Value, frozen=True, gc=False, tag=True):
    at: int
    node: Node


class StraySeen(Value, frozen=True, gc=False, tag=True):
    """An engine runs an attempt that the world does not want there."""

    at: int
    task: int
    attempt: int


class StrayGone(Value, frozen=True, gc=False, tag=True):
    at: int
    task: int
    attempt: int


class PolicyChanged(Value, frozen=True, gc=False, tag=True):
    at: int
    version: int
    policy: PolicySpec


class Promise(Value, frozen=True, gc=False):
    """A waiting task starts by then, there, as long as limits hold and no node is lost."""

    task: int
    start_by: int
    nodes: Placement  # empty where the pool is counted, not searched


class CycleRan(Value, frozen=True, gc=False, tag=True):
    """One pass of `decide`: enough to derive it again, bit for bit, with the same kernel."""

    at: int
    number: int
    policy: int
    kernel: int
    cut: str  # "": ran to its end; else the count that ran out
    promised: tuple[Promise, ...] = ()  # new or changed
    withdrawn: tuple[int, ...] = ()  # tasks that hold a promise no more


Event = (
    JobSubmitted
    | JobReady
    | JobHeld
    | JobReleased
    | JobStarted
    | JobLaunched
    | HaltRequested
    | AttemptLost
    | JobEnded
    | JobDropped
    | TimePassed
    | EstimateRaised
    | NodeChanged
    | StraySeen
    | StrayGone
    | PolicyChanged
    | CycleRan
)
