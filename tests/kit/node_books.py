"""The books on nodes: whoever is suspected has deserved it, and whoever is tried has one run at a time."""

import re
from collections.abc import Mapping

from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS
from tidegate.model.jobs import Outcome
from tidegate.model.nodes import Node, NodeState


class NodeBooks:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.suspected: dict[str, ev.NodeSuspected] = {}
        self.tried: set[str] = set()
        self.failures: dict[str, set[int]] = {}  # node -> jobs, since one succeeded there
        self.failed_on: dict[int, set[str]] = {}

    def note(self, event: ev.Event, live: Mapping[int, ev.JobStarted]) -> None:
        """`live`: what runs, before the event."""
        match event:
            case ev.NodeChanged():
                self.nodes[event.node.name] = event.node
            case ev.NodeSuspected():
                self._suspected(event, live)
            case ev.NodeTried():
                self._tried(event)
            case ev.NodeCleared():
                self._cleared(event.name)
            case ev.JobStarted():
                here = [name for name, _ in event.nodes if name in self.tried]
                others = [run.task for run in live.values() for name, _ in run.nodes if name in here]
                assert not others, f"{event} starts where {others} run and one at a time may"
            case ev.JobEnded() | ev.AttemptFailed() | ev.AttemptLost() if event.task in live:
                self._over(event, live[event.task])
            case _:
                pass

    def _over(self, event: ev.JobEnded | ev.AttemptFailed | ev.AttemptLost, run: ev.JobStarted) -> None:
        job = event.task >> ARRAY_BITS
        outcome = Outcome.LOST if isinstance(event, ev.AttemptLost) else event.outcome
        if event.blames:
            assert outcome in {Outcome.FAILED, Outcome.LOST}, event
            ((name, _),) = run.nodes
            self.failures.setdefault(name, set()).add(job)
            self.failed_on.setdefault(job, set()).add(name)
        elif outcome is Outcome.COMPLETED:
            for name, _ in run.nodes:
                self.failures.pop(name, None)

    def _suspected(self, event: ev.NodeSuspected, live: Mapping[int, ev.JobStarted]) -> None:
        node, before = event.node, self.suspected.get(event.node.name)
        assert event.until > event.at
        peers = [
            other.name
            for other in self.nodes.values()
            if (other.pool, other.state) == (node.pool, NodeState.UP)
            and other.name != node.name
            and other.name not in self.suspected
        ]
        assert peers, f"{event}: it is the only one of its pool"
        busy = any(node.name in dict(run.nodes) for run in live.values())
        assert node.state is (NodeState.DRAINING if busy else NodeState.DRAINED)
        named = set(map(int, re.findall(r"\d+", node.why)))
        assert named <= self.failures[node.name], f"{event}: of them failed here {self.failures[node.name]}"
        assert all(self.failed_on[job] == {node.name} for job in named), f"{event}: one failed elsewhere, too"
        if before is None:
            assert (len(named), event.strikes) == (3, 1), event
        else:
            assert node.name in self.tried
            assert event.strikes == before.strikes + 1
            self.tried.remove(node.name)
        self.nodes[node.name] = node
        self.suspected[node.name] = event

    def _tried(self, event: ev.NodeTried) -> None:
        name = event.node.name
        elsewhere = any(len(nodes) > 1 and name in nodes for nodes in self.failed_on.values())
        assert event.at >= self.suspected[name].until or elsewhere, f"{event} comes too early"
        self.tried.add(name)
        self.nodes[name] = event.node

    def _cleared(self, name: str) -> None:
        self.failures.pop(name, None)
        self.tried.discard(name)
        if self.suspected.pop(name, None) is not None and self.nodes[name].state is not NodeState.DOWN:
            self.nodes[name] = Node(name, self.nodes[name].pool, (), (), NodeState.UP)
