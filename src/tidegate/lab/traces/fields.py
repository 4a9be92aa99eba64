"""Single fields of a line: numbers and times, with bounds, and what to raise when they are none."""

import math
from datetime import UTC, datetime, timedelta

from tidegate.lab.workload import Kind

SECONDS_MAX = 100 * 366 * 86_400
"""No time of a trace is longer or later than a century; more is a damaged number."""
COUNT_MAX = 1 << 31
AMOUNT_MAX = 1 << 50
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
QUOTED_MAX = 40


class BadLineError(Exception):
    """This line is wrong."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class LeftOutError(Exception):
    """This line is right, and a rule leaves it out."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.kind = kind


def quoted(text: str) -> str:
    """Short, and without what a terminal would obey."""
    return repr(text if len(text) <= QUOTED_MAX else text[:QUOTED_MAX] + "…")


def number(text: str, what: str) -> int | float:
    """A finite number; an int where it is written as one."""
    if "_" not in text:  # Python reads 12_3 as 123, and array ids of Slurm look like that
        try:
            return int(text)
        except ValueError:
            pass
        try:
            value = float(text)
        except ValueError:
            pass
        else:
            if math.isfinite(value):
                return value
    raise BadLineError(Kind.UNREADABLE, f"{what} is no number: {quoted(text)}")


def count(text: str, what: str, most: int = COUNT_MAX) -> int:
    """A whole number, rounded; unknown (-1) and other negative ones pass."""
    value = number(text, what)
    if abs(value) > most:
        raise BadLineError(Kind.OUT_OF_RANGE, f"{what} is {quoted(text)}, more than anything real")
    return round(value)


def seconds_ms(text: str, what: str) -> int:
    """Seconds as milliseconds; negative ones pass, they may mean "unknown"."""
    value = number(text, what)
    if abs(value) > SECONDS_MAX:
        raise BadLineError(Kind.OUT_OF_RANGE, f"{what} is {quoted(text)} seconds, more than a century")
    return round(value * 1000)


def time_ms(text: str, what: str) -> int:
    """As `seconds_ms`, and negative is an error."""
    ms = seconds_ms(text, what)
    if ms < 0:
        raise BadLineError(Kind.NEGATIVE_TIME, f"{what} is {quoted(text)}")
    return ms


def calendar_ms(text: str, what: str) -> int:
    """A date and time as milliseconds since 1970. Local times are taken as they stand."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise BadLineError(Kind.UNREADABLE, f"{what} is no date and time: {quoted(text)}") from None
    try:
        ms = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - EPOCH) // MILLISECOND
    except OverflowError:  # an offset that leaves the calendar
        ms = -1
    if ms < 0:
        raise BadLineError(Kind.NEGATIVE_TIME, f"{what} lies before 1970: {quoted(text)}")
    if ms > SECONDS_MAX * 1000:
        raise BadLineError(Kind.OUT_OF_RANGE, f"{what} lies too far ahead: {quoted(text)}")
    return ms


def calendar_text(ms: int) -> str:
    return (EPOCH + ms * MILLISECOND).replace(tzinfo=None).isoformat(" ")
