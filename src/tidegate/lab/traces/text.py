"""The text of a trace, line by line: plain or gzip, whole or cut, whatever its line ends and bytes."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from tidegate.lab.workload import Kind, Problems, TraceError

BLOCK_BYTES = 1 << 20
SAMPLE_BYTES = 1 << 16
INFLATED_BYTES = 1 << 16  # what is lost before damage is less than this
LINE_BYTES_MAX = 4 << 20
GZIP_MAGIC = b"\x1f\x8b"
UTF8_BOM = b"\xef\xbb\xbf"
GZIP_BITS = 31  # zlib's way to say: a gzip wrapper, largest window

UNPACK_FIRST = {
    b"PK\x03\x04": "a zip archive: unpack it and give the file inside",
    b"BZh": "bzip2: run `bunzip2` on it first",
    b"\xfd7zXZ": "xz: run `unxz` on it first",
    b"\x28\xb5\x2f\xfd": "zstd: run `unzstd` on it first",
    b"SQLite format 3": "an SQLite file: a journal of Tidegate is replayed as a journal, not as a trace",
    b"\xff\xfe": "UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "UTF-16 text: save it as UTF-8",
}


class Text:
    """Lines of a file. What is wrong with its bytes goes to `problems`; use as a context manager."""

    def __init__(self, path: Path, problems: Problems) -> None:
        self.path = path
        self.problems = problems
        self._cut: tuple[Kind, str] | None = None  # why the bytes end before the file does
        self._file = _open(path)
        try:
            self._begin()
        except BaseException:
            self._file.close()
            raise

    def _begin(self) -> None:
        try:
            packed = self._file.read(2) == GZIP_MAGIC
            self._file.seek(0)
        except OSError as error:
            raise _unreadable(self.path, error) from error
        self._blocks = self._inflated() if packed else self._raw()
        head = b""
        for block in self._blocks:
            head += block
            if len(head) >= SAMPLE_BYTES:
                break
        self._head = head.removeprefix(UTF8_BOM)
        _refuse_binary(self.path, head)
        if not head.strip():
            if self._cut is not None:
                raise TraceError(f"{self.path}: {self._cut[1]}, and nothing before that can be read: copy it again")
            raise TraceError(f"{self.path} is empty: nothing to replay; check how it was made or copied")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def sample(self) -> list[str]:
        """The first lines, to see what this is."""
        sample = self._head[:SAMPLE_BYTES]
        lines = sample.splitlines()
        if len(self._head) > SAMPLE_BYTES:
            del lines[-1]  # probably cut
        return [line.decode("utf-8", "replace") for line in lines]

    def lines(self) -> Iterator[tuple[int, str]]:
        """(number from 1, text without its end). \\n, \\r\\n and \\r all end a line, in any mixture."""
        number = 0
        carry = b""
        for block in self._all_blocks():
            data = carry + block
            tail = b""
            if data.endswith(b"\r"):  # whether \n follows is in the next block
                data, tail = data[:-1], b"\r"
            if b"\r" in data:
                data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            end = data.rfind(b"\n") + 1
            carry = data[end:] + tail
            if len(carry) > LINE_BYTES_MAX:
                raise TraceError(f"{self.path}: line {number + 1} has no end: this is no text with lines")
            lines = data[:end].decode("utf-8", "replace").split("\n")
            del lines[-1]  # what follows the last end: nothing
            yield from enumerate(lines, number + 1)
            number += len(lines)
        self.problems.lines = number + bool(carry)
        if self._cut is not None:
            kind, why = self._cut
            if carry:  # half a line could be read as a whole one with other numbers
                self.problems.error(number + 1, kind, f"{why}; this line is not whole")
            else:
                self.problems.note(0, kind, f"{why}; the lines before the cut are replayed")
        elif carry:
            yield number + 1, carry.removesuffix(b"\r").decode("utf-8", "replace")

    def _all_blocks(self) -> Iterator[bytes]:
        yield self._head
        yield from self._blocks

    def _raw(self) -> Iterator[bytes]:
        try:
            while block := self._file.read(BLOCK_BYTES):
                yield block
        except OSError as error:
            raise _unreadable(self.path, error) from error

    def _inflated(self) -> Iterator[bytes]:
        """Own inflation, because the gzip module drops what stands before a cut."""
        inflate = zlib.decompressobj(GZIP_BITS)
        for raw in self._raw():
            packed = raw
            while packed:
                if inflate.eof:  # another member follows, or padding
                    packed = packed.lstrip(b"\0")
                    inflate = zlib.decompressobj(GZIP_BITS) if packed else inflate
                    continue
                try:
                    block = inflate.decompress(packed, INFLATED_BYTES)
                except zlib.error as error:
                    self._cut = (Kind.CORRUPT_GZIP, f"the gzip data is damaged ({error})")
                    return
                if block:
                    yield block
                packed = inflate.unused_data or inflate.unconsumed_tail
        try:
            rest = inflate.flush()
        except zlib.error as error:
            self._cut = (Kind.CORRUPT_GZIP, f"the gzip data is damaged ({error})")
            return
        if rest:
            yield rest
        if not inflate.eof:
            self._cut = (Kind.TRUNCATED_GZIP, "the gzip file is cut short")


def _open(path: Path) -> BinaryIO:
    try:
        if path.is_dir():
            raise TraceError(f"{path} is a directory: give one trace file in it")
        return path.open("rb")
    except FileNotFoundError:
        raise TraceError(f"{path} does not exist: check the name") from None
    except PermissionError:
        raise TraceError(f"{path} may not be read by this user: check its permissions") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> TraceError:
    return TraceError(f"{path} cannot be read: {error}")


def _refuse_binary(path: Path, head: bytes) -> None:
    for magic, what in UNPACK_FIRST.items():
        if head.startswith(magic):
            raise TraceError(f"{path} is {what}")
    if b"\0" in head[:SAMPLE_BYTES]:
        raise TraceError(f"{path} is binary, not a trace: if it is an archive, unpack it and give a file inside")
