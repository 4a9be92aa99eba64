"""`up`, `backup`, `restore` and `token`: what they hand to the composition root, and what they make of its words."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tidegate.app.home import Home
from tidegate.cli.main import main


def plant(monkeypatch: pytest.MonkeyPatch, module: str, **names: Any) -> None:
    planted = ModuleType(module)
    vars(planted).update(names)
    monkeypatch.setitem(sys.modules, module, planted)


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch, home: Path) -> list[Any]:
    """The options that the server was given."""
    given: list[Any] = []

    def serve(options: Any) -> int:
        given.append(options)
        return 3

    plant(monkeypatch, "tidegate.app.serve", serve=serve)
    monkeypatch.setenv("TIDEGATE_HOME", str(home))
    return given


def test_up_hands_its_options_over(serving: list[Any], home: Path):
    assert main(["up"]) == 3
    one = serving.pop()
    assert (one.home, one.detach, one.policy, one.listen, one.engine) == (str(home), False, "", "", "local")
    assert (one.nodes, one.cpus, one.memory, one.gpus) == (0, 0, 0, None)
    words = "--detach --nodes 4 --cpus 8 --memory 16G --gpus 0 --policy easy --listen 127.0.0.1:7070 --engine virtual"
    assert main(["up", "--home", "else/where", *words.split()]) == 3
    one = serving.pop()
    assert (one.home, one.detach, one.policy, one.listen, one.engine) == (
        str(Path("else/where").absolute()), True, "easy", "127.0.0.1:7070", "virtual",
    )  # fmt: skip
    assert (one.nodes, one.cpus, one.memory, one.gpus) == (4, 8, 16384, 0)


@pytest.mark.usefixtures("serving")
def test_backup_and_restore(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    asked: list[tuple[str, ...]] = []

    def backup(*words: str) -> str:
        asked.append(words)
        return "1,234 events in f"

    class JournalError(Exception):
        pass

    def restore(*_: str, force: bool) -> str:
        if force:
            return "it goes on"
        raise JournalError("the home has newer events; move its journal away")

    plant(monkeypatch, "tidegate.app.keep", backup=backup, restore=restore, JournalError=JournalError)
    assert main(["backup", "f"]) == 0
    assert asked == [(str(home), str(Path("f").absolute()))]
    assert capsys.readouterr().out == "1,234 events in f\n"
    assert main(["backup", "f", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["said"] == "1,234 events in f"
    assert main(["restore", "f"]) == 1
    assert capsys.readouterr().err == "tide: the home has newer events; move its journal away\n"
    assert main(["restore", "--force", "f"]) == 0


@pytest.mark.usefixtures("serving")
def test_tokens(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    tokens: dict[str, int] = {}
    users: list[str] = []

    def add(where: str, name: str, user: str) -> str:
        assert where == str(home)
        if name in tokens:
            raise ValueError(f"there is a token {name}; remove it first")
        tokens[name] = 1_700_000_000_000
        users.append(user)
        return "s3cret"

    plant(monkeypatch, "tidegate.app.tokens", add=add, remove=lambda _, name: tokens.pop(name),
          listed=lambda _: [{"name": one, "user": "ann", "made_ms": made} for one, made in tokens.items()])  # fmt: skip
    assert main(["token", "list"]) == 0
    assert "no tokens" in capsys.readouterr().out
    assert main(["token", "add", "laptop"]) == 0
    assert capsys.readouterr().out == "s3cret\n"
    assert main(["token", "add", "laptop"]) == 1
    assert "remove it first" in capsys.readouterr().err
    assert main(["token", "list"]) == 0
    assert "laptop" in capsys.readouterr().out
    assert main(["token", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"name": "laptop", "user": "ann", "made_ms": 1_700_000_000_000}]
    assert main(["token", "remove", "laptop"]) == 0
    assert tokens == {}
    assert main(["token", "add", "phone", "--user", "ada"]) == 0
    assert users == ["", "ada"]


def test_a_journal_that_was_copied_here_is_for_its_server_alone(home: Path):
    for name in ("journal.db", "journal.db-snapshot-a-1"):
        (home / name).touch()
        (home / name).chmod(0o644)
    Home(home).prepare()
    assert {file.stat().st_mode & 0o777 for file in home.glob("journal.db*")} == {0o600}
