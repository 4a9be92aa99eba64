"""What passes between the loop and an engine: directives out, reports in."""

from tidegate.model.base import Value
from tidegate.model.events import Placement
from tidegate.model.jobs import Job, Outcome
from tidegate.model.nodes import Node


class Launch(Value, frozen=True, gc=False, tag=True):
    """Run this attempt there. A second one for the same (task, attempt) does nothing."""

    task: int
    attempt: int
    job: Job
    nodes: Placement


class Halt(Value, frozen=True, gc=False, tag=True):
    """End this attempt, whatever it does."""

    task: int
    attempt: int
    outcome: Outcome


Directive = Launch | Halt


class Launched(Value, frozen=True, gc=False, tag=True):
    task: int
    attempt: int


class Ended(Value, frozen=True, gc=False, tag=True):
    task: int
    attempt: int
    outcome: Outcome
    code: int = 0


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


Report = Launched | Ended | NodeSeen | NodeLost | Inventory
