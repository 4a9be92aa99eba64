"""What Slurm's real commands answered (`../shared/slurm/golden`), and how two answers are held against each other."""

import re
from dataclasses import dataclass
from difflib import unified_diff
from socket import gethostname

from tests.conftest import SHARED

GOLDEN = SHARED / "slurm" / "golden"

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
DATE = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4}(?: \(\d+\))?")
LONG_TIME = re.compile(r"\b(?:\d+-)?\d\d:\d\d:\d\d(?:\.\d+)?\b")
SHORT_TIME = re.compile(r"(?<=[ |])\d{1,2}:\d\d(?=[ |])")
NODE = re.compile(r"\bn(?:ode)?(\d+|\[[\d,-]+\])(?![\w=])")
BLANKS = re.compile(r"[ \t]+")
SID = re.compile(r" AllocNode:Sid=\S+")
PRIORITY = re.compile(r"\b42949\d{5}\b")
MEASURED = re.compile(r"\b(CPULoad|FreeMem|OS|NodeHostName|Port)=.*?(?= \w+=|$)", re.MULTILINE)


@dataclass(frozen=True)
class Said:
    """One answer: the command, what it wrote, and its exit code."""

    command: str
    out: str
    err: str
    code: int


def read(name: str) -> Said:
    text = (GOLDEN / f"{name}.txt").read_bytes().decode("utf-8", "replace")
    first, _, rest = text.partition("\n")
    if "--- exit " not in rest:  # the variables of a job
        return Said(first.removeprefix("$ "), rest, "", 0)
    body, _, code = rest.rpartition("--- exit ")
    out, _, err = body.partition("--- stderr\n")
    return Said(first.removeprefix("$ "), out, err, int(code))


def plain(text: str, places: dict[str, str] | None = None) -> list[str]:
    """Lines with times, names of hosts, of the one partition and of folders made equal, and single blanks. Columns are
    held against each other by the headers, which are compared as they are.
    """
    for place, name in (places or {}).items():
        text = text.replace(place, name)
    text = DATE.sub("<date>", text)
    text = ISO.sub("<when>", text)
    text = LONG_TIME.sub("<lasting>", text)
    text = SHORT_TIME.sub("<time>", text)
    text = NODE.sub(r"n\1", text)
    text = re.sub(r"\bmain\b", "debug", text)
    text = re.sub(r"\btidegate\b", "burst", text)
    text = SID.sub(" AllocNode:Sid=<sid>", text)
    text = re.sub(rf"\b{re.escape(gethostname())}\b", "host", text)
    text = PRIORITY.sub("<priority>", text)
    text = MEASURED.sub(r"\1=<measured>", text)
    return [BLANKS.sub(" ", line).strip() for line in text.splitlines() if line.strip()]


def without(lines: list[str], *patterns: str) -> list[str]:
    return [line for line in lines if not any(re.search(pattern, line) for pattern in patterns)]


def variables(text: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in text.splitlines() if line.startswith(("SLURM", "CUDA")))


def differences(ours: list[str], theirs: list[str], *, unordered: bool = False) -> str:
    """As a patch from what Slurm says to what we say; nothing where they are the same."""
    if unordered:
        ours, theirs = sorted(ours), sorted(theirs)
    return "\n".join(unified_diff(theirs, ours, "slurm", "ours", n=0, lineterm=""))
