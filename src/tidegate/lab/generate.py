"""Synthetic workloads: the Lublin–Feitelson model, with users who have habits, and bursts.

The model (JPDC 63(11), 2003; the parameters for jobs of all kinds) gives sizes by a two-stage uniform
distribution of log2 with many powers of two, the log of run times by a hyper-gamma distribution whose mix
depends on the size, and inter-arrival times whose log is gamma distributed, stretched by a daily cycle.
Ours on top: users by Zipf popularity who repeat what they ran before, requested times that are round and
too long, a length that makes the load exact, and bursts.

The same options give the same bytes on every platform and Python: only `random.Random.random` is used,
the one method whose sequence Python promises to keep (its other distributions may change, and numpy
promises nothing across versions); gamma and normal draws are made from it here.
"""

import gzip
import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from heapq import merge
from io import TextIOWrapper
from itertools import accumulate, repeat
from pathlib import Path
from random import Random
from typing import NamedTuple, TextIO

from msgspec.structs import asdict

from tidegate.model.base import Value

JOBS_MAX = 10_000_000
PROCS_MAX = 10_000_000
USERS_MAX = 1_000_000
DAY_S = 86_400
HOUR_S = 3600
LENGTH_S_MAX = 36_500 * DAY_S

# Lublin and Feitelson, table of the model for all jobs.
SERIAL_SHARE = 0.244
POWER2_SHARE = 0.576
LOG_SIZE_LOW = 0.8
LOG_SIZE_MIDDLE_BELOW_HIGH = 2.5
LOG_SIZE_FIRST_STAGE = 0.86
RUN_SHORT = (4.2, 0.94)  # gamma shape and scale of the log of the run time
RUN_LONG = (312.0, 0.03)
RUN_SHORT_SHARE = (-0.0054, 0.78)  # slope by size, intercept
RUN_LOG_MAX = 12.0
GAP = (10.2303 * 1.0225, 0.4871)  # the second factor turns rush hours into all hours
GAP_LOG_MAX = 13.0
DAY_BUCKETS = 48
DAY_GAMMA = (8.1737, 3.9631)  # where in the day jobs arrive, in half hours
DAY_STARTS_AT = 11  # the quietest bucket; the cycle wraps there

# Ours.
REPEAT_SHARE = 0.75  # a user's next job is like the one before
RUN_JITTER = 0.2  # like, but that much shorter or longer at most
REQUEST_EXACT_SHARE = 0.12
REQUEST_UNDER_SHARE = 0.03
REQUEST_FACTOR_MAX = 9
REQUESTS_S = (
    *(60 * m for m in (5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 600, 720, 1080, 1440, 2160)),
    *(DAY_S * d for d in (2, 3, 4, 5, 7)),
)
GROUP_OF_USERS = 10
SMALL_PROCS_MAX = 4
SMALL_RUN_S_MAX = 900
CALM, BURST = 1, 2
UNIX_START = 1_735_689_600  # 2025-01-01 00:00 UTC; the daily cycle begins at midnight


class GenerateError(ValueError):
    """The options make no workload; the message says what to change."""


class GenerateOptions(Value, frozen=True, gc=False, forbid_unknown_fields=True):
    """`jobs` says how many, or `days` how long (then as many as the load needs); one of them is 0."""

    jobs: int = 10_000
    procs: int = 256
    seed: int = 1
    load: float = 0.8  # work of all jobs / (procs × time from the first to the last submission)
    days: float = 0
    users: int = 100
    bursts: int = 0
    burst_factor: float = 5  # rate in a burst / average rate outside
    burst_hours: float = 2
    burst_small_percent: int = 80  # of the jobs that a burst adds, how many are small and short


class SwfRow(NamedTuple):
    """What the model knows of a job; the other columns of SWF are unknown."""

    job: int
    submit_s: int
    run_s: int
    procs: int
    requested_s: int
    user: int
    group: int
    queue: int  # CALM or BURST


class Body(NamedTuple):
    """A job without its arrival."""

    run_s: int
    procs: int
    requested_s: int
    user: int


