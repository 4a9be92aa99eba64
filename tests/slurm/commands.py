"""Slurm's own commands, and what can go wrong with them."""

import subprocess
from collections.abc import Iterator, Sequence

COMMAND_S_MAX = 20
AWAY = ("Unable to contact", "Connection refused", "Socket timed out", "Communication connection failure")


class SlurmError(Exception):
    """A command was refused; the text is what it said."""


class AwayError(Exception):
    """Nobody answered: whether anything was done is not known."""


def table(*command: str, fields: Sequence[str]) -> Iterator[list[str]]:
    for line in ask(*command, "-h", "-O", ",".join(f"{field}:|" for field in fields)).splitlines():
        yield [cell.strip() for cell in line.split("|")[: len(fields)]]


def ask(*command: str, env: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_S_MAX, env=env)
    except subprocess.TimeoutExpired as error:
        raise AwayError(f"{command[0]} took longer than {COMMAND_S_MAX} s") from error
    said = done.stderr.strip() or f"{command[0]} ended with {done.returncode}"
    if done.returncode:
        raise AwayError(said) if any(words in said for words in AWAY) else SlurmError(said)
    return done.stdout.strip()
