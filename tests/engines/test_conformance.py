"""What every engine does with the directives it gets, whatever runs behind it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.engines.kit import USER, Key, Local
from tests.kit.faulty_engine import FaultyEngine
from tidegate.engines.virtual import VirtualEngine
from tidegate.model.base import task_key
from tidegate.model.engine import Ended, Halt, Launch, Report, Resume, Suspend
from tidegate.model.jobs import Job, JobSpec, Outcome, Shape, Work, amounts
from tidegate.ports import Engine

SHORT_MS, LONG_MS = 10, 100_000


class Bench(Protocol):
    """An engine, and a way to let time pass until it has said something."""

    engine: Engine

    def job(self, number: int, run_ms: int) -> Job: ...

    def hear(self) -> list[Report]: ...


class Simulated:
    """Time is a number here."""

    def __init__(self, make: Callable[[Callable[[int, int], int]], Engine]) -> None:
        self.run_ms: dict[int, int] = {}
        self.now = 1_000
        self.engine = make(lambda task, _attempt: self.run_ms[task])

    def job(self, number: int, run_ms: int) -> Job:
        self.run_ms[task_key(number)] = run_ms
        return job(number, ("true",))

    def hear(self) -> list[Report]:
        self.now += SHORT_MS
        return list(self.engine.reports(self.now))


class Real:
    def __init__(self, home: Path) -> None:
        self.local = Local(home)
        self.engine: Engine = self.local.engine

    def job(self, number: int, run_ms: int) -> Job:
        return job(number, ("sleep", str(run_ms / 1000)))

    def hear(self) -> list[Report]:
        before = len(self.local.seen)
        self.local.hear()
        return self.local.seen[before:]


def job(number: int, argv: tuple[str, ...]) -> Job:
    spec = JobSpec(USER, Shape(amounts(cpus=1000)), LONG_MS, work=Work(argv))
    return Job(number, 0, LONG_MS, "main", spec)


@pytest.fixture(params=["virtual", "virtual on a bad wire", "local"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "virtual":
        yield Simulated(VirtualEngine)
    elif request.param == "local":
        real = Real(tmp_path)
        yield real
        real.local.close()
    else:
        yield Simulated(lambda run_time: FaultyEngine(run_time, seed=1))


def launch(bench: Bench, wanted: Job, attempt: int = 1) -> Key:
    key = (task_key(wanted.id), attempt)
    bench.engine.deliver([Launch(*key, wanted, (("node1", 1),))], 1_000)
    return key


def ends(bench: Bench, keys: list[Key], rounds: int = 2_000) -> list[Ended]:
    """What is told until each of these has ended, and a little longer."""
    found: list[Ended] = []
    for _ in range(rounds):
        found += [report for report in bench.hear() if isinstance(report, Ended)]
        if {(end.task, end.attempt) for end in found} >= set(keys):
            return found + [report for report in bench.hear() if isinstance(report, Ended)]
    raise AssertionError(f"{keys} did not end; told was {found}")


def test_what_is_launched_ends(bench: Bench) -> None:
    key = launch(bench, bench.job(1, SHORT_MS))
    assert [(end.task, end.attempt, end.outcome) for end in ends(bench, [key])] == [(*key, Outcome.COMPLETED)]


def test_launched_twice_runs_once(bench: Bench) -> None:
    wanted = bench.job(1, SHORT_MS)
    key = launch(bench, wanted)
    assert launch(bench, wanted) == key
    assert {(end.task, end.attempt) for end in ends(bench, [key])} == {key}


def test_another_attempt_runs_after_the_first(bench: Bench) -> None:
    wanted = bench.job(1, SHORT_MS)
    first = launch(bench, wanted)
    ends(bench, [first])
    second = launch(bench, wanted, attempt=2)
    assert (ends(bench, [second])[-1].task, 2) == second


def test_many_end_once_each(bench: Bench) -> None:
    keys = [launch(bench, bench.job(number, SHORT_MS)) for number in range(1, 21)]
    assert sorted((end.task, end.attempt) for end in ends(bench, keys)) == keys


def test_a_halted_one_ends_as_it_was_told(bench: Bench) -> None:
    key = launch(bench, bench.job(1, LONG_MS))
    bench.hear()
    bench.engine.deliver([Halt(*key, Outcome.CANCELLED)], 1_000)
    assert [end.outcome for end in ends(bench, [key])] == [Outcome.CANCELLED]


def test_halted_as_soon_as_launched(bench: Bench) -> None:
    wanted = bench.job(1, LONG_MS)
    key = (task_key(1), 1)
    bench.engine.deliver([Launch(*key, wanted, (("node1", 1),)), Halt(*key, Outcome.CANCELLED)], 1_000)
    assert [end.outcome for end in ends(bench, [key])] == [Outcome.CANCELLED]


def test_halting_what_it_does_not_have_is_nothing(bench: Bench) -> None:
    bench.engine.deliver([Halt(task_key(5), 1, Outcome.CANCELLED)], 1_000)
    key = launch(bench, bench.job(1, SHORT_MS))
    assert {(end.task, end.attempt) for end in ends(bench, [key])} == {key}


def test_halting_another_attempt_is_nothing(bench: Bench) -> None:
    key = launch(bench, bench.job(1, SHORT_MS), attempt=2)
    bench.engine.deliver([Halt(key[0], 1, Outcome.CANCELLED)], 1_000)
    assert [(end.attempt, end.outcome) for end in ends(bench, [key])] == [(2, Outcome.COMPLETED)]


def test_a_suspended_one_ends_after_it_was_resumed(bench: Bench) -> None:
    key = launch(bench, bench.job(1, SHORT_MS))
    bench.engine.deliver([Suspend(*key), Suspend(*key)], 1_000)
    bench.engine.deliver([Resume(*key), Resume(*key)], 1_000)
    assert [end.outcome for end in ends(bench, [key])] == [Outcome.COMPLETED]


def test_a_suspended_one_ends_when_it_is_halted(bench: Bench) -> None:
    key = launch(bench, bench.job(1, LONG_MS))
    bench.hear()
    bench.engine.deliver([Suspend(*key), Halt(*key, Outcome.CANCELLED)], 1_000)
    assert [end.outcome for end in ends(bench, [key])] == [Outcome.CANCELLED]


def test_time_does_not_count_while_it_is_suspended() -> None:
    """Of a real one tests/engines/test_suspending.py says so."""
    bench = Simulated(VirtualEngine)
    key = launch(bench, bench.job(1, 3 * SHORT_MS))
    bench.hear()
    bench.engine.deliver([Suspend(*key)], bench.now)
    assert [bench.hear() for _ in range(100)] == [[]] * 100
    bench.engine.deliver([Resume(*key)], bench.now)
    at = bench.now
    assert [end.outcome for end in ends(bench, [key])] == [Outcome.COMPLETED]
    assert bench.now == at + 3 * SHORT_MS  # it had 2 left, and `ends` hears once more


def test_suspending_what_it_does_not_have_is_nothing(bench: Bench) -> None:
    other = (task_key(5), 1)
    bench.engine.deliver([Suspend(*other), Resume(*other)], 1_000)
    key = launch(bench, bench.job(1, SHORT_MS), attempt=2)
    bench.engine.deliver([Suspend(key[0], 1)], 1_000)
    assert {(end.task, end.attempt) for end in ends(bench, [key])} == {key}
