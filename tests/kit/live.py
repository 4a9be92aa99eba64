"""A real server in a process of its own, and a plain client: for tests that kill things."""

import http.client
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from tidegate.wire.sockets import reach

ROOT = Path(__file__).resolve().parents[2]
READY_S = 60
PATIENCE_S = 120


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "TIDEGATE_HOME": str(home)}


class Connection(http.client.HTTPConnection):
    """To the Unix socket of a home."""

    def __init__(self, home: Path, timeout: float = 30) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = str(home / "tide.sock")

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        reach(self.path, self.sock.connect)


class RefusedError(Exception):
    def __init__(self, status: int, body: dict[str, Any]) -> None:
        error = body["error"]
        super().__init__(f"{status}: {error['what']}; {error['cure']}")
        self.status = status
        self.body = body


class Client:
    """Keeps its connection; a broken one is made anew by whoever calls again."""

    def __init__(self, home: Path) -> None:
        self.connection = Connection(home)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.connection.close()

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        raw = self.raw(method, path, body, headers)
        return json.loads(raw)

    def raw(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        try:
            self.connection.request(method, path, data, headers or {})
            answer = self.connection.getresponse()
            raw = answer.read()
        except (OSError, http.client.HTTPException):
            self.connection.close()
            raise
        if answer.status >= 400:
            raise RefusedError(answer.status, json.loads(raw))
        return raw

    def submit(self, *command: str, **fields: Any) -> int:
        job: int = self.ask("POST", "/v1/jobs", {"command": list(command), **fields})["id"]
        return job

    def rows(self, **query: Any) -> list[dict[str, Any]]:
        words = "&".join(f"{name}={value}" for name, value in query.items())
        rows: list[dict[str, Any]] = self.ask("GET", f"/v1/jobs?{words}")["jobs"]
        return rows

    def show(self, job: int) -> dict[str, Any]:
        shown: dict[str, Any] = self.ask("GET", f"/v1/jobs/{job}")
        return shown

    def wait(self, *jobs: int, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """Until all of them have ended."""
        until, ended = time.monotonic() + patience_s, 0
        names = ",".join(map(str, jobs))
        while True:
            body: dict[str, Any] = self.ask("GET", f"/v1/wait?job={names}&ended={ended}&timeout_ms=5000")
            ended = body["ended"]
            if ended == body["total"]:
                return body
            if time.monotonic() > until:
                raise TimeoutError(f"{ended} of {body['total']} tasks of {names[:80]} ended in {patience_s} s")


class LiveServer:
    """`tide up` in a process of its own. What it says is in `said`."""

    def __init__(self, home: Path, *options: str) -> None:
        self.home = home
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None
        self.log = home.with_name(f"{home.name}.said")
        self.clients: list[Client] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.clean()

    @property
    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def start(self, ready: bool = True) -> None:
        command = [sys.executable, "-m", "tidegate.cli.main", "up", "--home", str(self.home), *self.options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT, env=environment(self.home)
            )
        if ready:
            self.wait_ready()

    def wait_ready(self) -> None:
        assert self.process is not None
        until = time.monotonic() + READY_S
        with_end = select.poll()
        end = os.pidfd_open(self.process.pid)
        with_end.register(end, select.POLLIN)
        try:
            while time.monotonic() < until:
                try:
                    with Client(self.home) as client:
                        client.ask("GET", "/v1/status")
                except (OSError, http.client.HTTPException):
                    if with_end.poll(20):
                        raise AssertionError(f"the server ended:\n{self.said[-3000:]}") from None
                else:
                    return
        finally:
            os.close(end)
        raise AssertionError(f"the server did not answer in {READY_S} s:\n{self.said[-3000:]}")

    def client(self) -> Client:
        """Closed at the end, with the server."""
        self.clients.append(Client(self.home))
        return self.clients[-1]

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(30)

    def keeper_pid(self) -> int:
        return int((self.home / "keeper" / "lock").read_text().split()[0])

    def clean(self) -> None:
        """Nothing is left: jobs are cancelled, the server stopped, the keeper told to go."""
        if self.process is not None and self.process.poll() is None:
            client = self.client()
            for row in client.rows():
                try:
                    client.ask("POST", f"/v1/jobs/{row['id']}/cancel", {})
                except RefusedError:
                    continue  # it ended meanwhile
            self.stop()
        for client in self.clients:
            client.connection.close()
        end_keeper(self.home)


def end_keeper(home: Path) -> None:
    """Ends the keeper of this home, if it lives, and what it still runs."""
    try:
        pid = int((home / "keeper" / "lock").read_text().split()[0])
        end = os.pidfd_open(pid)
    except (OSError, ValueError, IndexError):
        return
    try:
        if b"keeper" in Path(f"/proc/{pid}/cmdline").read_bytes():
            signal.pidfd_send_signal(end, signal.SIGTERM)
            select.select([end], [], [], 10)
    except (OSError, ProcessLookupError):
        pass
    finally:
        os.close(end)


def until(look: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """What `look` gives as soon as it is true. Looked at again and again, with a pause from the system's timer."""
    end = time.monotonic() + patience_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise TimeoutError(f"not within {patience_s} s")
        select.select([], [], [], 0.01)


def pause(rng: random.Random, least_s: float, most_s: float) -> None:
    """Lets a random time pass, for faults at random moments."""
    select.select([], [], [], rng.uniform(least_s, most_s))


def started(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def submit_with_keys(home: Path, name: str, bodies: Sequence[dict[str, Any]]) -> list[int]:
    """As a careful program does it: each with a key, and again until it is acknowledged."""
    ids: list[int] = []
    end = time.monotonic() + PATIENCE_S
    with Client(home) as client:
        for number, body in enumerate(bodies):
            while len(ids) == number:
                try:
                    ids.append(client.ask("POST", "/v1/jobs", {**body, "key": f"{name}-{number}"})["id"])
                except (OSError, http.client.HTTPException):
                    if time.monotonic() > end:
                        raise
                    select.select([], [], [], 0.02)
    return ids
