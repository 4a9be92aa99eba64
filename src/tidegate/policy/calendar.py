"""Hours of the week without a calendar: milliseconds since 1970 (a Thursday, in UTC) and a fixed offset are enough.

Summer time is not known here: whose closed hours follow it changes the offset twice a year.
"""

from tidegate.model.policy import MINUTE_MS, Hours

DAY_MIN = 1440
WEEK_MIN = 7 * DAY_MIN
EPOCH_MIN = 3 * DAY_MIN
"""1970 began on the fourth day of a week."""
OPENINGS_MAX = 100
"""So many windows, one into the other, are followed; more of them have no end."""


def closed_until(windows: tuple[Hours, ...], utc_offset_ms: int, at: int) -> int | None:
    """When the hours end that `at` is in: `at` itself if it is in none; None: they have no end."""
    if not windows:
        return None
    until = at
    for _ in range(OPENINGS_MAX):
        left = max(_left_ms(window, until + utc_offset_ms) for window in windows)
        if not left:
            return until
        until += left
    return None


def _left_ms(window: Hours, local_ms: int) -> int:
    """How long the window goes on; 0: it is not open. It may have begun the day before."""
    minute, within_ms = divmod(local_ms, MINUTE_MS)
    minute += EPOCH_MIN
    today = minute // DAY_MIN % 7
    length = (window.end - window.start) % DAY_MIN or DAY_MIN
    for day in (today, (today - 1) % 7):
        past = (minute - day * DAY_MIN - window.start) % WEEK_MIN
        if window.days >> day & 1 and past < length:
            return (length - past) * MINUTE_MS - within_ms
    return 0
