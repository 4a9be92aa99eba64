"""Hours of the week, against the calendar of Python."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.policy import HOUR_MS, MINUTE_MS, Hours
from tidegate.policy.calendar import closed_until
from tidegate.wire.hours import format_hours, parse_hours

WORK = (parse_hours("mon-fri 08:00-18:00"),)
hours = st.tuples(st.integers(1, 127), st.integers(0, 1439), st.integers(0, 1440)).filter(lambda one: one[1] != one[2])


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def test_a_week_of_work():
    assert closed_until(WORK, 0, at("2026-11-20T07:59:59.999")) == at("2026-11-20T07:59:59.999")  # a Friday
    assert closed_until(WORK, 0, at("2026-11-20T08:00")) == at("2026-11-20T18:00")
    assert closed_until(WORK, 0, at("2026-11-20T18:00")) == at("2026-11-20T18:00")
    assert closed_until(WORK, 0, at("2026-11-21T12:00")) == at("2026-11-21T12:00")
    assert closed_until(WORK, HOUR_MS, at("2026-11-20T07:30")) == at("2026-11-20T17:00")
    assert closed_until(WORK, -HOUR_MS, at("2026-11-20T08:30")) == at("2026-11-20T08:30")


def test_windows_that_touch_are_one_and_may_go_past_midnight():
    night = (parse_hours("fri 22:00-06:00"), parse_hours("sat 06:00-24:00"))
    assert closed_until(night, 0, at("2026-11-20T23:00")) == at("2026-11-22T00:00")
    assert closed_until(night, 0, at("2026-11-21T05:00")) == at("2026-11-22T00:00")
    assert closed_until(night, 0, at("2026-11-20T05:00")) == at("2026-11-20T05:00")


def test_what_never_opens_has_no_end():
    assert closed_until((parse_hours("mon-sun 00:00-24:00"),), 0, at("2026-11-20T23:00")) is None
    assert closed_until((), 0, 0) is None


@given(st.lists(hours, min_size=1, max_size=3), st.integers(-14 * 60, 14 * 60), st.integers(0, 1 << 42))
def test_it_is_as_the_calendar_says(drawn: list[tuple[int, int, int]], offset_min: int, now: int):
    windows = tuple(Hours(*one) for one in drawn)
    until = closed_until(windows, offset_min * MINUTE_MS, now)
    assert _in_one(windows, offset_min, now) == (until != now)
    if until is not None:
        assert not _in_one(windows, offset_min, until)
        for step in range(8):
            if until > now:
                assert _in_one(windows, offset_min, now + (until - 1 - now) * step // 7)


def _in_one(windows: tuple[Hours, ...], offset_min: int, now: int) -> bool:
    local = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=now, minutes=offset_min)
    for window in windows:
        for back in (0, 1):
            day = (local - timedelta(days=back)).replace(hour=0, minute=0, second=0, microsecond=0)
            start, end = day + timedelta(minutes=window.start), day + timedelta(minutes=window.end)
            end += timedelta(days=1) if window.end <= window.start else timedelta()
            if window.days >> day.weekday() & 1 and start <= local < end:
                return True
    return False


@given(hours)
def test_hours_read_back_as_they_are_written(one: tuple[int, int, int]):
    assert parse_hours(format_hours(Hours(*one)).strip('"')) == Hours(*one)
