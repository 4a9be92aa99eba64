"""Durations and sizes as people write them: `1d12h` is milliseconds, `4G` is MiB; and back."""

import re

from tidegate.model.base import FOREVER_MS

DURATION_UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
DURATION_MAX_MS = FOREVER_MS
SIZE_UNITS_MIB = {"M": 1, "G": 1 << 10, "T": 1 << 20, "P": 1 << 30}
SIZE_MAX_MIB = 1 << 42
TEXT_MAX = 40
"""Longer is no duration or size; so no text makes the parser work, or a message long."""

_PARTS = re.compile(r"(?:\d+[a-z]+)+")
_PART = re.compile(r"(\d+)([a-z]+)")
_CLOCK = re.compile(r"-?\d+(?::\d+)+")
_DECIMAL = re.compile(r"-?\d*[.,]\d*\s?[A-Za-z]*")
_SIZE = re.compile(r"(\d+)(?:([MGTP])(?:i?B?)|([KkBb]\w*))")


class UnitError(ValueError):
    """What is wrong with the text, and what to write instead."""

    def __init__(self, message: str, cure: str) -> None:
        super().__init__(f"{message}; {cure}")
        self.message = message
        self.cure = cure


def parse_duration(text: str, *, signed: bool = False) -> int:
    """Milliseconds. Parts go from the largest unit down, each unit once: `1d12h`, `90s`, `250ms`, `0`."""
    body = text.removeprefix("-") if signed else text
    if body == "0":
        return 0
    if len(text) > TEXT_MAX or not _PARTS.fullmatch(body) or not body.isascii():
        raise _bad_duration(text, signed=signed)
    total, smallest = 0, DURATION_MAX_MS
    for number, unit in _PART.findall(body):
        unit_ms = DURATION_UNITS_MS.get(unit)
        if unit_ms is None:
            raise UnitError(f"{unit!r} is no unit of time", f"use one of {', '.join(DURATION_UNITS_MS)}")
        if unit_ms >= smallest:
            raise UnitError(f"the parts of {text!r} are out of order", "write the largest unit first, each unit once")
        smallest = unit_ms
        total += int(number) * unit_ms
    if total > DURATION_MAX_MS:
        raise UnitError(f"{text!r} is too long", f"write at most {format_duration(DURATION_MAX_MS)}")
    return -total if body != text else total


def _bad_duration(text: str, *, signed: bool) -> UnitError:
    if not text or text.isspace():
        return UnitError("a duration is missing", "write one, such as 90s, 15m, 2h or 1d12h")
    shown = repr(text[:TEXT_MAX])
    if text.isdecimal() and text.isascii():
        return UnitError(f"{shown} has no unit", f"write {text[:12]}s, {text[:12]}m or {text[:12]}h")
    if text.startswith("-") and not signed:
        return UnitError(f"{shown} is negative", "write a duration of 0 or more")
    if _CLOCK.fullmatch(text):
        return UnitError(f"{shown} is written as a clock", "write 1h30m for one hour and a half")
    if _DECIMAL.fullmatch(text):
        return UnitError(f"{shown} is not a whole number", "write smaller units: 1h30m for one hour and a half")
    if " " in text:
        return UnitError(f"{shown} is not a duration", "write it without spaces: 1d12h")
    if text.lower() != text and _PARTS.fullmatch(text.lower()):
        return UnitError(f"{shown} is not a duration", f"write the unit in small letters: {text.lower()}")
    return UnitError(f"{shown} is not a duration", "write one such as 90s, 15m, 2h or 1d12h")


def format_duration(ms: int) -> str:
    """The shortest text that `parse_duration` reads as `ms`, in days and below."""
    if ms == 0:
        return "0s"
    text, left = "", abs(ms)
    for unit, unit_ms in DURATION_UNITS_MS.items():
        if unit == "w":  # people count the days of a queue: 14d says more than 2w
            continue
        number, left = divmod(left, unit_ms)
        if number:
            text += f"{number}{unit}"
    return f"-{text}" if ms < 0 else text


def parse_size(text: str) -> int:
    """MiB. One number and M, G, T or P; they are powers of 1024, so `4G` and `4GiB` are the same."""
    if text == "0":
        return 0
    found = _SIZE.fullmatch(text) if len(text) <= TEXT_MAX and text.isascii() else None
    if found is None:
        raise _bad_size(text)
    number, unit, small = found.groups()
    if small is not None:
        raise UnitError(f"{text!r} is finer than memory is counted", "write whole MiB, such as 512M")
    if text.endswith(unit + "B"):
        raise UnitError(f"{text!r} could be powers of 1000 or of 1024", f"write {number}{unit}, of 1024")
    size = int(number) * SIZE_UNITS_MIB[unit]
    if size > SIZE_MAX_MIB:
        raise UnitError(f"{text!r} is too large", f"write at most {format_size(SIZE_MAX_MIB)}")
    return size


def _bad_size(text: str) -> UnitError:
    if not text or text.isspace():
        return UnitError("a size is missing", "write one, such as 512M or 4G")
    shown = repr(text[:TEXT_MAX])
    if text.isdecimal() and text.isascii():
        return UnitError(f"{shown} has no unit", f"write {text[:12]}M or {text[:12]}G")
    if text.startswith("-"):
        return UnitError(f"{shown} is negative", "write a size of 0 or more")
    if _DECIMAL.fullmatch(text):
        return UnitError(f"{shown} is not a whole number", "write a smaller unit: 1536M for one G and a half")
    return UnitError(f"{shown} is not a size", "write one number and M, G, T or P, such as 512M or 4G")


def format_size(mib: int) -> str:
    """The shortest text that `parse_size` reads as `mib`."""
    unit, factor = "M", 1
    for larger, its_factor in SIZE_UNITS_MIB.items():
        if mib and mib % its_factor == 0:
            unit, factor = larger, its_factor
    return f"{mib // factor}{unit}"
