"""Hours of the week as people write them: `mon-fri 08:00-18:00`, `sat,sun 00:00-24:00`; and back."""

from tidegate.model.policy import Hours
from tidegate.wire.units import UnitError, is_number

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MIN = 1440
TEXT_MAX = 60


def parse_hours(text: str) -> Hours:
    days, _, clock = text.strip().lower().partition(" ")
    start, _, end = clock.strip().partition("-")
    found = Hours(_days(days), _minute(start), _minute(end)) if len(text) <= TEXT_MAX else Hours(0, -1, -1)
    if not found.days or min(found.start, found.end) < 0 or found.start in {found.end, DAY_MIN}:
        raise UnitError(f"{text[:TEXT_MAX]!r} is no hours of a week", "write such as mon-fri 08:00-18:00")
    return found


def _days(text: str) -> int:
    """As bits; 0: there is a mistake."""
    bits = 0
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            return 0
        low = DAYS.index(first)
        days = (DAYS.index(last) - low) % 7 if dash else 0  # fri-mon goes over the end of the week
        for day in range(days + 1):
            bits |= 1 << (low + day) % 7
    return bits


def _minute(text: str) -> int:
    """Of the day; below 0: there is a mistake."""
    hour, _, minute = text.partition(":")
    if not (is_number(hour) and is_number(minute) and len(hour) < 3 and len(minute) == 2):
        return -1
    at = int(hour) * 60 + int(minute)
    return at if int(minute) < 60 and at <= DAY_MIN else -1


def format_hours(hours: Hours) -> str:
    """As it stands in a list of a policy file."""
    text = f"{_written(hours.days)} {_clock(hours.start)}-{_clock(hours.end)}"
    return f'"{text}"' if "," in text else text


def _written(bits: int) -> str:
    days = [day for day in range(7) if bits >> day & 1]
    if len(days) > 1 and days[-1] - days[0] == len(days) - 1:
        return f"{DAYS[days[0]]}-{DAYS[days[-1]]}"
    return ",".join(DAYS[day] for day in days)


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
