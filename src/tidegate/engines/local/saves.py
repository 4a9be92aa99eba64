"""Where tasks of the local engine save themselves: a directory a task in the home, which outlives its attempts.

A directory that the user named is the user's: it is neither made nor read here, for it may be on a file system that
does not answer.
"""

import os
from itertools import islice
from pathlib import Path
from typing import Final

from tidegate.engines.local.records import Key
from tidegate.engines.local.users import User
from tidegate.model.base import index_of
from tidegate.model.engine import Launch
from tidegate.model.jobs import Job
from tidegate.wire.outputs import checkpoints_of

ASKS: Final = "asks"
MANIFEST: Final = "manifest.json"
ENTRIES_MAX: Final = 1000
"""The directory is the user's, who may fill it as they like: the server looks no further."""
GIVEN: Final = frozenset(
    {
        "TIDE_CHECKPOINT_DIR", "TIDE_CHECKPOINT_LAST", "TIDE_CHECKPOINT_ASKED", "TIDE_CHECKPOINT_DONE",
        "TIDE_RESTART_COUNT",
    }
)  # fmt: skip


def prepare(home: Path) -> None:
    for name in (ASKS, "checkpoints"):
        place = home / name
        place.mkdir(exist_ok=True)
        place.chmod(0o711)  # as the outputs: a user goes through, and looks around nowhere


def make_directory(home: Path, job: Job, index: int, user: User) -> None:
    """For the first attempt; later ones find it. OSError: there is no place."""
    if job.spec.checkpoint is None or job.spec.checkpoint.where:
        return
    place = Path(checkpoints_of(str(home), job, index))
    place.parent.mkdir(exist_ok=True)
    place.parent.chmod(0o711)
    place.mkdir(mode=0o700, exist_ok=True)
    if user.ids is not None:  # each time: a server may have ended between the two
        os.chown(place, user.ids[0], user.ids[1], follow_symlinks=False)


def given(home: Path, launch: Launch) -> list[str]:
    """What a job that can save itself is told about it."""
    said = launch.job.spec.checkpoint
    if said is None:
        return []
    directory = checkpoints_of(str(home), launch.job, index_of(launch.task))
    ask = f"{home}/{ASKS}/{place_of((launch.task, launch.attempt))}"
    told = [
        f"TIDE_CHECKPOINT_DIR={directory}",
        f"TIDE_CHECKPOINT_ASKED={ask}/asked",
        f"TIDE_CHECKPOINT_DONE={ask}/done",
        f"TIDE_RESTART_COUNT={launch.attempt - 1}",
    ]
    last = "" if said.where else last_whole(Path(directory))
    return [*told, f"TIDE_CHECKPOINT_LAST={last}"] if last else told


def place_of(key: Key) -> str:
    """As the keeper names it."""
    return f"{key[0]}.{key[1]}"


def last_whole(directory: Path) -> str:
    """The newest number there is, which its manifest makes whole; \"\" where nothing was saved yet."""
    try:
        names = list(islice(directory.iterdir(), ENTRIES_MAX))
    except OSError:
        return ""
    places = sorted((place for place in names if place.name.isdecimal()), reverse=True)
    return next((str(place) for place in places if (place / MANIFEST).is_file()), "")
