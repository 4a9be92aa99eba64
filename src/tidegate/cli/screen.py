"""What people see: plain tables that fit the screen, times, sizes and colours. No `rich`: it is slow to load."""

import os
import sys
import time

from tidegate.wire.look import cut, painted, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH_MIN = 40
WIDTH_USUAL = 80
ELASTIC_MIN = 8


def width(out: int = 1) -> int:
    """Columns of the screen that `out` goes to; 0: nobody's screen, so as wide as it needs."""
    if not os.isatty(out):
        return 0
    told = os.environ.get("COLUMNS", "")
    if told.isascii() and told.isdigit() and len(told) < 5:
        return max(WIDTH_MIN, int(told))
    try:
        columns = os.get_terminal_size(out).columns
    except OSError:
        columns = 0
    return max(WIDTH_MIN, columns) if columns else WIDTH_USUAL


def colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, word: str, *, coloured: bool) -> str:
    return painted(text, word) if coloured else text


def table(
    heads: "Sequence[str]", rows: "Sequence[Sequence[str]]", *, right: str = "", elastic: str = "", across: int = 0
) -> list[str]:
    """Lines with aligned columns. Columns named in `elastic` give way where the screen (`across`) is too narrow."""
    widths = [max([len(head), *(len(row[at]) for row in rows)]) for at, head in enumerate(heads)]
    if across:
        for at in reversed([at for at, head in enumerate(heads) if head in elastic.split()]):
            excess = sum(widths) + 2 * (len(widths) - 1) - across
            if excess > 0:
                widths[at] = max(min(widths[at], ELASTIC_MIN), widths[at] - excess)
    rightly = [head in right.split() for head in heads]
    return [line(row, widths, rightly) for row in (heads, *rows)]


def line(row: "Sequence[str]", widths: list[int], rightly: list[bool]) -> str:
    cells = []
    for cell, wide, right in zip(row, widths, rightly, strict=True):
        short = cut(cell, wide)
        cells.append(short.rjust(wide) if right else short.ljust(wide))
    return "  ".join(cells).rstrip()


def facts(pairs: "Sequence[tuple[str, str]]") -> list[str]:
    """One fact a line, its name before it; those that are not known are left out."""
    known = [(name, value) for name, value in pairs if value]
    wide = max((len(name) for name, _ in known), default=0)
    return [f"{name:{wide}}  {plain(value)}" for name, value in known]


def span(ms: int) -> str:
    """A duration in two units at most: `1d04h`, `5m20s`, `3.2s`."""
    if ms < 10_000:
        return f"{ms / 1000:.1f}s"
    seconds = ms // 1000
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02}s"
    if seconds < 86_400:
        return f"{seconds // 3600}h{seconds // 60 % 60:02}m"
    return f"{seconds // 86_400}d{seconds // 3600 % 24:02}h"


def moment(ms: int | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000)) if ms else ""


def memory(mib: int) -> str:
    """To three digits, in the largest unit below it."""
    return short_size(mib, "MGTP")


def kib(amount: int) -> str:
    return short_size(amount, "KMGTP")


def short_size(amount: int, units: str) -> str:
    size = float(amount)
    for unit in units[:-1]:
        if size < 1000:
            return f"{size:.3g}{unit}"
        size /= 1024
    return f"{size:.4g}{units[-1]}"


def number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def json_rows(rows: "Sequence[object]") -> None:
    """A list with a row a line: JSON for programs, and lines for grep."""
    from tidegate.cli.quick_json import dumps

    out = sys.stdout.write
    out("[")
    for at, row in enumerate(rows):
        out(f"{',' if at else ''}\n{dumps(row)}")
    out("\n]\n" if rows else "]\n")


def json_value(value: object) -> None:
    from tidegate.cli.quick_json import dumps

    sys.stdout.write(dumps(value) + "\n")
