"""No room left: ends are kept and told, starts are refused with a reason, and all goes on when there is room."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.kit import Local, local_engines
from tests.kit.disks import fill, small_disk
from tidegate.engines.local.records import End, Records, lines_of
from tidegate.model.engine import LaunchRefused
from tidegate.model.jobs import Outcome


def test_ends_that_cannot_be_written_are_told_and_written_later(local: Local, tmp_path: Path) -> None:
    key = local.launch(local.job("sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; exit 5"))
    local.started(key)
    resource.prlimit(local.keeper, resource.RLIMIT_FSIZE, (8, resource.RLIM_INFINITY))
    (tmp_path / "go").touch()
    assert local.end_of(key).code == 5
    local.wait_for(lambda: "cannot write" in " ".join(local.engine.notes()))
    why = local.refusal_of(local.launch(local.job("true"))).why
    assert "no place to record how jobs end" in why
    assert "free some disk" in why
    resource.prlimit(local.keeper, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    local.wait_for(lambda: local.engine.notes() == [])
    assert local.run("true").outcome is Outcome.COMPLETED


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Local]:
    with small_disk(tmp_path / "small", 1) as place:
        yield from local_engines(place / "home")


def refused_or_ended(local: Local) -> list[LaunchRefused]:
    key = local.launch(local.job("sh", "-c", "exit 2"))
    local.wait_for(lambda: local.ends_of(key) or local.refusals_of(key))
    return local.refusals_of(key)


def test_a_full_disk_refuses_and_never_breaks(small: Local) -> None:
    script = "#!/bin/sh\n" + "# padding\n" * 1000
    assert small.run("true").outcome is Outcome.COMPLETED
    ballast = fill(small.home.parent)
    assert "No space left" in small.refusal_of(small.launch(small.job(script=script))).why
    refusals: list[LaunchRefused] = []
    for _ in range(120):  # until the page of the record is full too
        refusals = refused_or_ended(small)
        if refusals:
            break
    assert "record" in refusals[0].why
    ballast.unlink()
    small.wait_for(lambda: small.engine.notes() == [])
    assert small.run(script=script).outcome is Outcome.COMPLETED


def test_a_torn_line_is_closed_by_the_next(tmp_path: Path) -> None:
    records = Records(str(tmp_path))
    records.add(End(1, 1, "completed"))
    assert records.write()
    os.write(records.fd, b'{"is":"ended","task":2,"att')
    records.torn = True
    records.add(End(3, 1, "failed", 1))
    assert records.write()
    assert [read.task for read in lines_of(records.path(1)) if isinstance(read, End)] == [1, 3]


def test_records_stay_small_and_keep_what_is_unheard(tmp_path: Path) -> None:
    records = Records(str(tmp_path))
    old = End(0, 1, "failed", 9)
    records.add(old)
    for task in range(1, 5_000):
        records.add(End(task, 1, "completed"))
        assert records.write()
        records.forget((task, 1))
        records.tidy()
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert len(sizes) == 2
    assert max(sizes.values()) < 1 << 19
    again = Records(str(tmp_path))
    assert again.unheard[0, 1] == old
    assert again.claims == []


def test_what_is_forgotten_before_it_was_written_is_not_written(tmp_path: Path) -> None:
    records = Records(str(tmp_path))
    records.add(End(1, 1, "completed"))
    records.forget((1, 1))
    assert records.write()
    assert lines_of(records.path(1)) == []
