"""Bounds as people write them: `cpus: 40`, `gpus: 8`, `memory: 512G`, `gpus: 25%`; and back."""

from tidegate.model.jobs import CPUS, GPUS, MEMORY
from tidegate.model.policy import PART_BITS, Bound
from tidegate.wire.units import UnitError, format_size, is_number, parse_size

MILLI = 1000
DIGITS_MAX = 15
ALL = 1 << PART_BITS


def parse_bound(resource: str, text: str) -> Bound:
    if text.endswith("%"):
        return Bound(resource, part=_part(text))
    if resource == MEMORY:
        return Bound(resource, parse_size(text))
    if resource in {CPUS, GPUS}:
        return Bound(resource, _milli(resource, text))
    if not is_number(text) or len(text) > DIGITS_MAX:
        raise UnitError(f"{text[:40]!r} is no number of {resource}", "write a whole number, or a part such as 25%")
    return Bound(resource, int(text))


def _part(text: str) -> int:
    found = _decimal(text[:-1])
    if found is None or found[0] > 100 * found[1]:
        raise UnitError(f"{text[:40]!r} is no part of the whole", "write 0% to 100%, such as 25% or 12.5%")
    number, unit = found
    return (number * ALL + 50 * unit) // (100 * unit)


def _milli(resource: str, text: str) -> int:
    found = _decimal(text)
    if found is None or found[0] * MILLI % found[1]:
        raise UnitError(
            f"{text[:40]!r} is no number of {resource}", "write one such as 40 or 0.5, or a part such as 25%"
        )
    return found[0] * MILLI // found[1]


def _decimal(text: str) -> tuple[int, int] | None:
    """`12.5` as (125, 10)."""
    whole, point, rest = text.partition(".")
    if not is_number(whole) or (point and not is_number(rest)) or len(text) > DIGITS_MAX:
        return None
    return int(whole + rest), 10 ** len(rest)


def format_bound(bound: Bound) -> str:
    """The shortest text that reads as the same."""
    if bound.part:
        for places in range(7):
            unit = 10**places
            number = (bound.part * 100 * unit + ALL // 2) // ALL
            if (number * ALL + 50 * unit) // (100 * unit) == bound.part:
                return f"{_written(number, places)}%"
    if bound.resource == MEMORY:
        return format_size(bound.amount) if bound.amount else "0"
    if bound.resource in {CPUS, GPUS}:
        places = 0 if bound.amount % MILLI == 0 else 3
        return _written(bound.amount // 10 ** (3 - places), places)
    return str(bound.amount)


def _written(number: int, places: int) -> str:
    text = str(number).rjust(places + 1, "0")
    return f"{text[:-places]}.{text[-places:]}".rstrip("0").rstrip(".") if places else text
