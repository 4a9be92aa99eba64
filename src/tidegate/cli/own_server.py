"""A server of its own for a demo: nothing is left behind, also after Ctrl-C."""

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tidegate.cli.client import Client, Place
from tidegate.cli.failure import FailureError
from tidegate.cli.quick_json import dumps, loads

READY_S = 30.0
END_S = 10.0
"""What cannot be ended by then is left."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def until_interrupted(play: Callable[[], int]) -> int:
    """What `play` returns; Ctrl-C ends it in good order."""
    for number in ENDING:
        signal.signal(number, interrupt)
    try:
        return play()
    except KeyboardInterrupt:
        print("\nInterrupted: cancelling what runs.", flush=True)
        return 130


def on_own_server(policy: str, nodes: int, cpus: int, play: Callable[[Client], int]) -> int:
    """What `play` returns of a new server with such nodes, of which nothing is left then."""
    home, server, client = "", None, None
    try:
        with held():
            home = tempfile.mkdtemp(prefix="tide-demo-")
            server = start(home, policy, nodes, cpus)
        client = Client(Place(home=home))
        wait_ready(client, server)
        return play(client)
    finally:
        with held():
            if server is not None:
                end(client or Client(Place(home=home)), server)
            if home:
                shutil.rmtree(home, ignore_errors=True)


def interrupt(_signal: int = 0, _frame: object = None) -> None:
    """Once: from here on everything is being ended, and another Ctrl-C must not come between."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Ctrl-C waits for the end of this: what is begun must be known before it can be ended, and then be ended."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        interrupt()


def start(home: str, policy: str, nodes: int, cpus: int) -> "subprocess.Popen[bytes]":
    command = [
        sys.executable, "-P", "-m", "tidegate.cli.main", "up", "--home", home, "--nodes", str(nodes),
        "--cpus", str(cpus), "--memory", "1G", "--policy", policy,
    ]  # fmt: skip
    with Path(home, "demo.log").open("wb") as log:
        # In a group of its own: Ctrl-C is for the demo, which then ends the server in good order.
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def wait_ready(client: Client, server: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + READY_S
    while True:
        try:
            ask(client, "GET", "/v1/status")
        except FailureError:
            if server.poll() is not None or time.monotonic() > until:
                log = Path(client.place.home, "demo.log").read_text(errors="replace").strip()
                raise FailureError(f"the server of the demo did not start: {log or 'it said nothing'}") from None
            time.sleep(0.05)
        else:
            return


def end(client: Client, server: "subprocess.Popen[bytes]") -> None:
    """Nothing is left running: jobs are cancelled, seen to end, and then the server goes, and its keeper with it."""
    with contextlib.suppress(FailureError):
        wait_ready(client, server)  # one that has only begun may have a keeper already
        until = time.monotonic() + END_S
        while (rows := ask(client, "GET", "/v1/jobs")["jobs"]) and time.monotonic() < until:
            for job in sorted({row["id"] for row in rows}):
                with contextlib.suppress(FailureError):
                    ask(client, "POST", f"/v1/jobs/{job}/cancel", {})
            time.sleep(0.05)
        ask(client, "POST", "/v1/stop", {"keeper": True})
    client.close()
    server.terminate()
    try:
        server.wait(END_S)
    except subprocess.TimeoutExpired:
        server.kill()


def ask(client: Client, method: str, path: str, body: object = None) -> Any:
    answer = client.exchange(method, path, None if body is None else dumps(body).encode())
    octets = loads(answer.read())
    if answer.status >= 300:
        raise FailureError(f"{octets['error']['what']}; {octets['error']['cure']}")
    return octets
