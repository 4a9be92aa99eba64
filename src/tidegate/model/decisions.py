"""What one cycle chose. It becomes events before anything acts on it."""

from tidegate.model.base import Value
from tidegate.model.events import CycleRan, HaltRequested, JobResumed, JobStarted, JobSuspended


class Plan(Value, frozen=True, gc=False):
    cycle: CycleRan
    starts: tuple[JobStarted, ...]
    halts: tuple[HaltRequested | JobSuspended, ...] = ()  # who makes room
    resumes: tuple[JobResumed, ...] = ()  # who goes on
