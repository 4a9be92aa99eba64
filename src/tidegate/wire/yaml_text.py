"""YAML text into a tree of nodes that know their place; for files that people write by hand.

It takes the part of YAML that such files need, and refuses what can surprise or hurt: a key given twice (YAML
would silently take the last), aliases and tags, many documents, very deep or large files. Plain words stay the
text they are, so that a policy may be called `no`; what a text means is for the reader of the tree to say.
"""

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

BYTES_MAX = 64 * 1024
DEPTH_MAX = 10
NODES_MAX = 5_000

_PLAIN = re.compile(r"[A-Za-z](?:[A-Za-z0-9 ,;()/%._+-]*[A-Za-z0-9)])?")
_NOT_TEXT = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])


class Finding(NamedTuple):
    """Something wrong in a file: where, what, and what to do about it. Line 0: the file as a whole."""

    line: int
    column: int
    path: str
    message: str
    cure: str

    def __str__(self) -> str:
        place = f"{self.line}:{self.column}: " if self.line else ""
        what = f"{self.path}: {self.message}" if self.path else self.message
        return f"{place}{what}; {self.cure}"


class TextError(Exception):
    """The text as a whole cannot be read."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__("\n".join(map(str, findings)))
        self.findings = findings


@dataclass(frozen=True, slots=True)
class Scalar:
    line: int
    column: int
    text: str
    plain: bool  # written without quotes

    @property
    def empty(self) -> bool:
        """YAML's null: nothing, or one of its names."""
        return self.plain and self.text in {"", "~", "null", "Null", "NULL"}


@dataclass(frozen=True, slots=True)
class Items:
    line: int
    column: int
    items: list["Node"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Entries:
    line: int
    column: int
    entries: list[tuple["Node", "Node"]] = field(default_factory=list)


Node = Scalar | Items | Entries


def read_tree(text: str | bytes) -> Node:
    """The one document in the text. Raises TextError."""
    import yaml

    whole = _decoded(text)
    try:
        return _Builder().build(yaml.parse(whole, Loader=yaml.SafeLoader))
    except yaml.reader.ReaderError as error:
        before = whole[: error.position]
        line, column = before.count("\n") + 1, error.position - (before.rfind("\n") + 1) + 1
        raise TextError(
            Finding(line, column, "", f"the character {chr(error.character)!a} is not text", "remove it")
        ) from error
    except yaml.MarkedYAMLError as error:
        raise TextError(_syntax(whole, error)) from error
    except ValueError as error:  # PyYAML lets through what int() and chr() refuse in escapes and directives
        cure = "check the escapes (\\x, \\u, \\U) and lines that begin with %"
        raise TextError(Finding(0, 0, "", "not YAML: a number in it is out of range", cure)) from error


def _decoded(text: str | bytes) -> str:
    large = Finding(0, 0, "", f"larger than {BYTES_MAX // 1024} KiB", "shorten it; a policy takes a page")
    if len(text) > BYTES_MAX:
        raise TextError(large)
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        column = error.start - (text.rfind(b"\n", 0, error.start) + 1) + 1
        raise TextError(Finding(line, column, "", "not UTF-8", "save the file as UTF-8")) from error


def _syntax(text: str, error: Any) -> Finding:
    """What PyYAML found, in words that help; `error` is its MarkedYAMLError."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    lines = text.splitlines()
    here = lines[line - 1] if 0 < line <= len(lines) else ""
    if here[column - 1 : column] == "\t" or here[: len(here) - len(here.lstrip())].count("\t"):
        return Finding(line, column, "", "a tab where YAML wants spaces", "indent with spaces")
    problem = str(error.problem or error)
    if "mapping values are not allowed" in problem:
        return Finding(
            line, column, "", "a second ': ' in one line", "put the text in quotes, or check the indentation"
        )
    if "could not find expected ':'" in problem:
        return Finding(line, column, "", "a key without ': '", "write 'key: value'")
    if "found character" in problem:
        return Finding(line, column, "", problem, "put the text in quotes")
    context = f"{error.context}, " if error.context else ""
    cure = "check the indentation, quotes and brackets here and in the line before"
    return Finding(line, column, "", f"not YAML: {context}{problem}", cure)


class _Builder:
    """Events into nodes, without recursion: a bomb of brackets ends at DEPTH_MAX."""

    def __init__(self) -> None:
        self.open: list[tuple[Items | Entries, list[Node]]] = []
        self.roots: list[Node] = []
        self.nodes = 0
        self.odd: list[Finding] = []

    def build(self, events: Any) -> Node:
        for event in events:
            self._take(event)
        if self.odd:
            raise TextError(*self.odd)
        if not self.roots:
            raise TextError(Finding(1, 1, "", "the file is empty", "write at least 'name: …'"))
        return self.roots[0]

    def _take(self, event: Any) -> None:
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        match type(event).__name__:
            case "ScalarEvent":
                self._count(event, line, column)
                if not event.value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in event.value):
                    self._refuse(line, column, "half a character (\\ud800 to \\udfff)", "write the character itself")
                self._add(Scalar(line, column, event.value, event.style is None))
            case "MappingStartEvent":
                self._count(event, line, column)
                self.open.append((Entries(line, column), []))
            case "SequenceStartEvent":
                self._count(event, line, column)
                self.open.append((Items(line, column), []))
            case "MappingEndEvent" | "SequenceEndEvent":
                self._close()
            case "AliasEvent":
                self._refuse(line, column, "an alias (*name)", "write the value out")
            case "DocumentStartEvent" if self.roots:
                raise TextError(Finding(line, column, "", "a second document", "keep one; remove the line '---'"))

    def _count(self, event: Any, line: int, column: int) -> None:
        self.nodes += 1
        if self.nodes > NODES_MAX:
            raise TextError(Finding(line, column, "", f"more than {NODES_MAX:,} values", "shorten the file"))
        if len(self.open) >= DEPTH_MAX:
            raise TextError(Finding(line, column, "", f"nested deeper than {DEPTH_MAX}", "remove brackets or levels"))
        if event.tag is not None:
            self._refuse(line, column, f"a tag ({event.tag[:60]})", "remove it; the meaning follows from the place")

    def _refuse(self, line: int, column: int, what: str, cure: str) -> None:
        self.odd.append(Finding(line, column, "", f"{what} is not used here", cure))
        if what.startswith("an alias"):
            self._add(Scalar(line, column, "", plain=True))

    def _add(self, node: Node) -> None:
        if self.open:
            self.open[-1][1].append(node)
        else:
            self.roots.append(node)

    def _close(self) -> None:
        node, children = self.open.pop()
        if isinstance(node, Items):
            node.items.extend(children)
        else:
            node.entries.extend((a, b) for at, (a, b) in enumerate(pairwise(children)) if at % 2 == 0)
        self._add(node)


def quoted(text: str, *, in_list: bool = False) -> str:
    """The text as one YAML scalar that every reader of YAML takes as text."""
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT and not (in_list and "," in text):
        return text
    import yaml

    dumped: str = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=1 << 30)
    return dumped.removesuffix("\n")
