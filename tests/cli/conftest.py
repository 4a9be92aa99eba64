"""`tide` as a user runs it, against a server that says what the test wants."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.fake_server import FakeServer
from tidegate.cli.client import Client

Tide = Callable[..., subprocess.CompletedProcess[str]]
Begin = Callable[..., "subprocess.Popen[bytes]"]
TIDE = (sys.executable, "-m", "tidegate.cli.main")


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command leaves its connection to the end of the process; a test closes those made in this one."""
    made: list[Client] = []
    begin = Client.__init__

    def init(client: Client, *words: Any, **named: Any) -> None:
        begin(client, *words, **named)
        made.append(client)

    monkeypatch.setattr(Client, "__init__", init)
    yield
    for client in made:
        client.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder for a server's state, with the mark of one that has had a server."""
    path = tmp_path / "home"
    path.mkdir()
    (path / "journal.db").touch()
    return path


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    strange = ("TIDE", "XDG_DATA", "COLUMNS", "NO_COLOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(strange)}
    return {**kept, "TIDEGATE_HOME": str(home), "HOME": str(home.parent), "TZ": "UTC", "TERM": "xterm"}


@pytest.fixture
def tide(env: dict[str, str], tmp_path: Path) -> Tide:
    """Runs `tide WORDS`; more environment by name."""

    def run(*words: object, said: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*TIDE, *map(str, words)], input=said, capture_output=True, text=True, check=False,
            env={**env, **more}, cwd=tmp_path, timeout=60,
        )  # fmt: skip

    return run


@pytest.fixture
def begin(env: dict[str, str]) -> Iterator[Begin]:
    """Starts `tide WORDS` and leaves it running; ended at the latest with the test."""
    begun: list[subprocess.Popen[bytes]] = []

    def start(*words: object, stderr: int = subprocess.PIPE) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen([*TIDE, *map(str, words)], env=env, stdout=subprocess.PIPE, stderr=stderr)
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.communicate()


@pytest.fixture
def server(home: Path) -> Iterator[FakeServer]:
    with FakeServer(home) as fake:
        yield fake
