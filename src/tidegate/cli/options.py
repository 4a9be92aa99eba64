"""What a command may be told, as data: read, checked and shown in `--help` from the same lines.

Its own reader, and not `argparse`: that (with the `re` and `gettext` it needs) takes as long to import as the
interpreter to start, and script lines (`#TIDE --cpus 4`) are read by the same data.
"""

from tidegate.cli.failure import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

WIDTH = 80
INDENT = 26


class Options:
    """What was said: an attribute an option, by its long name; `words` are the rest, `given` what was said at all."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.given: set[str] = set()
        self.dashed = False  # the words came after `--`

    def __getattr__(self, name: str) -> "Any":
        raise AttributeError(name)


class Option:
    """`--name METAVAR`, or a flag where `metavar` is empty. `read` makes a value of the text, or raises ValueError."""

    def __init__(
        self,
        names: str,
        metavar: str,
        about: str,
        read: "Callable[[str], Any]" = str,
        *,
        default: "Any" = None,
        many: bool = False,
        dest: str = "",
    ) -> None:
        self.names = names.split()
        self.metavar = metavar
        self.about = about
        self.read = read
        self.default = default
        self.many = many
        self.dest = dest or self.names[0].lstrip("-").replace("-", "_")


def flag(names: str, about: str) -> Option:
    return Option(names, "", about, bool, default=False)


class Command:
    """One command: how it is called, what it takes, and what runs it."""

    def __init__(
        self,
        name: str,
        about: str,
        run: "Callable[[Options], int]",
        *entries: "Option | str",
        words: str = "",
        least: int = 0,
        most: int = 0,
        tail: bool = False,
        examples: str = "",
    ) -> None:
        self.name = name
        self.about = about
        self.run = run
        self.entries = entries  # a string is a heading
        self.words = words
        self.least = least
        self.most = most  # -1: any number
        self.tail = tail  # from the first word on nothing is an option
        self.examples = examples

    def options(self) -> list[Option]:
        return [entry for entry in self.entries if isinstance(entry, Option)]


def choice(*allowed: str) -> "Callable[[str], str]":
    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text!r} is none of them; write {' or '.join(allowed)}")
        return text

    return read


def count(text: str) -> int:
    return whole(text, 1)


def whole(text: str, least: int = 0) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 13):
        raise ValueError(f"{text[:40]!r} is not a whole number; write one of {least} or more")
    if int(text) < least:
        raise ValueError(f"{text} is too small; write {least} or more")
    return int(text)


def at_most(most: int, read: "Callable[[str], Any]", shown: str = "") -> "Callable[[str], Any]":
    """What the server takes no more of."""

    def bounded(text: str) -> "Any":
        value = read(text)
        if value > most:
            raise ValueError(f"{text[:40]} is too much; write at most {shown or f'{most:,}'}")
        return value

    return bounded


def decimal(text: str) -> float:
    head, _, tail = text.removeprefix("-").partition(".")
    if not (f"{head}{tail}".isdigit() and text.isascii() and len(text) < 20):
        raise ValueError(f"{text[:40]!r} is not a number; write one such as 2 or 0.5")
    return float(text)


def parse(command: Command, argv: "Sequence[str]") -> Options:
    """Reads the words after the command's name. `--help` gives options with `help` set, unchecked."""
    said = Options()
    said.__dict__["help"] = False
    for option in command.options():
        said.__dict__[option.dest] = [] if option.many else option.default
    read(command, argv, said)
    if not said.help:
        check_words(command, said)
    return said


def read(command: Command, argv: "Sequence[str]", said: Options) -> None:
    known = {name: option for option in command.options() for name in option.names}
    at = 0
    while at < len(argv):
        word = argv[at]
        at += 1
        if word == "--":
            said.dashed = True
            said.words.extend(argv[at:])
            return
        if word in {"--help", "-h"} and word not in known:
            said.__dict__["help"] = True
            return
        if not word.startswith("-") or word == "-":
            said.words.append(word)
            if command.tail:
                said.words.extend(argv[at:])
                return
            continue
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        option = known.get(name)
        if option is None:
            raise UsageError(unknown(command, name, known))
        if not option.metavar:
            if equals:
                raise UsageError(f"tide {command.name}: {name} takes no value; write {name} alone")
            value = "1"
        elif not equals:
            if at == len(argv):
                raise UsageError(f"tide {command.name}: {name} lacks its value; write {name} {option.metavar}")
            value = argv[at]
            at += 1
        store(command, option, name, value, said)


def store(command: Command, option: Option, name: str, value: str, said: Options) -> None:
    try:
        found = option.read(value)
    except ValueError as error:
        raise UsageError(f"tide {command.name}: {name}: {error}") from None
    said.given.add(option.dest)
    if option.many:
        kept = said.__dict__[option.dest]
        if isinstance(found, list):
            kept.extend(found)
        else:
            kept.append(found)
    else:
        said.__dict__[option.dest] = found


def unknown(command: Command, name: str, known: "dict[str, Option]") -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1, 0.6)
    cure = f"did you mean {near[0]}?" if near else f"tide {command.name} --help lists those there are"
    return f"tide {command.name}: there is no option {name[:40]}; {cure}"


def check_words(command: Command, said: Options) -> None:
    number = len(said.words)
    if number < command.least:
        raise UsageError(f"tide {command.name}: {command.words or 'something'} is missing; {usage(command)}")
    if command.most >= 0 and number > command.most:
        extra = said.words[command.most]
        raise UsageError(f"tide {command.name}: {extra[:60]!r} is one word too many; {usage(command)}")


def usage(command: Command) -> str:
    options = " [OPTIONS]" if command.entries else ""
    return f"usage: tide {command.name}{options}{' ' if command.words else ''}{command.words}"


def help_text(command: Command) -> str:
    lines = [usage(command), "", *wrap(command.about, WIDTH)]
    if command.entries and isinstance(command.entries[0], Option):
        lines += ["", "options:"]
    for entry in command.entries:
        if isinstance(entry, str):
            lines += ["", f"{entry}:"]
        else:
            lines += option_lines(entry)
    if command.examples:
        lines += ["", "examples:", *(f"  {line}".rstrip() for line in command.examples.strip("\n").split("\n"))]
    return "\n".join(lines) + "\n"


def option_lines(option: Option) -> list[str]:
    names = ", ".join(sorted(option.names, key=len))
    head = f"  {names} {option.metavar}".rstrip()
    lines = wrap(option.about + ("; may be repeated" if option.many else ""), WIDTH - INDENT)
    if len(head) >= INDENT - 1:
        return [head, *(" " * INDENT + line for line in lines)]
    first, *rest = lines or [""]
    return [f"{head:{INDENT}}{first}".rstrip(), *(" " * INDENT + line for line in rest)]


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters; a newline in the text begins a new one."""
    lines = []
    for part in text.split("\n"):
        line = ""
        for word in part.split():
            if line and len(line) + 1 + len(word) > width:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        lines.append(line)
    return lines
