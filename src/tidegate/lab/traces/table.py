"""Traces with a header line and separated columns."""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.lab.traces.fields import BadLineError, LeftOutError
from tidegate.lab.workload import Kind, Problems, TraceError

Row = list[str]
Lines = Iterable[tuple[int, str]]
TakeRow = Callable[[int, Row], None]


@dataclass(frozen=True, slots=True)
class Header:
    names: tuple[str, ...]  # lower case
    separator: str

    def has(self, *names: str) -> bool:
        return all(name in self.names for name in names)

    def at(self, name: str) -> int:
        """The column's place, or one where every row has the empty field that `split_row` adds."""
        return self.names.index(name) if name in self.names else len(self.names)

    def require(self, path: Path, names: Sequence[str], what: str) -> None:
        missing = [name for name in names if name not in self.names]
        if missing:
            raise TraceError(
                f"{path} looks like {what}, but its header lacks {', '.join(missing)}; it has {', '.join(self.names)}"
            )


def parse_header(line: str) -> Header:
    separator = next((mark for mark in "|,\t" if mark in line), ",")
    cells = next(csv.reader([line], delimiter=separator), [])
    return Header(tuple(cell.strip().lower() for cell in cells), separator)


def split_row(text: str, header: Header) -> Row:
    """The fields, stripped, and one empty field for the columns that the file does not have."""
    if '"' in text and header.separator == ",":
        try:
            cells = next(csv.reader([text], strict=True))
        except csv.Error:
            raise BadLineError(Kind.UNREADABLE, "a quotation mark is not closed") from None
    else:
        cells = text.split(header.separator)
    if len(cells) < len(header.names):
        missing = ", ".join(header.names[len(cells) :])
        raise BadLineError(Kind.MISSING_COLUMN, f"{len(cells)} of {len(header.names)} columns: no {missing}")
    if len(cells) > len(header.names):
        raise BadLineError(Kind.UNREADABLE, f"{len(cells)} columns where the header has {len(header.names)}")
    cells.append("")
    return [cell.strip() for cell in cells]


@dataclass(frozen=True, slots=True)
class Table:
    """An opened trace whose header was found."""

    path: Path
    header: Header
    header_line: int
    lines: Lines


def data_rows(table: Table, problems: Problems) -> Iterator[tuple[int, str]]:
    """The lines after the header that are not blank; the others are counted as comments."""
    for line, text in table.lines:
        if line <= table.header_line or not text or text.isspace():
            problems.comments += 1
        else:
            yield line, text


def read_rows(table: Table, problems: Problems, take: TakeRow) -> None:
    """Gives every row to `take`; what it raises about a line is counted."""
    for line, text in data_rows(table, problems):
        try:
            take(line, split_row(text, table.header))
        except BadLineError as bad:
            problems.error(line, bad.kind, str(bad))
        except LeftOutError as left:
            problems.leave_out(left.kind)
