"""Whole or not at all: a publication that is cut anywhere leaves the last checkpoint as it was."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.checkpoint import files
from tidegate.checkpoint.files import MANIFEST, Directory, NoCheckpointError, is_whole, read_manifest


class CutError(BaseException):
    """The process is gone: nothing of it runs any more, no clean-up either."""


@contextmanager
def cut_at(step: int) -> Iterator[Callable[[], int]]:
    """Before the call of this number that changes the disk, everything stops. Gives how many there were."""
    calls = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            nonlocal calls
            if calls == step:
                raise CutError
            calls += 1
            return real(*arguments, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((os, "fsync"), (Path, "rename"), (Path, "mkdir"), (Path, "write_text"), (files, "rmtree")):
            patch.setattr(owner, name, counted(getattr(owner, name)))
        yield lambda: calls


def save(place: Directory, text: str) -> None:
    staged = place.stage()
    (staged / "deep").mkdir()
    (staged / "deep" / "state").write_text(text)
    (staged / "more").write_text(text * 100)
    place.publish(staged)


def read(place: Directory) -> str | None:
    last = place.latest()
    return None if last is None else (last / "deep" / "state").read_text()


def steps_of_a_save(path: Path) -> int:
    for text in ("a", "b", "c"):
        save(Directory(path), text)
    with cut_at(-1) as count:
        save(Directory(path), "d")
        return count()


def test_the_last_two_stay_and_the_last_is_found(tmp_path: Path) -> None:
    place = Directory(tmp_path)
    assert read(place) is None
    for text in "abcd":
        save(place, text)
        assert read(place) == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000003", "00000004"]
    assert set(read_manifest((tmp_path / "00000004" / MANIFEST).read_text())) == {"deep/state", "more"}


def test_cut_at_every_step_it_is_the_old_or_the_new_and_never_half(tmp_path: Path) -> None:
    steps = steps_of_a_save(tmp_path / "whole")
    assert steps > 12
    for step in range(steps):
        place = tmp_path / str(step)
        for text in ("a", "b", "c"):
            save(Directory(place, "1"), text)
        with cut_at(step), pytest.raises(CutError):
            save(Directory(place, "1"), "d")
        assert read(Directory(place, "2")) in {"c", "d"}
        save(Directory(place, "2"), "e")  # the next attempt tidies up
        assert read(Directory(place, "2")) == "e"
        left = sorted(path.name for path in place.iterdir())
        assert len(left) == 2, left
        assert all(is_whole(place / name) for name in left)


def test_the_first_save_cut_at_every_step_leaves_nothing_or_itself(tmp_path: Path) -> None:
    steps = steps_of_a_save(tmp_path / "whole")
    for step in range(steps):
        place = tmp_path / str(step)
        with cut_at(step):
            try:
                save(Directory(place), "a")
            except CutError:
                assert read(Directory(place)) in {None, "a"}
            else:
                assert read(Directory(place)) == "a"


@given(data=st.data())
def test_what_was_cut_or_changed_on_disk_is_passed_over(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    place = Directory(tmp_path_factory.mktemp("saves"))
    for text in ("old", "new"):
        save(place, text)
    last = place.latest()
    assert last is not None
    victim = last / data.draw(st.sampled_from(["deep/state", "more", MANIFEST]))
    octets = victim.read_bytes()
    at = data.draw(st.integers(0, len(octets) - 1))
    how = data.draw(st.sampled_from(["cut", "flip", "gone"]))
    if how == "gone":
        victim.unlink()
    elif how == "cut":
        victim.write_bytes(octets[:at])
    else:
        victim.write_bytes(octets[:at] + bytes([octets[at] ^ 1]) + octets[at + 1 :])
    found = read(place)
    assert found == "old" or (victim.name == MANIFEST and found == "new" and is_whole(last))


def test_several_processes_may_publish(tmp_path: Path) -> None:
    first, second = Directory(tmp_path), Directory(tmp_path)
    staged = [first.stage(), second.stage()]
    assert len(set(staged)) == 2
    assert [place.publish(path).rpartition("/")[2] for place, path in zip((first, second), staged, strict=True)] == [
        "00000001",
        "00000002",
    ]


def test_a_link_is_refused(tmp_path: Path) -> None:
    place = Directory(tmp_path)
    staged = place.stage()
    (staged / "state").symlink_to("/etc/hostname")
    with pytest.raises(NoCheckpointError, match="save the file itself"):
        place.publish(staged)
