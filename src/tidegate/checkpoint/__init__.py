"""The rule: what a job needs to save itself, with the standard library alone; a bucket brings fsspec.

    from tidegate import checkpoint

    last = checkpoint.latest()                      # a directory, or None
    for step in checkpoint.loop(range(first, n), save):
        ...                                         # save(directory) is called whenever Tidegate asks

docs/checkpoints.md is the contract. Outside of Tidegate nobody asks, and nothing is saved unless TIDE_CHECKPOINT_DIR
says where.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from tidegate.checkpoint.files import Directory, NoCheckpointError
from tidegate.checkpoint.pipe import Asked, open_ask, tell

__all__ = [
    "Asked",
    "NoCheckpointError",
    "asked",
    "done",
    "latest",
    "loop",
    "publish",
    "size_of",
    "stage",
    "staging",
    "store",
]

Item = TypeVar("Item")


class Store(Protocol):
    """Where checkpoints are: whole ones under rising numbers."""

    def stage(self) -> Path:
        """A new empty directory to write into."""
        ...

    def publish(self, staged: Path) -> str:
        """Makes it the last checkpoint, whole or not at all, and says where that is."""
        ...

    def discard(self, staged: Path) -> None: ...

    def has_staged(self, directory: Path) -> bool:
        """Whether `stage` made it."""
        ...

    def latest(self) -> Path | None:
        """The last whole one, as a directory of this machine."""
        ...


def store() -> Store:
    """What TIDE_CHECKPOINT_DIR names."""
    where = os.environ.get("TIDE_CHECKPOINT_DIR", "")
    if not where:
        raise NoCheckpointError("nothing says where to save; submit with --checkpoint, or set TIDE_CHECKPOINT_DIR")
    attempt = os.environ.get("TIDE_ATTEMPT", "0")
    if "://" in where:
        from tidegate.checkpoint.bucket import Bucket

        return Bucket(where, attempt)
    return Directory(Path(where), attempt)


def asked() -> Asked | None:
    """The ask that is open, if there is one: its `number`, and whether it is the last, before the job is ended."""
    return open_ask()


def latest() -> Path | None:
    """The directory of the last whole checkpoint; None where there is none. What does not match is passed over."""
    return store().latest() if os.environ.get("TIDE_CHECKPOINT_DIR") else None


@contextmanager
def staging() -> Iterator[Path]:
    """A directory to save into. Published, and Tidegate told, when the block ends without an error."""
    ask, taken = open_ask(), time.monotonic()
    place = store()
    staged = place.stage()
    try:
        yield staged
        size = size_of(staged)
        place.publish(staged)
    except BaseException:
        place.discard(staged)
        raise
    tell(ask, taken, size)


def stage() -> Path:
    """A new directory to save into, for `publish`. What is left of it when the job ends is removed later."""
    return store().stage()


def publish(directory: Path | str) -> str:
    """Makes the last checkpoint of a directory: the answer is where it is.

    One that `stage` made becomes it; of any other a copy does, and it stays as it is.
    """
    from shutil import copytree

    place = store()
    if place.has_staged(Path(directory)):
        return place.publish(Path(directory))
    staged = place.stage()
    try:
        copytree(directory, staged, symlinks=True, dirs_exist_ok=True)
        return place.publish(staged)
    except BaseException:
        place.discard(staged)
        raise


def done(size_octets: int = 0) -> bool:
    """Says that the job has saved itself in its own way. False: nobody listens."""
    return tell(open_ask(), None, size_octets)


def loop(items: Iterable[Item], save: Callable[[Path], None], every_s: float = 0) -> Iterator[Item]:
    """Gives the items, and between two of them calls `save(directory)` whenever Tidegate asks.

    After a save that comes before the end of the job it exits. `every_s` saves unasked too, so often.
    """
    last = time.monotonic()
    for item in items:
        yield item
        ask = open_ask()
        if ask is None and not (every_s and time.monotonic() - last >= every_s):
            continue
        with staging() as place:
            save(place)
        last = time.monotonic()
        if ask is not None and ask.ends:
            raise SystemExit(0)


def size_of(directory: Path | str) -> int:
    return sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file())
