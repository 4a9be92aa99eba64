"""Events: facts, past tense, complete. The state is a fold over them and nothing else.

`at` is the `now` of the turn of the loop that established the fact.
"""

from tidegate.model.base import Value
from tidegate.model.jobs import NOTHING_KNOWN, Amounts, Job, Outcome, Pairs, Used
from tidegate.model.nodes import Node
from tidegate.model.policy import PolicySpec, Tide
from tidegate.model.reservations import ReservationSpec

Placement = tuple[tuple[str, int], ...]
"""(node, chunks there), in node order of the pool."""


class JobSubmitted(Value, frozen=True, gc=False, tag=True):
    at: int
    job: Job
    key: str = ""


class EnvironmentKept(Value, frozen=True, gc=False, tag=True):
    """The environment that works name so; kept while a live job does."""

    at: int
    name: str
    env: Pairs


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


class JobChanged(Value, frozen=True, gc=False, tag=True):
    """A job that is held asks for something else from now on."""

    at: int
    job: Job
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
    again: bool = False  # when it has ended the task waits again
    save: bool = False  # it is asked to save itself first
    room_for: int = 0  # the task it makes room for
    until: int = 0  # planning assumes that it has ended by then; 0: nothing new is known


class JobSuspended(Value, frozen=True, gc=False, tag=True):
    """The attempt is stopped where it is. It lends its cpus and keeps all else; its time limit stands still."""

    at: int
    task: int
    attempt: int
    by: str
    until: int  # planning assumes that it has gone on and ended by then
    held: bool = False  # somebody has to let it go on
    room_for: int = 0  # the task it makes room for


class SuspensionChanged(Value, frozen=True, gc=False, tag=True):
    """Who is suspended stays so until somebody lets it go on (`held`), or goes on when its turn comes."""

    at: int
    task: int
    held: bool
    by: str


class JobResumed(Value, frozen=True, gc=False, tag=True):
    """The suspended attempt goes on, with the cpus it had."""

    at: int
    task: int
    attempt: int
    expected_end: int


class CheckpointAsked(Value, frozen=True, gc=False, tag=True):
    """The job is to save itself, and run on."""

    at: int
    task: int
    attempt: int
    number: int
    next_at: int  # it is asked again then


class CheckpointKept(Value, frozen=True, gc=False, tag=True):
    """The attempt has saved itself, whole: so much of what it did another one need not do again."""

    at: int
    task: int
    attempt: int
    number: int  # the ask it answers; 0: none
    kept_ms: int
    size_mib: int = 0


class AttemptLost(Value, frozen=True, gc=False, tag=True):
    """The attempt is gone through no fault of the job; the task waits again."""

    at: int
    task: int
    attempt: int
    why: str
    counts: bool = True  # towards `losses_max`
    until: int = 0  # it does not start again before
    blames: bool = False  # it is held against the node, see docs/decisions/0010


class AttemptFailed(Value, frozen=True, gc=False, tag=True):
    """The attempt ended badly and the job's retry rule says: again, but not before `until`."""

    at: int
    task: int
    attempt: int
    outcome: Outcome
    until: int
    code: int = 0
    signal: int = 0
    used: Used = NOTHING_KNOWN
    why: str = ""
    blames: bool = False


class TaskRested(Value, frozen=True, gc=False, tag=True):
    """The task has waited out its back-off."""

    at: int
    task: int


class JobEnded(Value, frozen=True, gc=False, tag=True):
    """A task has its final outcome. `attempt` 0: it was waiting."""

    at: int
    task: int
    attempt: int
    outcome: Outcome
    code: int = 0
    why: str = ""
    signal: int = 0
    used: Used = NOTHING_KNOWN
    blames: bool = False


class JobDropped(Value, frozen=True, gc=False, tag=True):
    """Every task of the job that waits ends so."""

    at: int
    job: int
    outcome: Outcome
    why: str


class TimePassed(Value, frozen=True, gc=False, tag=True):
    """All that time and ended jobs made true by then has been looked at; what follows from it comes next."""

    at: int


class LookedAgain(Value, frozen=True, gc=False, tag=True):
    """The time has come that a cycle named: the pool is looked at anew."""

    at: int
    pool: str


class EstimateRaised(Value, frozen=True, gc=False, tag=True):
    """A run outlived its estimate; planning now assumes this end."""

    at: int
    task: int
    attempt: int
    expected_end: int


