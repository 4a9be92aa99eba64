"""`tide`: finds the command, hands it the command line, and turns refusals into an exit code.

Exit codes: 0 done, 1 refused or failed (a message says what to do), 2 the command line itself is wrong. Nothing is
imported here that the command does not need: starting is most of what a quick command costs.
"""

import io
import os
import sys

from tidegate import __version__
from tidegate.cli import late
from tidegate.cli.failure import FailureError, UsageError
from tidegate.cli.options import Command, help_text, parse
from tidegate.wire.slurm_bin import NAMES as SLURM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

GROUPS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    ("work", (
        ("submit", "tidegate.cli.submit", "submit a command, a script or an array of them"),
        ("run", "tidegate.cli.run", "submit, show the output, exit with the job's code"),
        ("wait", "tidegate.cli.wait", "return when jobs have ended"),
        ("cancel", "tidegate.cli.act", "end jobs"),
        ("hold", "tidegate.cli.act", "keep waiting jobs from starting"),
        ("release", "tidegate.cli.act", "undo a hold"),
        ("requeue", "tidegate.cli.act", "end what runs and let it wait again"),
        ("suspend", "tidegate.cli.act", "stop what runs where it is, until tide resume"),
        ("checkpoint", "tidegate.cli.checkpoint", "ask jobs to save themselves; say that it is done"),
    )),
    ("look", (
        ("queue", "tidegate.cli.jobs", "what waits and runs"),
        ("show", "tidegate.cli.show", "everything about a job"),
        ("logs", "tidegate.cli.logs", "what a job has written"),
        ("nodes", "tidegate.cli.nodes", "the nodes, and what is free"),
        ("share", "tidegate.cli.share", "whose turn it is among queues, and why"),
        ("tide", "tidegate.cli.tide", "how demand stands in every pool, and what that changes"),
        ("events", "tidegate.cli.events", "everything that happens"),
    )),
    ("server", (
        ("up", "tidegate.cli.control", "run the server"),
        ("down", "tidegate.cli.control", "stop it; running jobs go on"),
        ("status", "tidegate.cli.control", "how it is"),
        ("policy", "tidegate.cli.policy", "see, check, compare and change who goes first"),
        ("drain", "tidegate.cli.nodes", "let a node run empty"),
        ("resume", "tidegate.cli.act", "let a node take work again, or a suspended job go on"),
        ("reserve", "tidegate.cli.reserve", "keep capacity for somebody, or for maintenance, for a time"),
        ("quota", "tidegate.cli.share", "let a queue exceed its limit for a time"),
        ("backup", "tidegate.cli.keeping", "copy the journal to a file"),
        ("restore", "tidegate.cli.keeping", "make a home of a backup"),
        ("token", "tidegate.cli.keeping", "tokens for clients that come by TCP"),
    )),
    ("slurm", (
        ("slurm", "tidegate.cli.slurm.install", "install Slurm's commands; tide sbatch, tide squeue, ... do without"),
    )),
    ("laboratory", (
        ("replay", "tidegate.cli.lab", "run a recorded workload through the live loop, under any policy"),
        ("lab", "tidegate.cli.lab", "trials: how well bursts are told, and what a tide is worth"),
        ("generate", "tidegate.cli.lab", "write a synthetic workload with bursts"),
        ("demo", "tidegate.cli.lab", "a real burst on this machine, watched live"),
    )),
)  # fmt: skip
MODULES = {name: module for _, entries in GROUPS for name, module, _ in entries}

EXAMPLES = """\
examples:
  tide submit --cpus 4 --time 2h -- python train.py
  tide submit --array 0-999%50 -- sh -c 'work "$TIDE_ARRAY_INDEX"'
  tide run -- make -j4
  tide queue
  tide replay trace.swf.gz --capacity 512 --policy easy --policy tide

`tide COMMAND --help` tells more about each.
"""


def overview() -> str:
    lines = [
        "usage: tide COMMAND [OPTIONS]",
        "",
        "Tidegate, a burst-aware batch scheduler: who runs, where and when, and why.",
    ]
    for title, entries in GROUPS:
        lines += ["", f"{title}:", *(f"  {name:10}{about}" for name, _, about in entries)]
    return "\n".join(lines) + "\n\n" + EXAMPLES


def version() -> str:
    from tidegate import compiled

    return f"tide {__version__} ({'compiled' if compiled() else 'pure Python'} kernel)"


def command_named(name: str) -> Command:
    module = MODULES.get(name)
    if module is None:
        from difflib import get_close_matches

        near = get_close_matches(name, MODULES, 1, 0.6)
        cure = f"did you mean tide {near[0]}?" if near else "tide --help lists those there are"
        raise UsageError(f"there is no command {name[:40]!r}; {cure}")
    found: Command = late(f"{module}:COMMANDS")[name]
    return found


def split(argv: "Sequence[str]") -> tuple[str, list[str]]:
    """The command and its words. Options before the command are its own, as if they stood behind it."""
    before: list[str] = []
    words = list(argv)
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word in {"--help", "-h", "--version", "-V"}:
            return word, []
        before.append(word)
        if word == "--home" and words:
            before.append(words.pop(0))
    if not words:
        return "", before
    return words[0], before + words[1:]


def dispatch(argv: "Sequence[str]") -> int:
    name, words = split(argv)
    if name in {"--version", "-V"}:
        print(version())
        return 0
    if name == "help" and words:
        name, words = words[0], ["--help"]
    if name in {"--help", "-h", "help"}:
        print(overview(), end="")
        return 0
    if name in SLURM:
        answer: int = late("tidegate.cli.slurm.client:main")(name, "", words)
        return answer
    if not name:
        raise UsageError(f"no command\n\n{overview()}")
    command = command_named(name)
    options = parse(command, words)
    if options.help:
        print(help_text(command), end="")
        return 0
    return command.run(options)


def prepare_streams() -> None:
    """A closed stream takes what is written, and its number goes to no socket, which would take it for a request; one
    that cannot show a character shows another."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (open until the end)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def main(argv: "Sequence[str] | None" = None) -> int:
    prepare_streams()
    try:
        code = dispatch(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except FailureError as failure:
        text = str(failure)
        print(text if text.startswith("tide ") else f"tide: {text}", file=sys.stderr)
        return failure.code
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter complains about what is left to write
        return 0
    except KeyboardInterrupt:
        print("tide: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        what = error.filename or "the output"
        print(f"tide: {what}: {error.strerror or error}; see that it is there, yours and has room", file=sys.stderr)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
