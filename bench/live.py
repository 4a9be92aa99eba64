"""What the benchmarks of the live server share: a server on a home of its own, a quick client, and CPU time.

Everything is asked of a real `tide up` through its socket, as any client would.
"""

import os
import select
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Self

import msgspec

from bench.kit import TIDE

READY_S_MAX = 30
WAIT_S_MAX = 600
END_S_MAX = 10
LOOK_S = 0.02
BATCH = 1000
TICKS = os.sysconf("SC_CLK_TCK")
TRUE = {"command": ["/bin/true"], "stdout": "/dev/null"}
DRAIN, RESUME = "drain", "resume"


class Client:
    """One connection that is kept. No HTTP library: those cost more than what is measured."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(WAIT_S_MAX)
        self.socket.connect(str(path))
        self.unread = b""

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        self.socket.sendall(request(method, path, body))
        return msgspec.json.decode(self.answer())

    def answer(self) -> bytes:
        while b"\r\n\r\n" not in self.unread:
            self._more()
        head, _, rest = self.unread.partition(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:")
        while len(rest) < length:
            self.unread = b""
            self._more()
            rest += self.unread
        self.unread = rest[length:]
        if not head.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"the server refused: {head[:30]!r} {rest[:500]!r}")
        return rest[:length]

    def _more(self) -> None:
        more = self.socket.recv(1 << 20)
        if not more:
            raise RuntimeError("the server hung up")
        self.unread += more

    def submit_many(self, body: dict[str, Any], count: int, size: int = BATCH) -> list[int]:
        """In batches; the ids, in order."""
        ids: list[int] = []
        while len(ids) < count:
            jobs = [body] * min(size, count - len(ids))
            ids += [result["id"] for result in self.ask("POST", "/v1/jobs/batch", {"jobs": jobs})["results"]]
        return ids

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", "/v1/status")
        return found

    def wait(self, what: Callable[[dict[str, Any]], bool]) -> float:
        """Until the status is such; the time when it was seen."""
        give_up = monotonic() + WAIT_S_MAX
        while not what(status := self.status()):
            if monotonic() > give_up:
                raise RuntimeError(f"not within {WAIT_S_MAX} s: {status}")
            pause(LOOK_S)
        return monotonic()

    def nodes(self, action: str) -> None:
        """Drained nodes run nothing new: so a queue can be made, and be let go."""
        for node in self.ask("GET", "/v1/nodes")["nodes"]:
            self.ask("POST", f"/v1/nodes/{node['name']}/{action}", {"why": "benchmark"})


def request(method: str, path: str, body: Any = None) -> bytes:
    data = b"" if body is None else msgspec.json.encode(body)
    head = (f"{method} {path} HTTP/1.1", "Host: tide", "Content-Type: application/json", f"Content-Length: {len(data)}")
    return "\r\n".join((*head, "", "")).encode() + data


def pause(seconds: float) -> None:
    select.select([], [], [], seconds)


class Server:
    """`tide up` on a new home; at the end server, keeper and home are gone."""

    def __init__(self, *options: str) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="tide-bench-")
        self.home = Path(self.folder.name) / "home"
        self.log = Path(self.folder.name) / "said"
        with self.log.open("wb") as log:
            command = [*TIDE, "up", "--home", str(self.home), *options]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self.client = self._reached()
        except BaseException:
            self.close()
            raise

    def _reached(self) -> Client:
        give_up = monotonic() + READY_S_MAX
        while monotonic() < give_up and self.process.poll() is None:
            try:
                client = Client(self.home / "tide.sock")
            except OSError:
                pause(LOOK_S)
                continue
            if client.ask("GET", "/v1/nodes")["nodes"]:
                return client
        raise RuntimeError(f"tide up does not answer:\n{self.log.read_text(errors='replace')[-2000:]}")

    def connect(self) -> Client:
        return Client(self.home / "tide.sock")

    def pids(self) -> list[int]:
        """The server, its keeper, and what lives below them."""
        keeper = self._keeper()
        return family([self.process.pid, *([keeper] if keeper else [])])

    def _keeper(self) -> int:
        """The lock of a keeper names it; 0: there is none."""
        try:
            pid = int((self.home / "keeper" / "lock").read_text().split()[0])
            return pid if b"keeper" in Path(f"/proc/{pid}/cmdline").read_bytes() else 0
        except (OSError, ValueError, IndexError):
            return 0

    def close(self) -> None:
        """What still runs is a /bin/true or ends with the keeper, which is asked until nothing runs."""
        keeper = self._keeper()
        end(self.process.pid)
        self.process.wait()
        if keeper:
            end(keeper)
        self.folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def end(pid: int) -> None:
    """Asks it to, and again; makes it, when it does not listen."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        give_up = monotonic() + END_S_MAX
        while monotonic() < give_up:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            if select.select([handle], [], [], 0.5)[0]:
                return
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


# -- what the kernel counts --------------------------------------------------------------------------------


def family(roots: Iterable[int]) -> list[int]:
    """These processes and all that descend from them."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := stat_of(int(entry.name))):
            below.setdefault(int(fields[1]), []).append(int(entry.name))
    found = list(dict.fromkeys(roots))
    for pid in found:
        found += [child for child in below.get(pid, ()) if child not in found]
    return found


def stat_of(pid: int) -> list[str]:
    """The fields of its stat after the name, which may hold anything; none: it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_s(pids: Sequence[int]) -> float:
    """User and system time of these, and of all children they have waited for."""
    return sum(int(ticks) for pid in pids for ticks in stat_of(pid)[11:15]) / TICKS


def memory_kib(pid: int, kind: str) -> int:
    """`Rss`, or `Pss`: what is shared is counted in parts."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1])
    raise RuntimeError(f"no {kind} of process {pid}")
