"""Jobs and tasks as people name them: `12`, `12[5]` or `12_5`, `12-20`, `12[0-4,7]`, and lists of those."""

from tidegate.cli.failure import UsageError
from tidegate.cli.values import job_number
from tidegate.wire.arrays import parse_indices
from tidegate.wire.units import UnitError

TASKS_MAX = 100_000
Task = tuple[int, int]
"""(job, index); index -1: all of the job."""


def tasks_of(command: str, words: list[str]) -> list[Task]:
    """In the order named, each once."""
    found: dict[Task, None] = {}
    for word in words:
        for part in split(word):
            try:
                found.update(dict.fromkeys(expand(part, TASKS_MAX - len(found))))
            except ValueError as error:
                raise UsageError(f"tide {command}: {error}") from None
    return list(found)


def split(word: str) -> list[str]:
    """At the commas that stand outside of brackets."""
    parts, deep, begin = [], False, 0
    for at, mark in enumerate(word):
        if mark == "," and not deep:
            parts.append(word[begin:at])
            begin = at + 1
        deep = mark == "[" or (deep and mark != "]")
    return [part.strip() for part in (*parts, word[begin:])]


def expand(part: str, room: int) -> list[Task]:
    job, bracket, inside = part.partition("[")
    if bracket:
        if not inside.endswith("]"):
            raise UnitError(f"{part[:40]!r} lacks its ]", "write such as 12[5] or 12[0-4]")
        indices = parse_indices(inside[:-1], part)
        refuse_many(len(indices), room)
        return [(job_number(job), index) for index in indices]
    job, low, index = part.partition("_")
    if low:
        return [(job_number(job), parse_indices(index, part)[0])]
    first, dash, last = part.partition("-")
    begin, end = job_number(first), job_number(last if dash else first)
    if end < begin:
        raise UnitError(f"{part[:40]!r} ends before it begins", f"write {end}-{begin}")
    refuse_many(end - begin + 1, room)
    return [(number, -1) for number in range(begin, end + 1)]


def refuse_many(number: int, room: int) -> None:
    if number > room:
        raise UnitError(f"that names more than {TASKS_MAX:,} jobs", "name fewer at a time")


def shown(job: int, index: int | None = None) -> str:
    return str(job) if index is None or index < 0 else f"{job}[{index}]"


def on_wire(task: Task) -> str:
    job, index = task
    return str(job) if index < 0 else f"{job}_{index}"


def of_task(index: int) -> dict[str, int]:
    """As a query or a body."""
    return {"index": index} if index >= 0 else {}
