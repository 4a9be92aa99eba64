"""Arrays: one record says where all tasks stand, and these functions give the next one.

A task has its turn in the order of the indices. One that waits again, or ended before its turn, is named in the
record; all others follow from a count.
"""

from bisect import bisect_left
from collections.abc import Iterator

from tidegate.world.records import ArrayState

Indices = tuple[int, ...]
"""Sorted."""


def started(state: ArrayState, indices: Indices, index: int) -> ArrayState:
    at, returned, skipped = state.started, state.returned, state.skipped
    if holds(returned, index):
        returned = without(returned, index)
    else:
        assert indices[at] == index, "tasks of an array start in order"
        at, skipped = _next_turn(indices, at + 1, skipped)
    return ArrayState(at, returned, state.running + 1, state.ended, state.failed, state.resting, skipped)


def ended(state: ArrayState, indices: Indices, index: int, *, ran: bool, failed: bool) -> ArrayState:
    at, returned, running, resting, skipped = (
        state.started, state.returned, state.running, state.resting, state.skipped,
    )  # fmt: skip
    if ran:
        running -= 1
    elif holds(returned, index):
        returned = without(returned, index)
    elif holds(resting, index):
        resting = without(resting, index)
    elif indices[at] == index:
        at, skipped = _next_turn(indices, at + 1, skipped)
    else:
        skipped = along_with(skipped, index)
    return ArrayState(at, returned, running, state.ended + 1, state.failed or failed, resting, skipped)


def waits_again(state: ArrayState, index: int, *, rests: bool) -> ArrayState:
    """A task that ran does so, at once or after a rest."""
    returned, resting = state.returned, state.resting
    if rests:
        resting = along_with(resting, index)
    else:
        returned = along_with(returned, index)
    return ArrayState(state.started, returned, state.running - 1, state.ended, state.failed, resting, state.skipped)


def rested(state: ArrayState, index: int) -> ArrayState:
    returned, resting = along_with(state.returned, index), without(state.resting, index)
    return ArrayState(state.started, returned, state.running, state.ended, state.failed, resting, state.skipped)


def dropped(state: ArrayState, tasks: int) -> ArrayState:
    """All that waited have ended."""
    return ArrayState(tasks, (), state.running, state.ended + state.waiting(tasks), True, (), ())


def is_waiting(state: ArrayState, indices: Indices, index: int) -> bool:
    if holds(state.returned, index) or holds(state.resting, index):
        return True
    at = bisect_left(indices, index)
    return state.started <= at < len(indices) and indices[at] == index and not holds(state.skipped, index)


def turns(state: ArrayState, indices: Indices) -> Iterator[int]:
    """The tasks that wait for nothing but their turn, in order. One pass takes few of them, so it is lazy."""
    yield from state.returned
    skipped, passed = state.skipped, 0
    for at in range(state.started, len(indices)):
        index = indices[at]
        if passed < len(skipped) and skipped[passed] == index:
            passed += 1
        else:
            yield index


def _next_turn(indices: Indices, at: int, skipped: Indices) -> tuple[int, Indices]:
    """The first place from `at` on that was not skipped, and what is skipped behind it."""
    passed = 0
    while passed < len(skipped) and skipped[passed] == indices[at]:
        passed += 1
        at += 1
    return at, skipped[passed:] if passed else skipped


# -- sorted tuples -----------------------------------------------------------------------------------------


def holds(several: Indices, index: int) -> bool:
    if not several:
        return False
    at = bisect_left(several, index)
    return at < len(several) and several[at] == index


def along_with(several: Indices, index: int) -> Indices:
    if not several or several[-1] < index:
        return (*several, index)
    at = bisect_left(several, index)
    return (*several[:at], index, *several[at:])


def without(several: Indices, index: int) -> Indices:
    at = bisect_left(several, index)
    return several[:at] + several[at + 1 :]
