"""Commands: wishes from outside. `core.accept` answers each with events or a refusal."""

from tidegate.model.base import Value
from tidegate.model.jobs import Amounts, JobSpec, Pairs
from tidegate.model.nodes import Node, NodeState
from tidegate.model.policy import PolicySpec
from tidegate.model.reservations import ReservationSpec


class Submit(Value, frozen=True, gc=False, tag=True):
    spec: JobSpec
    job: int = 0  # 0: the world gives the next free id
    key: str = ""  # the same key within its expiry gives the same job
    env: Pairs = ()  # what `spec.work.env` names; kept once, however many jobs name it


class Cancel(Value, frozen=True, gc=False, tag=True):
    job: int
    index: int = -1  # -1: the whole job
    by: str = ""


class Requeue(Value, frozen=True, gc=False, tag=True):
    """Ends what runs and lets it wait again, to go on from what it saves first, or from its start."""

    job: int
    index: int = -1
    by: str = ""


class Suspend(Value, frozen=True, gc=False, tag=True):
    """Stops what runs of the job where it is, until somebody lets it go on."""

    job: int
    index: int = -1
    by: str = ""


class Resume(Value, frozen=True, gc=False, tag=True):
    """Lets what is suspended of the job go on, as soon as its cpus are free."""

    job: int
    index: int = -1
    by: str = ""


class AskCheckpoint(Value, frozen=True, gc=False, tag=True):
    """Asks what runs of the job to save itself, now."""

    job: int
    index: int = -1
    by: str = ""


class Hold(Value, frozen=True, gc=False, tag=True):
    job: int
    by: str = ""


class Release(Value, frozen=True, gc=False, tag=True):
    job: int
    by: str = ""


class Change(Value, frozen=True, gc=False, tag=True):
    """A job that waits asks for something else from now on. Whose it is, its tasks and what it waits for stay."""

    job: int
    spec: JobSpec
    by: str = ""


class SetNode(Value, frozen=True, gc=False, tag=True):
    """Adds a node, or replaces what is known of it."""

    node: Node


class SetNodeState(Value, frozen=True, gc=False, tag=True):
    name: str
    state: NodeState
    why: str = ""


class ChangePolicy(Value, frozen=True, gc=False, tag=True):
    """From the next cycle on. The policy that is in force already changes nothing."""

    policy: PolicySpec
    by: str = ""
    note: str = ""
    if_version: int = -1  # only over this version; -1: whichever is in force


class ApproveExcess(Value, frozen=True, gc=False, tag=True):
    """A queue may hold so much more than its limit until then. It takes the place of what was approved before."""

    queue: str
    amounts: Amounts
    until: int
    by: str = ""
    note: str = ""


class RevokeExcess(Value, frozen=True, gc=False, tag=True):
    queue: str
    by: str = ""


class Reserve(Value, frozen=True, gc=False, tag=True):
    """Keeps capacity for somebody. The same reservation again changes nothing."""

    spec: ReservationSpec
    operator: bool = False  # beyond any quota,
    force: bool = False  # and whatever runs or is promised there


class EndReservation(Value, frozen=True, gc=False, tag=True):
    """What it keeps is free for all again; what runs there runs on."""

    name: str
    by: str = ""


Command = (
    Submit
    | Cancel
    | Requeue
    | Suspend
    | Resume
    | AskCheckpoint
    | Hold
    | Release
    | Change
    | SetNode
    | SetNodeState
    | ChangePolicy
    | ApproveExcess
    | RevokeExcess
    | Reserve
    | EndReservation
)


class Refused(Value, frozen=True, gc=False):
    """Why a command was not taken, and what to do about it."""

    what: str
    cure: str
