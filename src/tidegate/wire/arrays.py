"""The tasks of an array as people write them: `0-999%50`, `1,3,5-9:2`; and back. As light as `units`, and why."""

from tidegate.wire.units import UnitError, is_number

INDICES_MAX = 1 << 20  # ARRAY_TASKS_MAX of the model: an index is below it; a test holds the two together
ARRAY_TEXT_MAX = 1 << 20
RUN_MIN = 3
"""Fewer indices than that in a row are shorter one by one."""


def parse_array(text: str) -> tuple[tuple[int, ...], int]:
    """The indices in order, each once, and how many of them may run at once (0: no bound)."""
    body, percent, at_once = text.partition("%")
    if percent and not (is_number(at_once) and 0 < _number(at_once, text) < INDICES_MAX):
        raise UnitError(f"'%{at_once[:20]}' does not say how many may run at once", "write such as 0-999%50")
    return parse_indices(body, text), int(at_once or 0)


def parse_indices(text: str, whole: str = "") -> tuple[int, ...]:
    """`1,3,5-9:2`, each index once, in order. `whole` is what messages show."""
    whole = whole or text
    if not text.strip():
        raise UnitError("an array is missing", "write its indices, such as 0-99 or 1,3,5-9:2")
    if len(text) > ARRAY_TEXT_MAX:
        raise UnitError("the array is too long a text", "write ranges: 0-99999")
    ranges = [_range(part.strip(), whole) for part in text.split(",")]
    if sum(map(len, ranges)) > INDICES_MAX:
        raise UnitError(f"{_shown(whole)} has more than {INDICES_MAX:,} tasks", "submit several arrays")
    if len(ranges) == 1:
        return tuple(ranges[0])
    return tuple(sorted({index for one in ranges for index in one}))


def _range(part: str, whole: str) -> range:
    span, colon, step = part.partition(":")
    first, dash, last = span.partition("-")
    if not (is_number(first) and (not dash or is_number(last)) and (not colon or (dash and is_number(step)))):
        raise UnitError(
            f"{_shown(part)} in {_shown(whole)} is no index or range", "write whole numbers: 0-99, or 1,3,5-9:2"
        )
    low, high = _number(first, whole), _number(last if dash else first, whole)
    by = _number(step, whole) if colon else 1
    if by == 0:
        raise UnitError(f"the step of {_shown(part)} is 0", "write a step of 1 or more")
    if high < low:
        raise UnitError(f"{_shown(part)} ends before it begins", f"write {high}-{low}")
    if high >= INDICES_MAX:
        raise UnitError(f"index {high} is too large", f"write indices below {INDICES_MAX:,}")
    return range(low, high + 1, by)


def _number(digits: str, whole: str) -> int:
    if len(digits) > 12:
        raise UnitError(f"a number in {_shown(whole)} is too large", f"write indices below {INDICES_MAX:,}")
    return int(digits)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def format_indices(indices: "tuple[int, ...] | list[int]") -> str:
    """The short text that `parse_indices` reads as these, which are in order: `0-9,12`, `0-998:2`."""
    parts = []
    at, count = 0, len(indices)
    while at < count:
        end = at + 1
        step = indices[end] - indices[at] if end < count else 0
        while end < count and indices[end] - indices[end - 1] == step:
            end += 1
        if end - at >= RUN_MIN or (step == 1 and end - at == 2):
            parts.append(f"{indices[at]}-{indices[end - 1]}" + (f":{step}" if step > 1 else ""))
            at = end
        else:
            parts.append(str(indices[at]))
            at += 1
    return ",".join(parts)