class Plan(NamedTuple):
    """Everything that is decided before the first job is given out."""

    calm: "Bodies"
    burst: "Bodies"
    calm_at: "array[int]"
    burst_at: "array[int]"
    windows: tuple[tuple[int, int], ...]  # [from, to) of each burst, in seconds


def check(options: GenerateOptions) -> None:
    """Refuses what no workload can be made of."""
    rules = (
        ((options.jobs > 0) != (options.days > 0), "give either jobs or days, and set the other to 0"),
        (0 <= options.jobs <= JOBS_MAX, f"jobs must be at most {JOBS_MAX:,}"),
        (1 <= options.procs <= PROCS_MAX, f"procs must be between 1 and {PROCS_MAX:,}"),
        (0.01 <= options.load <= 10, "load must be between 0.01 and 10; 0.8 means 80 % of the processors"),
        (0 <= options.days <= 36_500, "days must be at most 36,500"),
        (1 <= options.users <= USERS_MAX, f"users must be between 1 and {USERS_MAX:,}"),
        (0 <= options.bursts <= 10_000, "bursts must be between 0 and 10,000"),
        (1 <= options.burst_factor <= 50, "burst_factor must be between 1 and 50"),
        (0 < options.burst_hours <= 1000, "burst_hours must be above 0 and at most 1,000"),
        (0 <= options.burst_small_percent <= 100, "burst_small_percent must be between 0 and 100"),
    )
    for holds, otherwise in rules:
        if not holds:
            raise GenerateError(otherwise)


def generate(options: GenerateOptions) -> Iterator[SwfRow]:
    """The jobs in order of submission. Raises GenerateError before the first one."""
    return _rows(make_plan(options))


def write_swf(target: Path | str | TextIO, options: GenerateOptions) -> int:
    """Writes SWF 2.2, gzip where the name ends in .gz; returns the number of jobs."""
    plan = make_plan(options)
    if not isinstance(target, Path | str):
        return _write(target, options, plan)
    with Path(target).open("wb") as file:
        if Path(target).suffix != ".gz":
            with TextIOWrapper(file, "ascii", newline="\n") as stream:
                return _write(stream, options, plan)
        # Neither the name nor the time of writing belongs to the workload.
        with (
            gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
            TextIOWrapper(packed, "ascii", newline="\n") as stream,
        ):
            return _write(stream, options, plan)


