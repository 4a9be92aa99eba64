"""Any of Slurm's commands: its words, environment and input go to the server, which answers what to print.

What only the client can do, with its user's rights, comes back as a step to take: read a script, make a directory, run
a task. See `tidegate.slurm.desk` for the other side.
"""

import os
import sys

from tidegate.cli import late
from tidegate.cli.client import GoneError
from tidegate.cli.failure import FailureError
from tidegate.cli.options import Options
from tidegate.cli.quick_json import loads
from tidegate.cli.server import ALWAYS, KNOWN, RefusedError, Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MEET_AT = "TIDE_SRUN_AT"
ASKS = frozenset({"sbatch", "srun", "salloc"})
FED, MADE = 1, 2
SCRIPT_MAX = 4 << 20
STEPS_MAX = 1_000_000
NO_CONTROLLER = "Unable to contact slurm controller (connect failure)"
NO_SERVER = {
    "squeue": "slurm_load_jobs error: ",
    "scontrol": "slurm_load_jobs error: ",
    "sinfo": "slurm_load_partitions: ",
    "sbatch": "sbatch: error: Batch job submission failed: ",
    "srun": "srun: error: Unable to allocate resources: ",
    "salloc": "salloc: error: Job submit/allocate failed: ",
}


class StopError(FailureError):
    """What is wrong, as the command says it."""


class Talk:
    """One command in conversation with the server."""

    def __init__(self, name: str, words: list[str], place: str) -> None:
        self.name = name
        self.words = words
        self.place = place
        options = Options()
        options.__dict__["home"] = ""
        self.server = Server(options, ALWAYS if name in ASKS else KNOWN)
        self.key = os.urandom(9).hex() if name in ASKS else ""
        self.env = dict(os.environb)
        self.given = b""
        self.done = 0  # FED, MADE
        self.control = -1  # of a step that runs for a client elsewhere: the line to it

    def ask(self, name: str = "", words: "list[str] | None" = None) -> "tuple[int, bytes, bytes, Any]":
        """Exit code, output, error output, and the step to take, if any."""
        body = self.body(self.words if words is None else words)
        target = f"/v1/slurm/{name or self.name}"
        server = self.server
        octets = server.patiently(lambda: server.check(server.client.exchange("POST", target, body)).read(), again=True)
        return split(octets)

    def body(self, words: list[str]) -> bytes:
        mask = os.umask(0o22)
        os.umask(mask)
        try:
            cwd = os.getcwd()
        except OSError:
            cwd = "/"
        env = [name + b"=" + value for name, value in self.env.items()]
        texts = [cwd, f"{mask:o}", os.uname().nodename, self.key, self.place, *words]
        fields = [os.fsencode(text) for text in texts] + env + [self.given]
        return b"%d %d %d\n" % (len(words), len(env), self.done) + b"\0".join(fields)

    def run(self) -> int:
        for _ in range(STEPS_MAX):
            code, out, err, then = self.ask()
            put(1, out)
            put(2, err)
            if then is None:
                return code
            over = self.take(then)
            if over is not None:
                return over
        raise StopError(f"{self.name}: error: the server never comes to an answer")

    def take(self, then: "dict[str, Any]") -> int | None:
        """Does the step. None: the server is asked again; else that is the end."""
        match then["do"]:
            case "read":
                self.given = read(then["path"])
                self.done |= FED
            case "make":
                for folder in then["folders"]:
                    make(folder)
                self.done |= MADE
            case "again":
                pass
            case "wait":
                return self.wait(then["job"])
            case "write":
                with open(then["path"], "w", encoding="utf-8") as file:
                    file.write(then["text"])
                return 0
            case "step":
                return int(late("tidegate.cli.slurm.steps:run")(self, then))
            case "meet":
                return int(late("tidegate.cli.slurm.far:run")(self, then))
            case other:
                raise StopError(f"{self.name}: error: the server is of another version: it asks for {other!r}")
        return None

    def wait(self, job: int) -> int:
        """Until it is over; with its exit code."""
        while True:
            code, out, err, then = self.ask("-wait", [str(job)])
            put(1, out)
            put(2, err)
            if then is None:
                return code


def split(octets: bytes) -> "tuple[int, bytes, bytes, Any]":
    head, _, rest = octets.partition(b"\n")
    code, first, second = [int(word) for word in head.split()]
    out, err, more = rest[:first], rest[first : first + second], rest[first + second :]
    return code, out, err, loads(more) if more else None


def put(fd: int, octets: bytes) -> None:
    while octets:
        octets = octets[os.write(fd, octets) :]


def read(path: str) -> bytes:
    """The script: by its path, in one of the directories of PATH, or from standard input."""
    if not path:
        return whole(0)
    found = path
    if "/" not in path and not os.path.exists(path):
        for folder in os.environ.get("PATH", "").split(":"):
            if os.access(f"{folder}/{path}", os.R_OK) and os.path.isfile(f"{folder}/{path}"):
                found = f"{folder}/{path}"
                break
    try:
        fd = os.open(found, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        raise StopError(f"sbatch: error: Unable to open file {path}") from None
    try:
        return whole(fd)
    except OSError:
        raise StopError(f"sbatch: error: Unable to open file {path}") from None
    finally:
        os.close(fd)


def whole(fd: int) -> bytes:
    parts, size = [], 0
    while piece := os.read(fd, 1 << 16):
        parts.append(piece)
        size += len(piece)
        if size > SCRIPT_MAX:
            raise StopError(f"sbatch: error: the script is larger than {SCRIPT_MAX >> 20} MiB; put data in a file")
    return b"".join(parts)


def make(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError:
        return  # the job says what is wrong with it


def main(name: str, home: str = "", words: "list[str] | None" = None) -> int:
    """`home`: asked where nothing names another server. Without `words`: those of the process."""
    env = os.environ
    place = os.path.dirname(os.path.abspath(sys.argv[0])) if words is None else ""
    if home and not (env.get("TIDEGATE_HOME") or env.get("TIDE_HOME") or env.get("TIDEGATE_SERVER")):
        env["TIDEGATE_HOME"] = home
    try:
        meet_at = env.pop(MEET_AT, "")
        given = sys.argv[1:] if words is None else words
        if meet_at:
            return int(late("tidegate.cli.slurm.far:inside")(name, given, place, meet_at))
        return Talk(name, given, place).run()
    except StopError as error:
        put(2, f"{error}\n".encode())
        return 1
    except RefusedError as error:
        put(2, f"{name}: error: {error}\n".encode())
        return 1
    except GoneError as error:
        put(2, f"{name}: {error}\n{NO_SERVER.get(name, f'{name}: error: ')}{NO_CONTROLLER}\n".encode())
        return 1
    except FailureError as error:
        put(2, f"{name}: error: {error}\n".encode())
        return 1
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130