class NodeChanged(Value, frozen=True, gc=False, tag=True):
    at: int
    node: Node


class NodeSuspected(Value, frozen=True, gc=False, tag=True):
    """Several jobs in a row failed on the node: it is drained, and tried again at `until`."""

    at: int
    node: Node
    until: int
    strikes: int  # how often in a row


class NodeTried(Value, frozen=True, gc=False, tag=True):
    """A suspected node takes one job at a time until one of them succeeds."""

    at: int
    node: Node


class NodeCleared(Value, frozen=True, gc=False, tag=True):
    """Nothing is held against the node any more: a job succeeded there, or an operator said so."""

    at: int
    name: str


class NoticeSent(Value, frozen=True, gc=False, tag=True):
    """The job's `notify` command was run."""

    at: int
    job: int


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
    by: str = ""
    note: str = ""


class ExcessApproved(Value, frozen=True, gc=False, tag=True):
    """The queue may hold so much more than its limit until then."""

    at: int
    queue: str
    amounts: Amounts
    until: int
    by: str
    note: str = ""


class ExcessOver(Value, frozen=True, gc=False, tag=True):
    """The limit of the queue is what the policy says again. What runs, runs on."""

    at: int
    queue: str
    by: str = ""  # who revoked it; "": its time had come


class ReservationMade(Value, frozen=True, gc=False, tag=True):
    """From its start to its end nobody else may use so much of these nodes."""

    at: int
    spec: ReservationSpec
    nodes: Placement
    operator: bool = False  # it counts towards nobody's quota


class ReservationMoved(Value, frozen=True, gc=False, tag=True):
    """A node of it takes no work any more; what was kept there is kept elsewhere."""

    at: int
    name: str
    nodes: Placement


class ReservationOver(Value, frozen=True, gc=False, tag=True):
    """What it kept is free for all. What runs there runs on; who waited for it waits with the others."""

    at: int
    name: str
    why: str


class Seen(Value, frozen=True, gc=False):
    """What a tide turned on."""

    waiting: int  # tasks
    lately: int  # tasks that came within the window, decayed
    usual: int  # as many would have, by the baseline, in thousandths of a task
    wait_ms: int  # of those that started lately
    utilization_percent: int


class TideTurned(Value, frozen=True, gc=False, tag=True):
    """The tide of a pool is another: so is what the policy says there, until it turns again."""

    at: int
    pool: str
    before: Tide
    after: Tide
    why: str
    seen: Seen


CUT_BY_STARTS = "starts in "
CUT_BY_TRIALS = "trials"
CUT_BY_PREEMPTION = "preemption"
"""Somebody was interrupted: what the pass would do next rests on when they go, and on what is held."""


class Promise(Value, frozen=True, gc=False):
    """A waiting task starts by then, there, as long as limits hold and no node is lost."""

    task: int
    start_by: int
    nodes: Placement  # empty where the pool is counted, not searched
    held_until: int = 0  # until then the room is kept for it, whoever else has a turn: others were interrupted for it


class CycleRan(Value, frozen=True, gc=False, tag=True):
    """One pass of `decide`: enough to derive it again, bit for bit, with the same kernel."""

    at: int
    number: int
    policy: int
    kernel: int
    cut: str  # "": ran to its end; else CUT_BY_TRIALS, or CUT_BY_STARTS and the pool in which that count ran out
    promised: tuple[Promise, ...] = ()  # new or changed
    withdrawn: tuple[int, ...] = ()  # tasks that hold a promise no more
    looks: tuple[tuple[str, int], ...] = ()  # (pool, when): time alone may let somebody be interrupted then


Event = (
    JobSubmitted
    | EnvironmentKept
    | JobReady
    | JobHeld
    | JobReleased
    | JobChanged
    | JobStarted
    | JobLaunched
    | HaltRequested
    | JobSuspended
    | SuspensionChanged
    | JobResumed
    | CheckpointAsked
    | CheckpointKept
    | AttemptLost
    | AttemptFailed
    | TaskRested
    | JobEnded
    | JobDropped
    | TimePassed
    | LookedAgain
    | EstimateRaised
    | NodeChanged
    | NodeSuspected
    | NodeTried
    | NodeCleared
    | NoticeSent
    | StraySeen
    | StrayGone
    | PolicyChanged
    | ExcessApproved
    | ExcessOver
    | ReservationMade
    | ReservationMoved
    | ReservationOver
    | TideTurned
    | CycleRan
)
