"""Options as Slurm's commands read them: GNU's getopt_long, with its abbreviations and its words for what is wrong."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidegate.slurm.words import OPTION_FAULT, FaultError


class Kind(NamedTuple):
    name: str
    takes: str = ""  # "": no value, "=": one, "?": one only behind an equals sign


class Table(NamedTuple):
    """The options of a command."""

    long: Mapping[str, Kind]
    short: Mapping[str, Kind]


def table(text: str) -> Table:
    """Of `name[=|?][,x]` words: the long name, whether it takes a value, its short name."""
    long: dict[str, Kind] = {}
    short: dict[str, Kind] = {}
    for word in text.split():
        name, _, letter = word.partition(",")
        takes = name[-1] if name[-1] in "=?" else ""
        kind = Kind(name.rstrip("=?"), takes)
        long[kind.name] = kind
        if letter:
            short[letter] = kind
    return Table(long, short)


Given = list[tuple[str, str]]
"""Options by their long names, with their values, in order."""


def parse(command: str, words: Sequence[str], options: Table, *, ordered: bool) -> tuple[Given, list[str]]:
    """The options, and the other words. `ordered`: the first other word ends the options."""
    given: Given = []
    rest: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            rest += words[at:]
            break
        if word.startswith("--"):
            at += _long(command, word, words[at : at + 1], options, given)
        elif word.startswith("-") and len(word) > 1:
            at += _short(command, word, words[at : at + 1], options, given)
        else:
            rest.append(word)
            if ordered:
                rest += words[at:]
                break
    return given, rest


def _long(command: str, word: str, following: Sequence[str], options: Table, given: Given) -> int:
    name, equals, value = word[2:].partition("=")
    kind = options.long.get(name)
    if kind is None:
        near = {one.name: one for known, one in options.long.items() if known.startswith(name)}
        if len(near) > 1:
            shown = " ".join(f"'--{one}'" for one in near)
            raise wrong(command, f"option '{word}' is ambiguous; possibilities: {shown}")
        kind = next(iter(near.values()), None)
    if kind is None:
        raise wrong(command, f"unrecognized option '{word}'")
    if equals and not kind.takes:
        raise wrong(command, f"option '--{kind.name}' doesn't allow an argument")
    if equals or kind.takes != "=":
        given.append((kind.name, value))
        return 0
    if not following:
        raise wrong(command, f"option '--{kind.name}' requires an argument")
    given.append((kind.name, following[0]))
    return 1


def _short(command: str, word: str, following: Sequence[str], options: Table, given: Given) -> int:
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        kind = options.short.get(letter)
        if kind is None:
            raise wrong(command, f"invalid option -- '{letter}'")
        if kind.takes == "":
            given.append((kind.name, ""))
        elif letters or kind.takes == "?":
            given.append((kind.name, letters))
            return 0
        elif not following:
            raise wrong(command, f"option requires an argument -- '{letter}'")
        else:
            given.append((kind.name, following[0]))
            return 1
    return 0


def wrong(command: str, text: str) -> FaultError:
    code = 1 if command in {"squeue", "sinfo", "sacct", "scancel"} else OPTION_FAULT
    return FaultError(f'{command}: {text}\nTry "{command} --help" for more information\n', code)
