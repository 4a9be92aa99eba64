"""How well the tide is told from arrivals: false alarms and delays, by the very loop that schedules live.

Nobody knows the bursts of recorded arrivals. So there are three trials (docs/decisions/0019):

- the arrivals as they were, held against labels that are given with all of them known, also those still to come;
- the same without what is labelled: every alarm is false;
- that, with bursts put in whose start and size are known.

Counts say how many came in each step of time. Within a step they are spread by chance, from a seed.
"""

import csv
import gzip
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

from tidegate.lab.replay import Wiring, processors, replay
from tidegate.lab.tides import TideLog
from tidegate.lab.workload import Arrival, TraceError
from tidegate.model.commands import Submit
from tidegate.model.jobs import JobSpec, Shape, amounts
from tidegate.model.policy import PolicySpec, Tide, Tides
from tidegate.ports import Engine

HOUR_MS = 3_600_000
WEEK_MS = 168 * HOUR_MS
NORM_MS = 24 * HOUR_MS  # what is usual: to both sides of a step so long,
TRIMMED = 10  # without the highest one in so many
PUT_IN_EVERY_MS = 48 * HOUR_MS
PUT_IN_LASTS_MS = HOUR_MS
FACTORS = (6, 8, 10, 20)
RUN_MS = 1000
ROOM = 1_000_000  # processors: nothing ever waits
STEPS_MAX = 1_000_000


class Counts(NamedTuple):
    name: str
    step_ms: int
    counts: tuple[int, ...]


class Burst(NamedTuple):
    begin_ms: int
    end_ms: int
    factor: int = 0  # of the usual, where it was put in


class Alarm(NamedTuple):
    rising_ms: int
    surge_ms: int | None  # None: it did not hold