def _rows(plan: Plan) -> Iterator[SwfRow]:
    arrivals = merge(
        zip(plan.calm_at, repeat(CALM), plan.calm, strict=False),
        zip(plan.burst_at, repeat(BURST), plan.burst, strict=False),
    )
    for job, (at, queue, (run, procs, requested, user)) in enumerate(arrivals, 1):
        yield SwfRow(job, at, run, procs, requested, user, 1 + user // GROUP_OF_USERS, queue)


def _write(stream: TextIO, options: GenerateOptions, plan: Plan) -> int:
    jobs = len(plan.calm_at) + len(plan.burst_at)
    chosen = " ".join(f"{name}={_plain(value)}" for name, value in asdict(options).items())
    header = (
        "Version: 2.2",
        "Computer: generated by tidegate",
        "Information: Lublin-Feitelson model (2003) with users, requested times and bursts",
        f"MaxJobs: {jobs}",
        f"MaxRecords: {jobs}",
        f"UnixStartTime: {UNIX_START}",
        "TimeZoneString: UTC",
        f"MaxNodes: {options.procs}",
        f"MaxProcs: {options.procs}",
        "MaxQueues: 2",
        f"Queue: {CALM} calm",
        f"Queue: {BURST} burst",
        f"Note: {chosen}",
        *(f"Note: burst from {low} to {high} s" for low, high in plan.windows),
    )
    stream.writelines(f"; {line}\n" for line in header)
    stream.writelines(
        f"{job} {at} -1 {run} {procs} -1 -1 {procs} {requested} -1 1 {user} {group} -1 {queue} -1 -1 -1\n"
        for job, at, run, procs, requested, user, group, queue in _rows(plan)
    )
    return jobs


def _plain(value: float) -> str:
    """5 and 5.0 are one option and must write one file."""
    return str(int(value) if value == int(value) else value)


# -- how many, and how long --------------------------------------------------------------------------------


def make_plan(options: GenerateOptions) -> Plan:
    """Work first: the length follows from it, so that the load is what was asked for."""
    check(options)
    calm = Bodies(Population(options, _random(options, "calm"), 0))
    burst = Bodies(Population(options, _random(options, "burst"), options.burst_small_percent))
    if options.days:
        length = options.days * DAY_S
        calm_jobs, burst_jobs = _fill_days(options, calm, burst, length)
    else:
        calm_jobs, burst_jobs = _split_jobs(options, calm, burst)
        length = _length(options, calm.work[calm_jobs] + burst.work[burst_jobs])
    if length > LENGTH_S_MAX:
        raise GenerateError("this workload lasts more than a century: fewer jobs, more load or more procs")
    windows = _windows(options, length)
    return Plan(
        calm,
        burst,
        _calm_times(_random(options, "gaps"), calm_jobs, length),
        _burst_times(_random(options, "peaks"), burst_jobs, windows),
        windows,
    )


def _random(options: GenerateOptions, purpose: str) -> Random:
    """A stream for each purpose, so that one option changes only what it is about."""
    return Random(f"{options.seed}/{purpose}")  # a text seeds through SHA-512, the same everywhere


def _length(options: GenerateOptions, work: int) -> float:
    return max(1.0, work / (options.procs * options.load))


def _burst_s(options: GenerateOptions) -> int:
    return max(1, round(options.burst_hours * HOUR_S))


def _needed_in_a_burst(options: GenerateOptions, calm_jobs: int, length: float) -> float:
    """Jobs that one burst adds, so that its rate is the factor times the rate outside even if all calm
    jobs should fall outside. Infinite where bursts leave too little time that is calm."""
    within = options.bursts * _burst_s(options)
    return (
        options.burst_factor * calm_jobs * _burst_s(options) / (length - within) if 2 * within <= length else math.inf
    )


def _split_jobs(options: GenerateOptions, calm: "Bodies", burst: "Bodies") -> tuple[int, int]:
    """The most calm jobs that leave enough of `jobs` for the bursts."""
    jobs = options.jobs
    calm.draw(jobs)
    if not options.bursts:
        return jobs, 0
    burst.draw(jobs)

    def is_enough(calm_jobs: int) -> bool:
        length = _length(options, calm.work[calm_jobs] + burst.work[jobs - calm_jobs])
        return (jobs - calm_jobs) // options.bursts >= _needed_in_a_burst(options, calm_jobs, length)

    low, high = 0, jobs
    while high - low > 1:
        middle = (low + high) // 2
        if is_enough(middle):
            low = middle
        else:
            high = middle
    if low == 0 or not is_enough(low):
        raise GenerateError(
            f"{jobs:,} jobs are too few for {options.bursts} bursts of {options.burst_hours} h, "
            "which may take half of the time at most: more jobs, fewer or shorter bursts"
        )
    return low, jobs - low


def _fill_days(options: GenerateOptions, calm: "Bodies", burst: "Bodies", length: float) -> tuple[int, int]:
    """As many jobs as the load needs in this time."""
    wanted = options.load * options.procs * length
    in_a_burst = 0
    for calm_jobs in range(1, JOBS_MAX + 1):
        calm.draw(calm_jobs)
        if options.bursts:
            needed = _needed_in_a_burst(options, calm_jobs, length)
            if math.isinf(needed):
                raise GenerateError("bursts may take half of the days at most: more days, fewer or shorter bursts")
            in_a_burst = math.ceil(needed)
        burst_jobs = in_a_burst * options.bursts
        burst.draw(burst_jobs)
        if calm.work[calm_jobs] + burst.work[burst_jobs] >= wanted:
            return calm_jobs, burst_jobs
        if calm_jobs + burst_jobs > JOBS_MAX:
            break
    raise GenerateError(f"these days need more than {JOBS_MAX:,} jobs: fewer days, fewer procs or less load")


# -- when --------------------------------------------------------------------------------------------------


def _day_weights() -> list[float]:
    """The rate of arrival in each half hour of a day, 1 on average."""
    shape, scale = DAY_GAMMA
    weights = [0.0] * DAY_BUCKETS
    for bucket in range(DAY_STARTS_AT, DAY_STARTS_AT + DAY_BUCKETS):
        weights[bucket % DAY_BUCKETS] = bucket ** (shape - 1) * math.exp(-bucket / scale)
    mean = sum(weights) / DAY_BUCKETS
    return [weight / mean for weight in weights]


class DailyCycle:
    """Turns busy time, in which arrivals are steady, into time of day and back."""

    def __init__(self) -> None:
        self.weights = _day_weights()
        self.bucket_s = DAY_S / DAY_BUCKETS
        self.until = [0.0, *accumulate(weight * self.bucket_s for weight in self.weights)]
        self.day = self.until[-1]

    def busy(self, time: float) -> float:
        days, rest = divmod(time, DAY_S)
        bucket = min(int(rest / self.bucket_s), DAY_BUCKETS - 1)
        return days * self.day + self.until[bucket] + (rest - bucket * self.bucket_s) * self.weights[bucket]

    def time(self, busy: float) -> float:
        days, rest = divmod(busy, self.day)
        bucket = min(bisect_right(self.until, rest) - 1, DAY_BUCKETS - 1)
        return days * DAY_S + bucket * self.bucket_s + (rest - self.until[bucket]) / self.weights[bucket]


def _calm_times(random: Random, jobs: int, length: float) -> "array[int]":
    """The first job at 0, the last at the end, gaps in between as the model has them."""
    gaps = [0.0]
    gaps.extend(math.exp(_gamma_below(random, GAP, GAP_LOG_MAX)) for _ in range(jobs - 1))
    sums = list(accumulate(gaps))
    cycle = DailyCycle()
    stretch = cycle.busy(length) / sums[-1] if sums[-1] else 0.0
    return array("q", (int(cycle.time(busy * stretch)) for busy in sums))


def _windows(options: GenerateOptions, length: float) -> tuple[tuple[int, int], ...]:
    """One burst somewhere in each equal part of the time, so that none meets another."""
    random = _random(options, "windows")
    burst_s = _burst_s(options)
    part = length / max(1, options.bursts)
    starts = [int(part * number + random.random() * (part - burst_s)) for number in range(options.bursts)]
    return tuple((start, start + burst_s) for start in starts)


def _burst_times(random: Random, jobs: int, windows: tuple[tuple[int, int], ...]) -> "array[int]":
    times = array("q")
    for number, (low, high) in enumerate(windows):
        share = (jobs * (number + 1)) // len(windows) - (jobs * number) // len(windows)
        times.extend(sorted(low + int(random.random() * (high - low)) for _ in range(share)))
    return times


# -- what --------------------------------------------------------------------------------------------------


class Bodies:
    """Jobs of one population in the order they will arrive, in few bytes, and their work summed up."""

    def __init__(self, population: "Population") -> None:
        self.population = population
        self.cells = array("q")
        self.work = array("q", [0])  # processor seconds of the first n

    def draw(self, jobs: int) -> None:
        """Until there are that many."""
        cells, work = self.cells, self.work
        for _ in range(jobs + 1 - len(work)):
            body = self.population.next()
            cells.extend(body)
            work.append(work[-1] + body.run_s * body.procs)

    def __iter__(self) -> Iterator[Body]:
        column = iter(self.cells)
        return map(Body, column, column, column, column)


class Habit(NamedTuple):
    """What a user runs again and again."""

    run_s: int
    procs: int
    requested_s: int
    exact: bool  # knows the run time
    under: bool  # asks for too little


class Population:
    def __init__(self, options: GenerateOptions, random: Random, small_percent: int) -> None:
        self.random = random
        self.procs = options.procs
        self.small_share = small_percent / 100
        self.popularity = list(accumulate(1 / rank for rank in range(1, options.users + 1)))
        self.habits: dict[int, Habit] = {}

    def next(self) -> Body:
        chance = self.random.random
        user = 1 + bisect_left(self.popularity, chance() * self.popularity[-1])
        habit = self.habits.get(user)
        if habit is None or chance() >= REPEAT_SHARE:
            habit = self.habits[user] = self._new_habit()
        run = min(round(habit.run_s * (1 + RUN_JITTER * (2 * chance() - 1))), int(math.exp(RUN_LOG_MAX)))
        run = max(1, run)
        if habit.exact:
            return Body(run, habit.procs, run, user)
        if run > habit.requested_s and not habit.under:  # burnt once, the user asks for more
            habit = self.habits[user] = habit._replace(requested_s=_round_up(run))
        return Body(run, habit.procs, habit.requested_s, user)

    def _new_habit(self) -> Habit:
        chance = self.random.random
        if chance() < self.small_share:
            procs = min(1 << int(chance() * 3), SMALL_PROCS_MAX, self.procs)
            run = max(1, int(math.exp(_gamma_below(self.random, RUN_SHORT, math.log(SMALL_RUN_S_MAX)))))
        else:
            procs = self._size()
            run = self._run(procs)
        kind = chance()
        if kind < REQUEST_EXACT_SHARE:
            return Habit(run, procs, run, exact=True, under=False)
        if kind < REQUEST_EXACT_SHARE + REQUEST_UNDER_SHARE and run > REQUESTS_S[0]:
            lower = REQUESTS_S[bisect_left(REQUESTS_S, run) - 1]
            return Habit(run, procs, lower, exact=False, under=True)
        factor = 1 + REQUEST_FACTOR_MAX * chance() ** 3
        return Habit(run, procs, _round_up(int(run * factor)), exact=False, under=False)

    def _size(self) -> int:
        chance = self.random.random
        kind = chance()
        if kind < SERIAL_SHARE:
            return 1
        high = math.log2(self.procs)
        low = min(LOG_SIZE_LOW, high)
        middle = max(low, high - LOG_SIZE_MIDDLE_BELOW_HIGH)
        bottom, top = (low, middle) if chance() < LOG_SIZE_FIRST_STAGE else (middle, high)
        log_size = bottom + chance() * (top - bottom)
        if kind < SERIAL_SHARE + POWER2_SHARE:
            log_size = int(log_size + 0.5)
        return min(self.procs, int(2**log_size + 0.5))

    def _run(self, procs: int) -> int:
        slope, intercept = RUN_SHORT_SHARE
        while True:  # the mix is drawn again too, as in the model
            kind = RUN_SHORT if self.random.random() < slope * procs + intercept else RUN_LONG
            log_run = _gamma(self.random, kind)
            if log_run <= RUN_LOG_MAX:
                return max(1, int(math.exp(log_run)))


def _round_up(seconds: int) -> int:
    return REQUESTS_S[min(bisect_left(REQUESTS_S, seconds), len(REQUESTS_S) - 1)]


def _gamma_below(random: Random, kind: tuple[float, float], most: float) -> float:
    while True:
        value = _gamma(random, kind)
        if value <= most:
            return value


def _gamma(random: Random, kind: tuple[float, float]) -> float:
    """Marsaglia and Tsang (2000), for shapes of at least 1; the normal inside by Box and Muller."""
    shape, scale = kind
    d = shape - 1 / 3
    c = 1 / math.sqrt(9 * d)
    chance = random.random
    while True:
        normal = math.sqrt(-2 * math.log(1 - chance())) * math.cos(2 * math.pi * chance())
        v = (1 + c * normal) ** 3
        if v > 0 and math.log(1 - chance()) < normal * normal / 2 + d * (1 - v + math.log(v)):
            return scale * d * v
