"""What passes between the loop and an engine: directives out, reports in."""

from tidegate.model.base import Value
from tidegate.model.events import Placement
from tidegate.model.jobs import NOTHING_KNOWN, Job, Outcome, Pairs, Used
from tidegate.model.nodes import Node


class Launch(Value, frozen=True, gc=False, tag=True):
    """Run this attempt there. A second one for the same (task, attempt) does nothing."""

    task: int
    attempt: int
    job: Job
    nodes: Placement
    env: Pairs = ()
    kept_ms: int = 0  # so much of the work earlier attempts have saved


class Halt(Value, frozen=True, gc=False, tag=True):
    """End this attempt, whatever it does: asked first, and after the grace made to."""

    task: int
    attempt: int
    outcome: Outcome
    grace_ms: int = 0
    save: bool = False  # asked to save itself first; it is over when it has, or when the grace is


class Suspend(Value, frozen=True, gc=False, tag=True):
    """Stop this attempt where it is, and its time limit. One that is stopped already stays so."""

    task: int
    attempt: int


class Resume(Value, frozen=True, gc=False, tag=True):
    """Let this attempt go on, if it is stopped."""

    task: int
    attempt: int


class Ask(Value, frozen=True, gc=False, tag=True):
    """Ask this attempt to save itself, once for every number."""

    task: int
    attempt: int
    number: int


class Notify(Value, frozen=True, gc=False, tag=True):
    """Run the job's `notify` command once: it has ended so."""

    job: Job
    outcome: Outcome
    env: Pairs = ()


Directive = Launch | Halt | Suspend | Resume | Ask | Notify


class Launched(Value, frozen=True, gc=False, tag=True):
    task: int
    attempt: int


class Ended(Value, frozen=True, gc=False, tag=True):
    """COMPLETED says: with code 0 and by itself, before any halt reached it. What a halt ended has the halt's outcome.

    LOST is for an attempt whose end the engine cannot know. `why` names a cause that is neither the job nor its node.
    """

    task: int
    attempt: int
    outcome: Outcome
    code: int = 0
    signal: int = 0
    used: Used = NOTHING_KNOWN
    why: str = ""


class Saved(Value, frozen=True, gc=False, tag=True):
    """The attempt has saved itself, whole. `kept_ms`: so much of what it did itself."""

    task: int
    attempt: int
    number: int  # the ask it answers; 0: by itself, or because it is being ended
    kept_ms: int
    size_mib: int = 0


class LaunchRefused(Value, frozen=True, gc=False, tag=True):
    """The engine cannot start this attempt; nothing of it ran. It counts as lost."""

    task: int
    attempt: int
    why: str


class Notified(Value, frozen=True, gc=False, tag=True):
    job: int


class NodeSeen(Value, frozen=True, gc=False, tag=True):
    node: Node


class NodeLost(Value, frozen=True, gc=False, tag=True):
    name: str
    why: str


class Inventory(Value, frozen=True, gc=False, tag=True):
    """Everything the engine has: the truth, where single reports are hints.

    `asked_ms` is when it was taken; attempts started after that are not judged by it.
    """

    asked_ms: int
    running: tuple[tuple[int, int], ...]  # (task, attempt)


Report = Launched | Ended | Saved | LaunchRefused | Notified | NodeSeen | NodeLost | Inventory
