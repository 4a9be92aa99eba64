"""Snapshots: files beside the journal, so that whoever makes one never holds the writer up.

`journal.db-snapshot-LINE-N` is the state after event N of that line (a journal that is restored goes on under
another one). A line of text says what it is, with the length and the checksum of what follows. The file is complete or
it is not there: written under another name, then renamed.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from tidegate.journals.layout import beside

KEPT = 2
MARK = "tidegate-snapshot"
HEADER_MAX = 200
LINE_SHOWN = 8
"""So many of its letters are in the name of the file; the header has them all."""
_SPECIAL = re.compile(r"[*?\[]")


def snapshot_path(journal: Path, line: str, seq: int) -> Path:
    return beside(journal, f"-snapshot-{line[:LINE_SHOWN]}-{seq}")


def snapshot_numbers(journal: Path, line: str) -> list[int]:
    """Newest first."""
    start = f"{journal.name}-snapshot-{line[:LINE_SHOWN]}-"
    ends = [path.name.removeprefix(start) for path in _files(journal, f"-snapshot-{line[:LINE_SHOWN]}-*")]
    return sorted((int(end) for end in ends if end.isdecimal()), reverse=True)


def snapshot_files(journal: Path) -> list[Path]:
    """Of every line, and what a writer of one left when it was killed."""
    return sorted(_files(journal, "-snapshot-*"))


def _files(journal: Path, pattern: str) -> Iterator[Path]:
    return journal.parent.glob(_SPECIAL.sub(r"[\g<0>]", journal.name) + pattern)


def write_snapshot(journal: Path, line: str, seq: int, body: bytes) -> None:
    put(snapshot_path(journal, line, seq), sealed(line, seq, body))
    for number in snapshot_numbers(journal, line)[KEPT:]:
        snapshot_path(journal, line, number).unlink(missing_ok=True)


def read_snapshot(journal: Path, line: str, seq: int) -> bytes:
    """Empty where it is damaged, or of another line."""
    try:
        return opened(snapshot_path(journal, line, seq).read_bytes(), line, seq)
    except OSError:
        return b""


def read_snapshots(journal: Path, line: str) -> Iterator[tuple[int, bytes]]:
    for seq in snapshot_numbers(journal, line):
        yield seq, read_snapshot(journal, line, seq)


def remove_unfinished(journal: Path) -> None:
    for path in _files(journal, "-snapshot-*.new-*"):
        path.unlink(missing_ok=True)


def sealed(line: str, seq: int, body: bytes) -> bytes:
    return f"{MARK} {line} {seq} {len(body)} {crc32(body)}\n".encode() + body


def opened(content: bytes, line: str, seq: int) -> bytes:
    header, end, body = content[:HEADER_MAX].partition(b"\n")
    body = content[len(header) + len(end) :]
    return body if header.decode(errors="replace") == f"{MARK} {line} {seq} {len(body)} {crc32(body)}" else b""


def put(path: Path, content: bytes) -> None:
    """The file is there whole, and safe, or not at all."""
    new = beside(path, f".new-{os.getpid()}")
    try:
        with new.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """What was renamed in it stays so after a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
