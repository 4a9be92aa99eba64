"""Words of Slurm: times, sizes, signals, and how they are written back."""

import pwd
import re
import signal
from datetime import datetime, timedelta

SECOND_MS = 1000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000
OPTION_FAULT = 255
UNLIMITED = -1

MEMORY = re.compile(r"(\d+)([KMGTkmgt]?)[Bb]?\Z")
WHEN = re.compile(r"(?:(\d{4})-(\d\d?)-(\d\d?)|(\d\d?)[/.]?(\d\d)(?:[/.]?(\d\d))?)\Z")
CLOCK = re.compile(r"(\d\d?):(\d\d)(?::(\d\d)(?:\.\d+)?)?\s*([AaPp][Mm])?\Z")
COUNT = re.compile(r"(\d+)\s*(seconds?|minutes?|hours?|days?|weeks?|)\Z")
NAMED = {"midnight": 0, "elevenses": 11, "noon": 12, "fika": 15, "teatime": 16}


class FaultError(Exception):
    """What is written to standard error, with the exit code."""

    def __init__(self, text: str, code: int = 1, out: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        self.out = out


def fault(command: str, *lines: str, code: int = 1) -> FaultError:
    return FaultError("".join(f"{command}: error: {line}\n" for line in lines), code)


# -- durations -----------------------------------------------------------------------------------------------


def limit_ms(text: str) -> int:
    """`M`, `M:S`, `H:M:S`, `D-H`, `D-H:M`, `D-H:M:S`; UNLIMITED; ValueError."""
    plain = text.strip()
    if plain.lower() in {"unlimited", "infinite", "-1"}:
        return UNLIMITED
    days, dash, rest = plain.partition("-")
    if not dash:
        days, rest = "0", plain
    parts = rest.split(":")
    if not all(re.fullmatch(r"\d{1,9}", part) for part in [days, *parts]) or len(parts) > 3:
        raise ValueError(text)
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 1:
        hours, minutes, seconds = 0, numbers[0], 0
    elif len(numbers) == 2:
        hours, minutes, seconds = 0, *numbers
    else:
        hours, minutes, seconds = numbers
    return int(days) * DAY_MS + hours * HOUR_MS + minutes * MINUTE_MS + seconds * SECOND_MS


def lasting(ms: int) -> str:
    """`1-02:03:04`, `2:03:04`, `3:04`: as squeue writes it."""
    seconds = max(0, ms) // SECOND_MS
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, second = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{second:02}"
    return f"{hours}:{minutes:02}:{second:02}" if hours else f"{minutes}:{second:02}"


def long_lasting(ms: int) -> str:
    """`[D-]HH:MM:SS`: as sacct and scontrol write it."""
    seconds = max(0, ms) // SECOND_MS
    days, rest = divmod(seconds, 86_400)
    text = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def cpu_time(ms: int) -> str:
    """`[[D-]HH:]MM:SS[.mmm]`: as TotalCPU is written."""
    if ms >= HOUR_MS:
        return long_lasting(ms)
    return f"{ms // MINUTE_MS:02}:{ms % MINUTE_MS // SECOND_MS:02}.{ms % SECOND_MS:03}"


# -- moments -------------------------------------------------------------------------------------------------


def moment(ms: int, form: str = "") -> str:
    """`2026-11-19T20:15:04`, or as SLURM_TIME_FORMAT says."""
    if form and form != "standard":
        if form == "relative":
            form = "%d %b %H:%M"
        return local(ms).strftime(form)
    return local(ms).strftime("%Y-%m-%dT%H:%M:%S")


def local(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / SECOND_MS).astimezone()


def moment_ms(text: str, now: int) -> int:
    """A moment as `--begin` and `--starttime` take it: `now+2hours`, `16:00`, `2026-11-19T08:00`; ValueError."""
    plain = text.strip()
    if plain.isdecimal() and len(plain) > 8:
        return int(plain) * SECOND_MS
    base, sign, more = plain, "", ""
    for mark in "+-":
        if plain.lower().startswith(("now", "today", "tomorrow")) and mark in plain:
            base, sign, more = plain.partition(mark)
    shift = count_ms(more) * (-1 if sign == "-" else 1) if sign else 0
    today = local(now).replace(hour=0, minute=0, second=0, microsecond=0)
    word = base.lower()
    if word == "now":
        return now + shift
    if word in {"today", "tomorrow"}:
        return stamp(today + timedelta(days=word == "tomorrow")) + shift
    if word in NAMED:
        return stamp(next_clock(today, NAMED[word], 0, 0, now))
    return dated(plain, today, now)


def dated(text: str, today: datetime, now: int) -> int:
    day, tee, clock = text.partition("T")
    if not tee and ":" in text:
        day, clock = "", text
    hour, minute, second = clock_of(clock) if clock else (0, 0, 0)
    if not day:
        return stamp(next_clock(today, hour, minute, second, now))
    found = WHEN.match(day)
    if found is None:
        raise ValueError(text)
    if found[1]:
        year, month, number = int(found[1]), int(found[2]), int(found[3])
    else:
        year = 2000 + int(found[6]) if found[6] else today.year
        month, number = int(found[4]), int(found[5])
    return stamp(datetime(year, month, number, hour, minute, second).astimezone())


def next_clock(today: datetime, hour: int, minute: int, second: int, now: int) -> datetime:
    found = today.replace(hour=hour, minute=minute, second=second)
    return found if stamp(found) > now else found + timedelta(days=1)


def clock_of(text: str) -> tuple[int, int, int]:
    found = CLOCK.match(text)
    if found is None:
        raise ValueError(text)
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
    if found[4]:
        hour = hour % 12 + (12 if found[4].lower() == "pm" else 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(text)
    return hour, minute, second


def count_ms(text: str) -> int:
    found = COUNT.match(text.strip().lower())
    if found is None:
        raise ValueError(text)
    unit = found[2].rstrip("s")
    each = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 7 * 86_400}[unit]
    return int(found[1]) * each * SECOND_MS


def stamp(when: datetime) -> int:
    return int(when.timestamp()) * SECOND_MS


# -- sizes, signals, users -----------------------------------------------------------------------------------


def memory_mib(text: str) -> int:
    """`200`, `200M`, `2G`, `2GB`, `1024K`; ValueError."""
    found = MEMORY.match(text.strip())
    if found is None or len(found[1]) > 15:
        raise ValueError(text)
    number, unit = int(found[1]), (found[2] or "M").upper()
    return -(-number // 1024) if unit == "K" else number << {"M": 0, "G": 10, "T": 20}[unit]


def size(mib: int, *, convert: bool = True) -> str:
    """`100M`, `1.50G`: as Slurm writes memory."""
    if not convert or mib < 1024:
        return f"{mib}M"
    amount, unit = mib / 1024, "G"
    if amount >= 1024:
        amount, unit = amount / 1024, "T"
    return f"{amount:.0f}{unit}" if amount == int(amount) else f"{amount:.2f}{unit}"


def signal_number(text: str) -> int:
    """By name, with or without SIG, or by number; ValueError."""
    plain = text.upper().removeprefix("SIG")
    if plain.isdecimal() and 0 < int(plain) < 65:
        return int(plain)
    for known in signal.Signals:
        if known.name.removeprefix("SIG") == plain:
            return int(known)
    raise ValueError(text)


def uid_of(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return int(name) if name.isdecimal() else 65534


def gid_of(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_gid
    except KeyError:
        return 65534
