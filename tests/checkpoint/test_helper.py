"""`tidegate.checkpoint` in a job, with a directory and a pipe as the keeper makes them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.live import ROOT
from tidegate import checkpoint


class Keeper:
    def __init__(self, place: Path) -> None:
        self.asked = place / "asked"
        os.mkfifo(place / "done")
        self.pipe = os.open(place / "done", os.O_RDWR | os.O_NONBLOCK)

    def ask(self, number: int, what: str = "save") -> None:
        self.asked.write_text(f"{number} {what}\n")

    def heard(self) -> list[list[str]]:
        try:
            lines = os.read(self.pipe, 1 << 16).decode().splitlines()
        except BlockingIOError:
            return []
        self.asked.unlink(missing_ok=True)
        return [line.split() for line in lines]


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeper]:
    found = Keeper(tmp_path)
    monkeypatch.setenv("TIDE_CHECKPOINT_DIR", str(tmp_path / "saves"))
    monkeypatch.setenv("TIDE_CHECKPOINT_ASKED", str(found.asked))
    monkeypatch.setenv("TIDE_CHECKPOINT_DONE", str(tmp_path / "done"))
    yield found
    os.close(found.pipe)


def test_the_loop_saves_when_it_is_asked_and_goes_on(keeper: Keeper) -> None:
    saved = []

    def save(place: Path) -> None:
        saved.append(step)
        (place / "state").write_text(str(step))

    seen, heard = [], []
    for step in checkpoint.loop(range(10), save):
        seen.append(step)
        heard += keeper.heard()
        if step in {3, 7}:
            keeper.ask(step)
    heard += keeper.heard()
    assert (seen, saved) == (list(range(10)), [3, 7])
    assert [(word, number) for word, number, _, _ in heard] == [("done", "3"), ("done", "7")]
    last = checkpoint.latest()
    assert last is not None
    assert (last / "state").read_text() == "7"


def test_an_ask_that_was_answered_and_still_stands_there_is_not_answered_again(keeper: Keeper) -> None:
    keeper.ask(1)
    saves: list[Path] = []
    list(checkpoint.loop(range(5), saves.append))
    assert len(saves) == 1
    keeper.ask(2)
    list(checkpoint.loop(range(5), saves.append))
    assert len(saves) == 2


def test_after_a_save_before_its_end_it_exits(keeper: Keeper) -> None:
    keeper.ask(1, "end")
    items = checkpoint.loop(range(10), lambda place: (place / "state").touch())
    assert next(items) == 0
    with pytest.raises(SystemExit):
        next(items)
    assert checkpoint.latest() is not None


def test_an_error_in_a_save_publishes_nothing_and_says_nothing(keeper: Keeper, tmp_path: Path) -> None:
    def save(place: Path) -> None:
        (place / "half").touch()
        raise ValueError("no room")

    keeper.ask(1)
    with pytest.raises(ValueError, match="no room"):
        list(checkpoint.loop(range(2), save))
    assert checkpoint.latest() is None
    assert keeper.heard() == []
    assert list((tmp_path / "saves").iterdir()) == []


def test_what_is_said_tells_the_ask_its_age_and_its_size(keeper: Keeper) -> None:
    keeper.ask(4)
    assert checkpoint.asked() == (4, False)
    with checkpoint.staging() as place:
        (place / "state").write_bytes(b"x" * (3 << 20))
    ((word, number, age, size),) = keeper.heard()
    assert (word, number, size) == ("done", "4", "3")
    assert 0 <= int(age) < 60_000


def test_a_torn_ask_is_none(keeper: Keeper) -> None:
    for text in ("", "3", "save", "3 save more"):
        keeper.asked.write_text(text)
        assert checkpoint.asked() is None


def test_without_tidegate_it_is_a_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TIDE_CHECKPOINT_DIR", "TIDE_CHECKPOINT_ASKED", "TIDE_CHECKPOINT_DONE"):
        monkeypatch.delenv(name, raising=False)
    assert checkpoint.latest() is None
    assert list(checkpoint.loop(range(3), lambda _place: pytest.fail("nobody asks"))) == [0, 1, 2]
    assert not checkpoint.done()
    with pytest.raises(checkpoint.NoCheckpointError, match="--checkpoint"), checkpoint.staging():
        pass


def test_a_directory_saved_elsewhere_is_published_and_stays(keeper: Keeper, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "state").write_text("1")
    assert checkpoint.publish(tmp_path / "mine") == str(tmp_path / "saves" / "00000001")
    assert (tmp_path / "mine" / "state").read_text() == "1"
    assert keeper.heard() == []


def test_it_imports_the_standard_library_alone() -> None:
    code = "import sys; import tidegate.checkpoint; print(*sorted(m.partition('.')[0] for m in sys.modules))"
    modules = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True,
        check=True,
    ).stdout.split()  # fmt: skip
    assert set(modules) - {"__main__", "tidegate"} <= set(sys.stdlib_module_names)
