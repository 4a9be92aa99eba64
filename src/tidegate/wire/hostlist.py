"""Names of nodes as Slurm writes them, `n[1-3,7],login`, and back."""

import re

HOSTS_MAX = 65_536
NUMBERED = re.compile(r"(.*?)(\d+)\Z", re.DOTALL)
PIECE = re.compile(r"([^,\[\]]*)(?:\[([^\]]*)\])?([^,\[\]]*)(?:,|\Z)")


class HostlistError(ValueError):
    """It cannot be read."""


def compress(names: "list[str] | tuple[str, ...]") -> str:
    """In the order given; neighbours of one stem share brackets."""
    parts: list[str] = []
    stem, run = "", list[str]()
    for name in names:
        found = NUMBERED.match(name)
        if found is None or (run and found[1] != stem):
            parts += bracketed(stem, run)
            run = []
        if found is None:
            parts.append(name)
        else:
            stem = found[1]
            run.append(found[2])
    return ",".join(parts + bracketed(stem, run))


def bracketed(stem: str, digits: list[str]) -> list[str]:
    if len(digits) < 2:
        return [stem + one for one in digits]
    ranges: list[list[str]] = []
    for one in digits:
        if ranges and follows(ranges[-1][-1], one):
            ranges[-1] = [ranges[-1][0], one]
        else:
            ranges.append([one])
    return [f"{stem}[{','.join('-'.join(ends) for ends in ranges)}]"]


def follows(one: str, other: str) -> bool:
    same_width = len(one) == len(other) or not (one.startswith("0") or other.startswith("0"))
    return same_width and int(other) == int(one) + 1


def expand(text: str) -> list[str]:
    """HostlistError for what is no list, or names too many."""
    found: list[str] = []
    at = 0
    while at < len(text):
        piece = PIECE.match(text, at)
        if piece is None or piece.end() == at:
            raise HostlistError(f"not a list of nodes: {text[:80]}")
        at = piece.end()
        stem, ranges, tail = piece[1], piece[2], piece[3]
        if ranges is None:
            found += [stem] if stem else []
        else:
            found += [f"{stem}{number}{tail}" for number in numbers(ranges)]
        if len(found) > HOSTS_MAX:
            raise HostlistError(f"more than {HOSTS_MAX} nodes")
    return found


def numbers(ranges: str) -> list[str]:
    found: list[str] = []
    for one in ranges.split(","):
        first, dash, last = one.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal()) or int(last) - int(first) >= HOSTS_MAX:
            raise HostlistError(f"not a range of nodes: {one[:40]}")
        width = len(first) if first.startswith("0") else 0
        found += [f"{number:0{width}d}" for number in range(int(first), int(last) + 1)]
    return found
