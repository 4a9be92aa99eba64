"""Durations and sizes: what is read, what is refused and with which cure, and that writing undoes reading."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.base import FOREVER_MS
from tidegate.wire.units import (
    DURATION_MAX_MS,
    SIZE_MAX_MIB,
    UnitError,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)

HOUR_MS = 3_600_000


def test_the_longest_duration_is_for_ever():
    assert DURATION_MAX_MS == FOREVER_MS


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("0s", 0),
        ("250ms", 250),
        ("90s", 90_000),
        ("15m", 900_000),
        ("2h", 2 * HOUR_MS),
        ("1d", 24 * HOUR_MS),
        ("1d12h", 36 * HOUR_MS),
        ("2w", 14 * 24 * HOUR_MS),
        ("1w1d1h1m1s1ms", 694_861_001),
        ("90m30s", 5_430_000),
    ],
)
def test_durations_are_read(text: str, ms: int):
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("", "write one"),
        (" ", "write one"),
        ("90", "90s, 90m or 90h"),
        ("-5m", "0 or more"),
        ("01:30:00", "1h30m"),
        ("1.5h", "1h30m"),
        ("1,5h", "1h30m"),
        ("1d 12h", "without spaces"),
        ("2H", "small letters: 2h"),
        ("3min", "use one of w, d, h, m, s, ms"),
        ("5m1h", "largest unit first"),
        ("1h1h", "largest unit first"),
        ("h", "such as 90s"),
        ("soon", "such as 90s"),
        ("٣h", "such as 90s"),
        ("9" * 30 + "d", "at most"),
        ("9" * 5000 + "s", "such as 90s"),
    ],
)
def test_a_bad_duration_says_what_to_write(text: str, cure: str):
    with pytest.raises(UnitError) as caught:
        parse_duration(text)
    assert cure in caught.value.cure
    assert len(str(caught.value)) < 200


def test_only_a_signed_duration_may_be_negative():
    assert parse_duration("-1d12h", signed=True) == -36 * HOUR_MS
    assert parse_duration("-0", signed=True) == 0
    with pytest.raises(UnitError, match="is not a duration"):
        parse_duration("--1h", signed=True)


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0s"), (1, "1ms"), (36 * HOUR_MS, "1d12h"), (-72 * HOUR_MS, "-3d"), (14 * 24 * HOUR_MS, "14d")],
)
def test_durations_are_written(ms: int, text: str):
    assert format_duration(ms) == text


@given(st.integers(-DURATION_MAX_MS, DURATION_MAX_MS))
def test_a_written_duration_reads_back(ms: int):
    assert parse_duration(format_duration(ms), signed=True) == ms


@given(st.text(max_size=60))
def test_any_text_is_a_duration_or_a_unit_error(text: str):
    for read in (parse_duration, parse_size):
        try:
            value = read(text)
        except UnitError:
            continue
        assert 0 <= value <= DURATION_MAX_MS


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("0", 0),
        ("512M", 512),
        ("512MiB", 512),
        ("4G", 4096),
        ("4Gi", 4096),
        ("1.5G", 1536),
        ("1.50T", 3 << 19),
        ("2T", 1 << 21),
        ("1P", 1 << 30),
    ],
)
def test_sizes_are_read(text: str, mib: int):
    assert parse_size(text) == mib


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("", "write one"),
        ("512", "512M or 512G"),
        ("4GB", "4G, of 1024"),
        ("100K", "whole MiB"),
        ("100B", "whole MiB"),
        ("1.3G", "1331M or 1332M"),
        ("0.5M", "0M or 1M"),
        ("1.G", "such as 512M"),
        (".5G", "such as 512M"),
        ("1,5G", "such as 512M"),
        ("1.5", "such as 512M"),
        ("-1G", "0 or more"),
        ("1G512M", "one number"),
        ("4g", "one number"),
        ("9" * 20 + "T", "at most 4096P"),
    ],
)
def test_a_bad_size_says_what_to_write(text: str, cure: str):
    with pytest.raises(UnitError) as caught:
        parse_size(text)
    assert cure in caught.value.cure


@given(st.integers(0, SIZE_MAX_MIB))
def test_a_written_size_reads_back(mib: int):
    assert parse_size(format_size(mib)) == mib
