"""Checkpoints in a directory: published by one rename, so whole or not at all.

A staging directory is flushed, its manifest written last and flushed, and then it is renamed to the next number. What
is cut before that leaves a staging directory that nobody reads; what is cut after it leaves more old ones than two.
"""

import json
import os
from collections.abc import Iterator
from errno import EEXIST, ENOTEMPTY
from pathlib import Path
from shutil import rmtree

MANIFEST = "manifest.json"
STAGING, GONE = ".staging-", ".gone-"
KEPT = 2
DIGITS = 8
PUBLISH_TRIES_MAX = 100
CHUNK = 1 << 20

Manifest = dict[str, tuple[int, str]]
"""Of each file its size and its checksum."""


class NoCheckpointError(Exception):
    """Nothing can be saved, and what to do about it."""


class Directory:
    def __init__(self, place: Path, attempt: str = "0") -> None:
        self.place = place
        self.attempt = attempt

    def stage(self) -> Path:
        self.place.mkdir(parents=True, exist_ok=True)
        mine = f"{STAGING}{self.attempt}-{os.getpid()}-"
        for number in range(1, PUBLISH_TRIES_MAX):
            staged = self.place / f"{mine}{number}"
            try:
                staged.mkdir()
            except FileExistsError:
                continue
            return staged
        raise NoCheckpointError(f"{self.place} is full of {mine}*; remove them")

    def discard(self, staged: Path) -> None:
        rmtree(staged, ignore_errors=True)

    def has_staged(self, directory: Path) -> bool:
        return directory.name.startswith(STAGING) and directory.parent.resolve() == self.place.resolve()

    def publish(self, staged: Path) -> str:
        seal(staged)
        published = self._rename(staged)
        sync(self.place)
        self._tidy()
        return str(published)

    def _rename(self, staged: Path) -> Path:
        """To the next number. Where another process of the job takes it first, to the one after that."""
        for _ in range(PUBLISH_TRIES_MAX):
            number = max(self.numbers(), default=0) + 1
            published = self.place / f"{number:0{DIGITS}}"
            try:
                staged.rename(published)
            except OSError as error:
                if error.errno not in {EEXIST, ENOTEMPTY}:
                    raise
            else:
                return published
        raise NoCheckpointError(f"others publish in {self.place} all the time; save from one process")

    def _tidy(self) -> None:
        """Of the older ones the last stays. A removal that is cut must not leave a number, so it is renamed first."""
        for number in sorted(self.numbers())[:-KEPT]:
            gone = self.place / f"{GONE}{number}"
            rmtree(gone, ignore_errors=True)
            (self.place / f"{number:0{DIGITS}}").rename(gone)
        mine = f"{STAGING}{self.attempt}-"
        for path in self.place.iterdir():
            if path.name.startswith(GONE) or (path.name.startswith(STAGING) and not path.name.startswith(mine)):
                rmtree(path, ignore_errors=True)

    def numbers(self) -> list[int]:
        return [int(path.name) for path in self.place.iterdir() if len(path.name) == DIGITS and path.name.isdecimal()]

    def latest(self) -> Path | None:
        if not self.place.is_dir():
            return None
        places = [self.place / f"{number:0{DIGITS}}" for number in sorted(self.numbers(), reverse=True)]
        return next((place for place in places if is_whole(place)), None)


# -- manifests -----------------------------------------------------------------------------------------------


def seal(staged: Path) -> None:
    """Everything in it on disk, and then what there is, last."""
    manifest: Manifest = {}
    for path in files_in(staged):
        manifest[str(path.relative_to(staged))] = (path.stat().st_size, checksum(path))
        sync(path)
    text = json.dumps({"version": 1, "files": manifest}, indent=1)
    (staged / MANIFEST).write_text(text, encoding="utf-8")
    sync(staged / MANIFEST)
    for root, _, _ in os.walk(staged):
        sync(Path(root))


def files_in(staged: Path) -> Iterator[Path]:
    for path in sorted(staged.rglob("*")):
        if path.is_symlink():
            raise NoCheckpointError(f"{path.name} is a link, and what it leads to may change; save the file itself")
        if path.is_file() and path != staged / MANIFEST:
            yield path


def is_whole(place: Path) -> bool:
    try:
        manifest = read_manifest((place / MANIFEST).read_text(encoding="utf-8"))
        return all(matches(place / name, size, known) for name, (size, known) in manifest.items())
    except (OSError, ValueError, LookupError, TypeError):
        return False


def read_manifest(text: str) -> Manifest:
    """ValueError, LookupError, TypeError: it is none."""
    return {str(name): (int(size), str(known)) for name, (size, known) in json.loads(text)["files"].items()}


def matches(path: Path, size: int, known: str) -> bool:
    return path.stat().st_size == size and checksum(path) == known


def checksum(path: Path) -> str:
    from hashlib import blake2b

    found = blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            found.update(chunk)
    return found.hexdigest()


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
