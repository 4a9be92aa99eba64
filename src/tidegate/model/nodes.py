"""Nodes: where a job may run."""

from enum import StrEnum

from tidegate.model.base import Value
from tidegate.model.jobs import Amounts


class NodeState(StrEnum):
    UP = "up"
    DRAINING = "draining"  # what runs may finish, nothing new starts
    DRAINED = "drained"  # draining, and empty
    DOWN = "down"  # what ran there is lost


class Node(Value, frozen=True, gc=False):
    name: str
    pool: str
    capacity: Amounts
    labels: tuple[tuple[str, str], ...] = ()
    state: NodeState = NodeState.UP
    why: str = ""
