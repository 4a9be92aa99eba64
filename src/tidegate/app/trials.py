"""`tide lab`, wired: trials of the laboratory on the virtual engine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidegate.engines.virtual import VirtualEngine
from tidegate.journals.memory import Tee
from tidegate.lab.detect import read_counts, trials
from tidegate.lab.modes import trial
from tidegate.lab.workload import TraceError
from tidegate.model.policy import PolicySpec, Tides
from tidegate.wire.policy_file import PolicyError, read_policy

__all__ = ["PolicyError", "TraceError", "detect", "read_policy", "try_modes"]


def detect(counts: Path, column: str, policy: PolicySpec | None, seed: int) -> dict[str, Any]:
    """By the signs of the policy; None: by those of `tide: {}`."""
    tide = Tides() if policy is None else policy.tide
    if tide is None or not tide.arrivals:
        name = policy.name if policy is not None else ""
        raise TraceError(f"policy {name!r} does not look at arrivals; give it a tide that does")
    return trials(read_counts(counts, column), tide, VirtualEngine, Tee, seed)


def try_modes(policy: PolicySpec, seeds: int) -> Iterator[tuple[int, dict[str, Any]]]:
    if policy.tide is None:
        raise TraceError(f"policy {policy.name!r} has no tide, so it has one mode only; give it one")
    for seed in range(1, seeds + 1):
        for row in trial(policy, seed, VirtualEngine, Tee):
            yield seed, row