def read_counts(path: Path, column: str) -> Counts:
    """A CSV of equal steps of time: `time` (YYYY-MM-DD HH:MM:SS) and numbers."""
    opened: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    times, counts = [], []
    try:
        with opened(path, "rt", encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                times.append(datetime.fromisoformat(row["time"]))
                counts.append(int(float(row[column])))
                if len(counts) > STEPS_MAX:
                    raise TraceError(f"{path}: more than {STEPS_MAX:,} steps; give fewer")
    except (KeyError, TypeError, ValueError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(
            f"{path}: no counts over time at row {len(counts) + 2} ({error}); it needs a column `time` "
            f"and one of whole numbers, here {column!r} (--column)"
        ) from error
    steps = {after - before for before, after in pairwise(times)}
    if len(steps) != 1 or min(counts) < 0:
        raise TraceError(f"{path}: the times are not in equal steps, or a count is negative; count by equal steps")
    return Counts(f"{path.name}: {column}", int(steps.pop().total_seconds() * 1000), tuple(counts))


# -- what is true ------------------------------------------------------------------------------------------


def norms(data: Counts) -> list[float]:
    """What is usual around each step, seen from both sides: a mean that bursts do not reach."""
    reach = NORM_MS // data.step_ms
    found = []
    for at in range(len(data.counts)):
        around = sorted(data.counts[max(0, at - reach) : at + reach + 1])
        kept = around[: len(around) - len(around) // TRIMMED]
        found.append(sum(kept) / len(kept))
    return found


def labelled(data: Counts, usual: Sequence[float], tide: Tides) -> list[Burst]:
    """Runs of steps each of which is above the factor of the policy, and that bring its least number together."""
    above = [count > tide.arrivals * norm for count, norm in zip(data.counts, usual, strict=True)]
    found, at = [], 0
    while at < len(above):
        if not above[at]:
            at += 1
            continue
        begin = at
        while at < len(above) and above[at]:
            at += 1
        if sum(data.counts[begin:at]) >= tide.arrivals_min:
            found.append(Burst(begin * data.step_ms, at * data.step_ms))
    return found


def without(data: Counts, bursts: Sequence[Burst], usual: Sequence[float]) -> Counts:
    counts = list(data.counts)
    for burst in bursts:
        for at in range(burst.begin_ms // data.step_ms, burst.end_ms // data.step_ms):
            counts[at] = round(usual[at])
    return Counts(data.name, data.step_ms, tuple(counts))


def put_in(data: Counts, usual: Sequence[float], tide: Tides, random: Random) -> list[tuple[Burst, list[int]]]:
    """Bursts, each with when its tasks come: the usual times its factor, and the least number in a window at least."""
    found = []
    length = len(data.counts) * data.step_ms
    for number, start in enumerate(range(tide.baseline_ms, length - PUT_IN_EVERY_MS, PUT_IN_EVERY_MS)):
        factor = FACTORS[number % len(FACTORS)]
        begin = start + int(random.random() * (PUT_IN_EVERY_MS - 2 * PUT_IN_LASTS_MS))
        a_step = max(usual[begin // data.step_ms], tide.arrivals_min * data.step_ms / tide.window_ms / tide.arrivals)
        more = round((factor - 1) * a_step * PUT_IN_LASTS_MS / data.step_ms)
        times = [begin + int(random.random() * PUT_IN_LASTS_MS) for _ in range(more)]
        found.append((Burst(begin, begin + PUT_IN_LASTS_MS, factor), times))
    return found


# -- what the kernel says ----------------------------------------------------------------------------------


def alarms(
    data: Counts, more: Sequence[int], tide: Tides, engine: Callable[..., Engine], journal: Any, random: Random
) -> list[Alarm]:
    log = TideLog()
    policy = PolicySpec("detect", tide=tide)
    times = [
        at * data.step_ms + int(random.random() * data.step_ms)
        for at, count in enumerate(data.counts) for _ in range(count)
    ]  # fmt: skip
    wiring = Wiring(engine=engine, journal=lambda listeners: journal(*listeners, log))
    replay(_jobs(sorted((*times, *more))), len(times), (processors("n", ROOM),), policy, wiring)
    found: list[Alarm] = []
    for turn in log.turns:
        if turn.after is Tide.RISING:
            found.append(Alarm(turn.at, None))
        elif turn.after is Tide.SURGE and turn.before is Tide.RISING:
            found[-1] = Alarm(found[-1].rising_ms, turn.at)
    return found


def _jobs(times: Sequence[int]) -> Iterator[Arrival]:
    spec = JobSpec(user="somebody", shape=Shape(amounts(cpus=1000), 1, stack=True), limit_ms=RUN_MS)
    for job, at in enumerate(times, 1):
        yield Arrival(at, Submit(spec, job=job), RUN_MS, job)


# -- the two against each other ----------------------------------------------------------------------------


def trials(data: Counts, tide: Tides, engine: Callable[..., Engine], journal: Any, seed: int) -> dict[str, Any]:
    """Only arrivals count here: nothing waits."""
    alone = Tides(
        depth=0, arrivals=tide.arrivals, arrivals_min=tide.arrivals_min, ebb_percent=tide.ebb_percent,
        window_ms=tide.window_ms, baseline_ms=tide.baseline_ms, hold_ms=tide.hold_ms, ebb_ms=tide.ebb_ms,
    )  # fmt: skip
    usual = norms(data)
    bursts = labelled(data, usual, tide)
    quiet = without(data, bursts, usual)
    added = put_in(data, usual, tide, Random(f"{seed}/bursts"))
    weeks = len(data.counts) * data.step_ms / WEEK_MS

    def told(counts: Counts, more: Sequence[int] = ()) -> list[Alarm]:
        return alarms(counts, more, alone, engine, journal, Random(f"{seed}/times"))

    real, false = told(data), told(quiet)
    times = [at for _, some in added for at in some]
    judged = [burst for burst, _ in added]
    return {
        "arrivals": sum(data.counts),
        "weeks": weeks,
        "labelled": {"bursts_a_week": len(bursts) / weeks, **_held_against(bursts, real, tide, weeks)},
        "quiet": {"false_alarms_a_week": len(false) / weeks,
                  "false_surges_a_week": sum(alarm.surge_ms is not None for alarm in false) / weeks},
        "put_in": _delays(judged, told(quiet, times)),
    }  # fmt: skip


def _held_against(bursts: Sequence[Burst], said: Sequence[Alarm], tide: Tides, weeks: float) -> dict[str, Any]:
    """An alarm is true within a burst, or a window after it; before the baseline is known there is none."""
    known = [burst for burst in bursts if burst.begin_ms >= tide.baseline_ms // 4]
    found = {burst: alarm for burst in known for alarm in said if _is_of(burst, alarm, tide)}
    true = [alarm for alarm in said if any(_is_of(burst, alarm, tide) for burst in bursts)]
    return {
        "found_part": len(found) / len(known) if known else 1.0,
        "alarms_a_week": len(said) / weeks,
        "false_alarms_a_week": (len(said) - len(true)) / weeks,
    }


def _is_of(burst: Burst, alarm: Alarm, tide: Tides) -> bool:
    return burst.begin_ms <= alarm.rising_ms < burst.end_ms + tide.window_ms


def _delays(bursts: Sequence[Burst], said: Sequence[Alarm]) -> dict[str, Any]:
    """Of all, and by factor: how many were told while they lasted, and how long that took."""
    rows: dict[str, Any] = {}
    for name, some in (("all", bursts), *((f"x{f}", [b for b in bursts if b.factor == f]) for f in FACTORS)):
        rising, surge = [], []
        for burst in some:
            alarm = next((one for one in said if burst.begin_ms <= one.rising_ms < burst.end_ms), None)
            if alarm is not None:
                rising.append(alarm.rising_ms - burst.begin_ms)
                if alarm.surge_ms is not None:
                    surge.append(alarm.surge_ms - burst.begin_ms)
        rows[name] = {"bursts": len(some), "found": len(rising), **_summed("rising", rising), **_summed("surge", surge)}
    return rows


def _summed(name: str, delays: list[int]) -> dict[str, float | None]:
    ordered = sorted(delays)
    at = -(-len(ordered) * 9 // 10) - 1
    return {
        f"{name}_delay_median_s": median(ordered) / 1000 if ordered else None,
        f"{name}_delay_p90_s": ordered[at] / 1000 if ordered else None,
    }
