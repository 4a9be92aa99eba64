"""`tide slurm`: Slurm's commands as files, for whatever calls them by name."""

import os
import sys

from tidegate.cli.failure import FailureError, UsageError
from tidegate.cli.options import Command, Options, flag
from tidegate.cli.server import HOME, named_home
from tidegate.wire.slurm_bin import MARK, NAMES, text_of

HEAD_MAX = 4096


def slurm(options: Options) -> int:
    if not options.words or options.words[0] != "install" or len(options.words) > 2:
        raise UsageError("tide slurm: write tide slurm install, or tide slurm install DIR")
    folder = os.path.abspath(options.words[1]) if len(options.words) > 1 else default_folder()
    found = shadowed(folder)
    if options.check:
        return told(found, folder)
    foreign = [path for path in (f"{folder}/{name}" for name in NAMES) if os.path.lexists(path) and not is_ours(path)]
    if foreign:
        raise FailureError(f"{foreign[0]} is not ours and stays as it is; name another directory")
    os.makedirs(folder, exist_ok=True)
    home = named_home(options)
    for name in NAMES:
        write(f"{folder}/{name}", text_of(name, sys.executable, package(), home))
    print(f"wrote {len(NAMES)} commands to {folder}; put it first in your PATH:")
    print(f'export PATH="{folder}:$PATH"')
    if found:
        print(f"tide: {found[0]} is there too; which of them is called depends on PATH", file=sys.stderr)
    return 0


def default_folder() -> str:
    data = os.environ.get("XDG_DATA_HOME", "")
    return f"{data if data.startswith('/') else os.path.expanduser('~/.local/share')}/tidegate/slurm"


def package() -> str:
    """Where `import tidegate` finds it."""
    here = os.path.abspath(__file__)
    for _ in range(4):
        here = os.path.dirname(here)
    return here


def write(path: str, text: str) -> None:
    aside = f"{path}.new"
    with open(aside, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(aside, 0o755)
    os.replace(aside, path)


def is_ours(path: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return MARK in file.read(HEAD_MAX)
    except OSError:
        return False


def shadowed(folder: str) -> list[str]:
    """Commands of the same names elsewhere on PATH that are not ours."""
    found = []
    for place in os.environ.get("PATH", "").split(":"):
        if not place or os.path.abspath(place) == folder:
            continue
        for name in NAMES:
            path = os.path.join(place, name)
            if os.access(path, os.X_OK) and not is_ours(path):
                found.append(path)
    return found


def told(found: list[str], folder: str) -> int:
    for path in found:
        print(path)
    if found:
        print(f"{folder} before these in PATH would hide them", file=sys.stderr)
        return 1
    print("no other Slurm is on PATH")
    return 0


SLURM = Command(
    "slurm",
    "Writes Slurm's commands (sbatch, squeue, srun, ...) as small executables into DIR and prints the line for PATH. "
    "They ask the server that --home or TIDEGATE_HOME names now, or your own. Nothing that is not ours is overwritten. "
    "Without installing: tide sbatch, tide squeue and so on.",
    slurm,
    HOME,
    flag("--check", "only tell which commands of another Slurm would be hidden; 1 if there are any"),
    words="install [DIR]",
    most=2,
    examples="""
tide slurm install
tide slurm install ~/bin
tide slurm install --check
""",
)
COMMANDS = {"slurm": SLURM}
