"""What a benchmark gives: rows, each a figure of ours beside its rival."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

Pair = tuple[float, float]
"""(ours, rival) of one round."""


class MissingError(Exception):
    """Something the benchmark needs is not here; the text says what."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What the ratio has to be, and what it is meant to become."""

    sense: str  # "at least" or "at most"
    bound: float
    aim: float | None = None

    def is_met(self, ratio: float, wanted: float | None) -> bool | None:
        if wanted is None:
            return None
        return ratio >= wanted if self.sense == "at least" else ratio <= wanted


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    name: str
    unit: str
    ours: float | None  # medians over the rounds; None: skipped, `note` says why
    rival: float | None
    rival_is: str
    ratio: float | None  # ours / rival
    low: float | None = None  # the smallest and the largest ratio of one round
    high: float | None = None
    rounds: int = 0
    sense: str = ""
    bound: float | None = None
    aim: float | None = None
    met: bool | None = None  # None: no bound is set on this row
    aim_met: bool | None = None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(
    name: str, unit: str, pairs: Sequence[Pair], rival_is: str, bound: Bound | None = None, *, note: str = ""
) -> Row:
    ours, rival = median(one for one, _ in pairs), median(other for _, other in pairs)
    ratio, ratios = ours / rival, [one / other for one, other in pairs]
    return Row(
        name=name,
        unit=unit,
        ours=ours,
        rival=rival,
        rival_is=rival_is,
        ratio=ratio,
        low=min(ratios),
        high=max(ratios),
        rounds=len(pairs),
        sense=bound.sense if bound else "",
        bound=bound.bound if bound else None,
        aim=bound.aim if bound else None,
        met=bound.is_met(ratio, bound.bound) if bound else None,
        aim_met=bound.is_met(ratio, bound.aim) if bound else None,
        note=note,
    )


def skipped(name: str, why: str) -> Row:
    return Row(name=name, unit="", ours=None, rival=None, rival_is="", ratio=None, note=f"skipped: {why}")


# -- the table ---------------------------------------------------------------------------------------------

HEADER = ("benchmark", "ours", "rival", "ratio", "(rounds)", "bound", "aim", "", "rival is")


def table(rows: Sequence[Row]) -> str:
    cells = [HEADER, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADER))]
    lines = ["  ".join(_aligned(cell, width, at) for at, (cell, width) in enumerate(zip(line, widths, strict=True)))
             for line in cells]  # fmt: skip
    notes = [f"  {row.name}: {row.note}" for row in rows if row.note]
    return "\n".join([*(line.rstrip() for line in lines), *(["", "notes"] if notes else []), *notes])


def _aligned(cell: str, width: int, at: int) -> str:
    return cell.rjust(width) if 0 < at < 7 else cell.ljust(width)


def _cells(row: Row) -> tuple[str, ...]:
    if row.ratio is None:
        return (row.name, *[""] * 6, "SKIPPED", "")
    sign = "≥" if row.sense == "at least" else "≤"
    return (
        row.name,
        f"{_number(row.ours)} {row.unit}",
        _number(row.rival),
        f"{_number(row.ratio)}",
        f"({_number(row.low)}–{_number(row.high)})",
        f"{sign} {row.bound:g}" if row.bound is not None else "",
        f"{sign} {row.aim:g}" if row.aim is not None else "",
        _verdict(row),
        row.rival_is,
    )


def _verdict(row: Row) -> str:
    if row.met is None:
        return ""
    if not row.met:
        return "MISSED"
    return "aim" if row.aim_met else "ok"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
