"""What becomes of checkpoints when their task has ended."""

import os
import time
from pathlib import Path

import pytest

from tidegate.app.leftovers import KEPT_S, Leftovers
from tidegate.model.base import task_key
from tidegate.model.events import JobEnded
from tidegate.model.jobs import Job, JobSpec, Outcome, Shape, amounts
from tidegate.world.records import Save
from tidegate.world.world import World


class Home:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.world = World()
        self.leftovers = Leftovers(path, self.world)

    def saved(self, name: str, days_ago: float = 0) -> Path:
        place = self.path / "checkpoints" / str(int(name.partition("_")[0]) // 1000) / name
        (place / "00000001").mkdir(parents=True)
        at = time.time() - days_ago * 24 * 3600
        for path in (place / "00000001", place):
            os.utime(path, (at, at))
        return place

    def end(self, job: int, outcome: Outcome, index: int = 0) -> None:
        task = task_key(job, index)
        self.world.saves[task] = Save(1, 0)
        event = JobEnded(0, task, 1, outcome)
        self.leftovers.seen([event])
        self.leftovers.safe(1, [event])

    def settle(self) -> None:
        self.leftovers.thread.submit(bool).result(60)


@pytest.fixture
def house(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_it_goes_when_the_task_has_completed_and_stays_when_it_failed(house: Home) -> None:
    done, failed, task, other = house.saved("12"), house.saved("13", 9), house.saved("1012_5"), house.saved("1012_6")
    house.end(12, Outcome.COMPLETED)
    house.end(13, Outcome.FAILED)
    house.end(1012, Outcome.COMPLETED, index=5)
    house.leftovers.sweep()
    house.settle()
    assert [path.exists() for path in (done, failed, task, other)] == [False, True, False, True]
    house.leftovers.close()


def test_what_nobody_goes_on_from_is_swept_after_a_while(house: Home) -> None:
    days = KEPT_S / (24 * 3600)
    live, old, young = house.saved("7", days + 1), house.saved("8", days + 1), house.saved("9", days - 1)
    alone = house.saved("2001", days + 1)
    house.world.jobs[7] = Job(7, 0, 1, "p", JobSpec("ann", Shape(amounts(cpus=1)), 1))
    house.leftovers.sweep()
    house.settle()
    assert [path.exists() for path in (live, old, young, alone)] == [True, False, True, False]
    assert not alone.parent.exists()
    house.leftovers.close()


def test_an_end_is_not_acted_on_before_it_is_safe(house: Home) -> None:
    place = house.saved("12")
    task = task_key(12)
    house.world.saves[task] = Save(1, 0)
    house.leftovers.seen([JobEnded(0, task, 1, Outcome.COMPLETED)])
    house.settle()
    assert place.exists()
    house.leftovers.safe(1, [])
    house.settle()
    assert not place.exists()
    house.leftovers.close()
