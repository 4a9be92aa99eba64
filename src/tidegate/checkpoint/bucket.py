"""Checkpoints in a bucket, by fsspec: files first, and the manifest last. There is no rename; a manifest is one write.

A number without a manifest is nothing, whatever lies there. Numbers are never used again, so what a cut upload left
cannot mix with the next.
"""

import json
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from tidegate.checkpoint.files import DIGITS, KEPT, MANIFEST, NoCheckpointError, is_whole, read_manifest, seal

STAGING = "tide-checkpoint-"


class Bucket:
    """`url` is of a folder, such as s3://bucket/run-12. What it needs to get in, fsspec finds in the environment."""

    def __init__(self, url: str, attempt: str = "0") -> None:
        del attempt  # a staging directory is of this machine, and goes with its process
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise NoCheckpointError(f"{url} needs fsspec; pip install 'tidegate[checkpoint]'") from None
        try:
            self.fs: Any
            self.fs, self.root = url_to_fs(url.rstrip("/"))
        except ImportError as error:
            raise NoCheckpointError(f"{url}: {error}; for S3 pip install 'tidegate[s3]'") from None
        except ValueError as error:
            raise NoCheckpointError(f"{url}: {error}; give a URL such as s3://bucket/folder") from None

    def stage(self) -> Path:
        return Path(mkdtemp(prefix=STAGING))

    def has_staged(self, directory: Path) -> bool:
        return directory.name.startswith(STAGING)

    def discard(self, staged: Path) -> None:
        rmtree(staged, ignore_errors=True)

    def publish(self, staged: Path) -> str:
        seal(staged)
        place = self._path(max(self._numbers(), default=0) + 1)
        manifest = (staged / MANIFEST).read_text(encoding="utf-8")
        for name in read_manifest(manifest):
            self.fs.put_file(str(staged / name), f"{place}/{name}")
        self.fs.pipe_file(f"{place}/{MANIFEST}", manifest.encode())
        self.discard(staged)
        self._tidy()
        return f"{self.fs.unstrip_protocol(place)}"

    def latest(self) -> Path | None:
        """Fetched into a directory of this machine, which is the caller's."""
        for number in sorted(self._numbers(), reverse=True):
            place, here = self._path(number), self.stage()
            if self._fetch(place, here) and is_whole(here):
                return here
            self.discard(here)
        return None

    def _fetch(self, place: str, here: Path) -> bool:
        """False: there is no manifest, or not all that it names."""
        try:
            text = self.fs.cat_file(f"{place}/{MANIFEST}").decode()
            (here / MANIFEST).write_text(text, encoding="utf-8")
            for name in read_manifest(text):
                target = here / name
                target.parent.mkdir(parents=True, exist_ok=True)
                self.fs.get_file(f"{place}/{name}", str(target))
        except (FileNotFoundError, json.JSONDecodeError, LookupError, TypeError):
            return False
        return True

    def _tidy(self) -> None:
        """The last two stay. A manifest goes first: cut then, it is no checkpoint rather than half of one."""
        whole = [number for number in self._numbers() if self.fs.exists(f"{self._path(number)}/{MANIFEST}")]
        kept = set(sorted(whole)[-KEPT:])
        newest = max(kept)
        for number in self._numbers():
            if number not in kept and number < newest:
                with suppress(FileNotFoundError):
                    if number in whole:
                        self.fs.rm_file(f"{self._path(number)}/{MANIFEST}")
                    self.fs.rm(self._path(number), recursive=True)

    def _path(self, number: int) -> str:
        return f"{self.root}/{number:0{DIGITS}}"

    def _numbers(self) -> list[int]:
        self.fs.invalidate_cache()
        try:
            names = [str(path).rstrip("/").rpartition("/")[2] for path in self.fs.ls(self.root, detail=False)]
        except FileNotFoundError:
            return []
        return [int(name) for name in names if len(name) == DIGITS and name.isdecimal()]
