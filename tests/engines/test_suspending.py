"""Suspending with the real keeper: the whole tree stops where it is and goes on, and no clock of the job runs."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.engines.kit import Key, Local, carrying, local_engines
from tidegate.model.base import task_key
from tidegate.model.engine import Ask, Halt, Launch, Resume, Saved, Suspend
from tidegate.model.jobs import Checkpoint, Job, Outcome


@pytest.fixture(params=[True, False], ids=["cgroups", "without"])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Local]:
    yield from local_engines(tmp_path / "home", cgroups=request.param)


def suspend(local: Local, key: Key) -> None:
    local.engine.deliver([Suspend(*key)], 0)


def resume(local: Local, key: Key) -> None:
    local.engine.deliver([Resume(*key)], 0)


def tree(local: Local, mark: Path, seconds: str = "1000") -> tuple[Job, Key]:
    """A shell, a child and one that went to a session of its own; all carry the mark."""
    inner = f"sleep {seconds}; : {mark}"
    job = local.job("sh", "-c", f"setsid sh -c '{inner}' & sh -c '{inner}' & echo up >{mark}; wait; : {mark}")
    key = local.launch(job)
    local.wait_for_text(mark)
    local.wait_for(lambda: len(carrying(str(mark))) >= 3)
    return job, key


def states(mark: Path) -> set[str]:
    found = set()
    for pid in carrying(str(mark)):
        text = Path(f"/proc/{pid}/stat").read_text()
        found.add(text[text.rindex(")") + 2])
    return found


def test_all_of_it_stops_and_goes_on(local: Local, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    _, key = tree(local, mark)
    suspend(local, key)
    local.wait_for(lambda: states(mark) == {"T"})
    suspend(local, key)
    resume(local, key)
    local.wait_for(lambda: states(mark) == {"S"})
    resume(local, key)
    local.halt(key)
    assert local.end_of(key).outcome is Outcome.CANCELLED


def test_one_that_is_stopped_can_be_asked_to_end(local: Local, tmp_path: Path) -> None:
    log = tmp_path / "log"
    key = local.launch(
        local.job("sh", "-c", f"trap 'echo term >>{log}; exit 0' TERM; echo up >{log}; sleep 1000 & wait")
    )
    local.wait_for_text(log)
    suspend(local, key)
    local.halt(key, grace_ms=60_000)
    assert local.end_of(key).outcome is Outcome.CANCELLED
    assert log.read_text().split() == ["up", "term"]
    suspend(local, key)  # it is over: nothing


def test_suspended_as_soon_as_launched(local: Local, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    job = local.job("sh", "-c", f"sleep 1000; : {mark}")
    key = (task_key(job.id), 1)
    local.engine.deliver([Launch(*key, job, (("node1", 1),)), Suspend(*key)], 0)
    local.started(key)
    assert local.run("true").outcome is Outcome.COMPLETED
    assert states(mark) <= {"T"}  # none, where it was stopped before its exec
    resume(local, key)
    local.wait_for(lambda: states(mark) == {"S"})
    local.halt(key)
    local.end_of(key)


def test_its_time_limit_stands_still(local: Local) -> None:
    key = local.launch(local.job("sleep", "1000", limit_ms=400))
    local.started(key)
    suspend(local, key)
    assert local.run("sleep", "0.8").outcome is Outcome.COMPLETED
    assert local.look() == {key}
    resume(local, key)
    assert local.end_of(key).outcome is Outcome.TIMED_OUT


def test_what_it_did_not_do_is_not_kept(local: Local, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = f"trap 'echo done >\"$TIDE_CHECKPOINT_DONE\"' USR2; echo up >{log}; while :; do sleep 0.02; done"
    job = local.job("sh", "-c", script)
    job = replace(job, spec=replace(job.spec, checkpoint=Checkpoint(signal=int(signal.SIGUSR2))))
    key = local.launch(job)
    local.wait_for_text(log)
    suspend(local, key)
    assert local.run("sleep", "2").outcome is Outcome.COMPLETED
    resume(local, key)
    local.engine.deliver([Ask(*key, 1)], 0)
    saved = local.wait_for(lambda: local.of(Saved))[0]
    assert 0 <= saved.kept_ms < 2_000
    local.engine.deliver([Halt(*key, Outcome.CANCELLED)], 0)
    local.end_of(key)


def test_a_new_server_finds_it_suspended(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    first = Local(tmp_path / "home")
    _, key = tree(first, mark)
    suspend(first, key)
    first.wait_for(lambda: states(mark) == {"T"})
    first.engine.close()
    second = Local(tmp_path / "home")
    assert states(mark) == {"T"}
    suspend(second, key)  # all is derived again
    resume(second, key)
    second.wait_for(lambda: states(mark) == {"S"})
    second.close()
