"""What people write as values of options: each reader gives what the server is told, or a ValueError with the cure."""

import sys
import time

from tidegate.cli.options import decimal, whole
from tidegate.wire.units import is_number, parse_duration

NAME_MAX = 200
JOB_MAX = 1 << 40
PATTERN_MARKS = "jatxu%"
RETRY_KINDS = ("exit", "signal", "oom", "timeout")
CODE_MAX = 255
YEARS_MAX_MS = 1 << 52
DAY_MS = 86_400_000


def cpus(text: str) -> float:
    number = decimal(text)
    if number <= 0:
        raise ValueError(f"{text} is too little; write a number above 0, such as 4 or 0.5")
    if round(number * 1000) != number * 1000:
        raise ValueError(f"{text} is finer than processors are counted; write at most three decimals")
    return number


def time_limit(text: str) -> int:
    limit_ms = parse_duration(text)
    if limit_ms == 0:
        raise ValueError("a job that may run for no time never does anything; write such as 90s, 2h or 1d12h")
    return limit_ms


def name(text: str) -> str:
    if not text or len(text) > NAME_MAX or not text.isprintable():
        raise ValueError(f"{text[:40]!r} is no name; write 1 to {NAME_MAX} printable characters")
    return text


def job_number(text: str) -> int:
    if not is_number(text) or len(text) > 13 or not 0 < int(text) < JOB_MAX:
        raise ValueError(f"{text[:40]!r} is no job; write its number, as tide submit printed it")
    return int(text)


def afters(text: str) -> list[dict[str, object]]:
    """`12`, `12:any`, `12,13:fail`."""
    found: list[dict[str, object]] = []
    for part in text.split(","):
        job, colon, kind = part.strip().partition(":")
        if "[" in job or "_" in job:
            raise ValueError(f"{part!r} is one task; wait for the whole array: {job.split('[')[0].split('_')[0]}")
        if colon and kind not in {"ok", "any", "fail"}:
            raise ValueError(f"{part[:40]!r} has no such end; write {job[:20]}:ok, {job[:20]}:any or {job[:20]}:fail")
        found.append({"job": job_number(job), "kind": kind or "ok"})
    return found


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"{text[:40]!r} has no name and value; write NAME=VALUE")
    return key, value


def labels(text: str) -> tuple[str, list[str]]:
    label, value = pair(text)
    values = [one for one in value.split(",") if one]
    if not values:
        raise ValueError(f"{text[:40]!r} names no value; write LABEL=VALUE, or LABEL=VALUE,VALUE for any of them")
    return label, values


def resource(text: str) -> tuple[str, int]:
    kind, value = pair(text)
    return kind, whole(value)


def pattern(text: str) -> str:
    """A path whose marks the server fills in."""
    at = text.find("%")
    while at >= 0:
        mark = text[at + 1 : at + 2]
        if not mark or mark not in PATTERN_MARKS:
            raise ValueError(
                f"%{mark} means nothing; write %j (job), %a (array index), %t (attempt), %x (name), %u (user), "
                "or %% for a percent sign"
            )
        at = text.find("%", at + 2)
    if not text or "\0" in text:
        raise ValueError("a path is missing; write one, such as logs/%j.out")
    return text


def retry_rules(text: str) -> list[str]:
    """`exit:75,exit:100-110,signal:9,oom,timeout`."""
    rules = []
    for part in text.split(","):
        kind, colon, codes = part.strip().partition(":")
        low, dash, high = codes.partition("-")
        if kind not in RETRY_KINDS or (colon and kind not in {"exit", "signal"}):
            raise ValueError(
                f"{part[:40]!r} is no kind of end; write exit, exit:75, exit:100-110, signal, signal:9, oom or timeout"
            )
        if colon and not (_code(low) and (not dash or (_code(high) and int(low) <= int(high)))):
            raise ValueError(f"{part[:40]!r} has no codes from 1 to {CODE_MAX}; write such as exit:75 or exit:100-110")
        rules.append(part.strip())
    return rules


def _code(text: str) -> bool:
    return is_number(text) and len(text) < 4 and 0 < int(text) <= CODE_MAX


def moment(text: str, now_ms: int | None = None) -> int:
    """Milliseconds since 1970 of `+2h`, `14:30` (the next one), `2026-11-20T08:00` (local, or with its zone)."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    if text.startswith("+"):
        at = now + parse_duration(text[1:])
    elif len(text) <= 8 and all(is_number(part) for part in text.split(":")) and ":" in text:
        at = _next_clock(text, now)
    else:
        at = _calendar(text)
    if not 0 < at < YEARS_MAX_MS:
        raise ValueError(f"{text[:40]!r} is too far away; write a time of this century")
    return at


def _next_clock(text: str, now: int) -> int:
    """The next time that clocks here show this."""
    parts = [int(part) for part in text.split(":")]
    if len(parts) > 3 or parts[0] > 23 or max(parts[1:]) > 59:
        raise _no_moment(text)
    today = time.localtime(now / 1000)
    hour, minute, second = (*parts, 0)[:3]
    for day in (today.tm_mday, today.tm_mday + 1):
        at = int(time.mktime((today.tm_year, today.tm_mon, day, hour, minute, second, 0, 0, -1)) * 1000)
        if at > now:
            return at
    return now + DAY_MS  # a clock that was put back at midnight


def _calendar(text: str) -> int:
    from datetime import datetime

    try:
        if len(text) > 40:
            raise _no_moment(text)
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)  # one without a zone is local
    except (ValueError, OverflowError, OSError):
        raise _no_moment(text) from None


def _no_moment(text: str) -> ValueError:
    return ValueError(f"{text[:40]!r} is no time; write +2h, 14:30 or 2026-11-20T08:00")


def octets_of(path: str, at_most: int) -> bytes:
    """Of a file that an argument names; `-` is standard input."""
    if path == "-":
        return sys.stdin.buffer.read(at_most)
    with open(path, "rb") as stream:
        return stream.read(at_most)
