"""Durations and sizes as people write them: `1d12h` is milliseconds, `4G` is MiB; and back.

Clients read these before they say anything, so nothing is imported here: `re` alone takes as long as the interpreter.
"""

DURATION_UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
DURATION_MAX_MS = 1 << 60  # FOREVER_MS of the model; a test holds the two together
SIZE_UNITS_MIB = {"M": 1, "G": 1 << 10, "T": 1 << 20, "P": 1 << 30}
SIZE_MAX_MIB = 1 << 42
TEXT_MAX = 40
"""Longer is no duration or size; so no text makes the parser work, or a message long."""

DIGITS = "0123456789"


class UnitError(ValueError):
    """What is wrong with the text, and what to write instead."""

    def __init__(self, message: str, cure: str) -> None:
        super().__init__(f"{message}; {cure}")
        self.message = message
        self.cure = cure


def is_number(text: str) -> bool:
    """Whether it is one or more digits, as a person types them."""
    return text.isascii() and text.isdigit()


def parse_duration(text: str, *, signed: bool = False) -> int:
    """Milliseconds. Parts go from the largest unit down, each unit once: `1d12h`, `90s`, `250ms`, `0`."""
    body = text.removeprefix("-") if signed else text
    if body == "0":
        return 0
    parts = _parts(body) if len(text) <= TEXT_MAX else []
    if not parts:
        raise _bad_duration(text, signed=signed)
    total, smallest = 0, DURATION_MAX_MS
    for number, unit in parts:
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


def _parts(text: str) -> list[tuple[str, str]]:
    """`1d12h` as (1, d), (12, h); nothing where it is not digits and small letters in turn."""
    parts = []
    at = 0
    while at < len(text):
        digits = _span(text, at, DIGITS)
        letters = _span(text, digits, "abcdefghijklmnopqrstuvwxyz")
        if not at < digits < letters:
            return []
        parts.append((text[at:digits], text[digits:letters]))
        at = letters
    return parts


def _span(text: str, at: int, among: str) -> int:
    """Where the run of characters `among` these that begins at `at` ends."""
    while at < len(text) and text[at] in among:
        at += 1
    return at


def _bad_duration(text: str, *, signed: bool) -> UnitError:
    if not text or text.isspace():
        return UnitError("a duration is missing", "write one, such as 90s, 15m, 2h or 1d12h")
    shown = repr(text[:TEXT_MAX])
    if is_number(text):
        return UnitError(f"{shown} has no unit", f"write {text[:12]}s, {text[:12]}m or {text[:12]}h")
    if text.startswith("-") and not signed:
        return UnitError(f"{shown} is negative", "write a duration of 0 or more")
    if ":" in text and all(is_number(part) for part in text.removeprefix("-").split(":")):
        return UnitError(f"{shown} is written as a clock", "write 1h30m for one hour and a half")
    if _decimal(text) is not None:
        return UnitError(f"{shown} is not a whole number", "write smaller units: 1h30m for one hour and a half")
    if " " in text:
        return UnitError(f"{shown} is not a duration", "write it without spaces: 1d12h")
    if len(text) <= TEXT_MAX and text.lower() != text and _parts(text.lower()):
        return UnitError(f"{shown} is not a duration", f"write the unit in small letters: {text.lower()}")
    return UnitError(f"{shown} is not a duration", "write one such as 90s, 15m, 2h or 1d12h")


def _decimal(text: str) -> tuple[str, str, str] | None:
    """`1.5 G` as (1, 5, G): the digits before and after the point, or comma, and the unit."""
    body = text.removeprefix("-")
    whole = _span(body, 0, DIGITS)
    if body[whole : whole + 1] not in {".", ","}:
        return None
    end = _span(body, whole + 1, DIGITS)
    unit = body[end:].removeprefix(" ")
    return (body[:whole], body[whole + 1 : end], unit) if not unit or unit.isalpha() else None


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
    """MiB. One number and M, G, T or P; they are powers of 1024, so `4G` and `4GiB` are the same. `1.5T` will do."""
    if text == "0":
        return 0
    digits = _span(text, 0, DIGITS)
    point = _decimal(text) if not text.startswith("-") and "." in text else None
    number, fraction, unit = point or (text[:digits], "", text[digits:])
    if len(text) > TEXT_MAX or not number or not unit or (point and not fraction):
        raise _bad_size(text)
    if unit[0] in "KkBb":
        raise UnitError(f"{text!r} is finer than memory is counted", "write whole MiB, such as 512M")
    if unit[0] not in SIZE_UNITS_MIB or unit[1:] not in {"", "i", "B", "iB"}:
        raise _bad_size(text)
    if unit[1:] == "B":
        raise UnitError(f"{text!r} could be powers of 1000 or of 1024", f"write {text[:-1]}, of 1024")
    size, rest = divmod(int(number + fraction) * SIZE_UNITS_MIB[unit[0]], int("1" + "0" * len(fraction)))
    if rest:
        raise UnitError(f"{text!r} is not a whole number of MiB", f"write {size}M or {size + 1}M")
    if size > SIZE_MAX_MIB:
        raise UnitError(f"{text!r} is too large", f"write at most {format_size(SIZE_MAX_MIB)}")
    return size


def _bad_size(text: str) -> UnitError:
    if not text or text.isspace():
        return UnitError("a size is missing", "write one, such as 512M or 4G")
    shown = repr(text[:TEXT_MAX])
    if is_number(text):
        return UnitError(f"{shown} has no unit", f"write {text[:12]}M or {text[:12]}G")
    if text.startswith("-"):
        return UnitError(f"{shown} is negative", "write a size of 0 or more")
    return UnitError(f"{shown} is not a size", "write one number and M, G, T or P, such as 512M, 4G or 1.5T")


def format_size(mib: int) -> str:
    """The shortest text that `parse_size` reads as `mib`, in whole units."""
    unit, factor = "M", 1
    for larger, its_factor in SIZE_UNITS_MIB.items():
        if mib and mib % its_factor == 0:
            unit, factor = larger, its_factor
    return f"{mib // factor}{unit}"
