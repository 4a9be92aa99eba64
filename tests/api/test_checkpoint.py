"""How a submission says that the job can save itself, and what is refused."""

import signal
from typing import Any

import pytest

from tidegate.api.submit import MistakeError, command_of
from tidegate.model.jobs import Checkpoint
from tidegate.wire.api import CheckpointBody, SubmitBody


def checkpoint_of(**said: Any) -> Checkpoint | None:
    return command_of(SubmitBody(command=["true"], checkpoint=CheckpointBody(**said)), "ann").spec.checkpoint


@pytest.mark.parametrize(
    ("name", "number"),
    [("", 0), ("USR2", signal.SIGUSR2), ("sigusr1", signal.SIGUSR1), ("12", 12), ("SIGRTMIN", signal.SIGRTMIN)],
)
def test_a_signal_by_name_or_number(name: str, number: int) -> None:
    assert checkpoint_of(signal=name) == Checkpoint(number)


@pytest.mark.parametrize("name", ["KILL", "STOP", "9", "0", "65", "999", "USR3", "-1", "²"])
def test_a_signal_that_no_job_hears_is_refused(name: str) -> None:
    with pytest.raises(MistakeError, match="no signal"):
        checkpoint_of(signal=name)


def test_all_that_may_be_said() -> None:
    said = checkpoint_of(signal="USR2", every_ms=1000, size_mib=2, where="s3://bucket/%j")
    assert said == Checkpoint(signal.SIGUSR2, 1000, 2, "s3://bucket/%j")
    assert checkpoint_of(where="/scratch/%%t/%j") is not None


def test_to_be_asked_all_the_time_is_refused() -> None:
    with pytest.raises(MistakeError, match="too often"):
        checkpoint_of(every_ms=999)


@pytest.mark.parametrize("where", ["saves", "/saves/%t", "s3://bucket/%t", "/a\nb", "/a\0b"])
def test_a_place_that_not_every_attempt_finds_is_refused(where: str) -> None:
    with pytest.raises(MistakeError, match="place for checkpoints"):
        checkpoint_of(where=where)
