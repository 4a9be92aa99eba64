"""Which server a command talks to, and when it starts one."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from tests.cli.conftest import Tide
from tests.kit.fake_server import FakeServer
from tidegate.cli import server as finding
from tidegate.cli import starting
from tidegate.cli.client import Place
from tidegate.cli.failure import FailureError
from tidegate.cli.options import Options
from tidegate.cli.server import ALWAYS, KNOWN, NEVER, Server


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The places a server may be, none of them of this machine."""
    for name in ("TIDEGATE_HOME", "TIDEGATE_SERVER", "TIDEGATE_TOKEN", "TIDE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(finding, "SYSTEM_HOME", str(tmp_path / "system"))
    return SimpleNamespace(own=tmp_path / "data" / "tidegate", system=tmp_path / "system", other=tmp_path / "other")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where servers were started; each is there at once."""
    begun: list[str] = []

    def start(place: Any, _: float) -> None:
        begun.append(place.home)
        monkeypatch.setattr(Place, "connect", lambda *_: None)

    monkeypatch.setattr(starting, "start_server", start)
    return begun


def options(home: Path | None = None) -> Options:
    said = Options()
    said.__dict__["home"] = str(home) if home else None
    return said


def found(home: Path | None = None, start: int = ALWAYS) -> Path:
    return Path(Server(options(home), start).place.home)


def test_the_order_of_places(homes: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    with FakeServer(homes.own), FakeServer(homes.system), FakeServer(homes.other):
        assert found() == homes.own
        assert found(homes.other) == homes.other
        monkeypatch.setenv("TIDE_HOME", str(homes.system))
        assert found() == homes.system
        monkeypatch.setenv("TIDEGATE_HOME", str(homes.other))
        assert found() == homes.other
        monkeypatch.setenv("TIDEGATE_SERVER", "http://127.0.0.1:9")
        assert found(homes.own) == homes.own


def test_the_systems_server_serves_where_there_is_no_own(homes: SimpleNamespace):
    with FakeServer(homes.system):
        assert found() == homes.system


def test_a_stale_socket_is_no_server(homes: SimpleNamespace):
    with FakeServer(homes.own):
        pass
    assert (homes.own / "tide.sock").exists()
    with FakeServer(homes.system):
        assert found() == homes.system


def test_where_none_answers_one_is_started(
    homes: SimpleNamespace, started: list[str], capsys: pytest.CaptureFixture[str]
):
    assert found() == homes.own
    assert started == [str(homes.own)]
    assert capsys.readouterr().err == "tide: started a server for you (tide status, tide down)\n"


def test_a_home_that_was_named_is_where_it_is_started(homes: SimpleNamespace, started: list[str]):
    with FakeServer(homes.system):
        assert found(homes.other) == homes.other
    assert started == [str(homes.other)]


def test_what_only_looks_at_jobs_starts_none_where_there_are_none(homes: SimpleNamespace, started: list[str]):
    for start in (NEVER, KNOWN):
        with pytest.raises(FailureError, match="tide up starts one"):
            found(start=start)
    homes.own.mkdir(parents=True)
    (homes.own / "journal.db").touch()
    with pytest.raises(FailureError, match="no server runs in"):
        found(start=NEVER)
    assert started == []
    assert found(start=KNOWN) == homes.own


def run_that(returncode: int, words: str, then: Callable[[], object] = bool) -> Callable[..., int]:
    def run(command: list[str], said: IO[bytes], _: float) -> int:
        assert command[1:] == ["-P", "-m", "tidegate.cli.main", "up", "--detach", "--home", command[-1]]
        said.write(words.encode())
        then()
        return returncode

    return run


def test_starting_waits_until_the_server_answers(homes: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.geteuid", os.getuid)
    with FakeServer(homes.other) as fake:
        fake.stop()
        monkeypatch.setattr(starting, "run", run_that(0, "", fake.start))
        assert found(homes.other) == homes.other


def test_a_client_that_was_quicker_started_it(homes: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.geteuid", os.getuid)
    with FakeServer(homes.other) as fake:
        fake.stop()
        monkeypatch.setattr(starting, "run", run_that(1, "tide: somebody serves already", fake.start))
        assert found(homes.other) == homes.other


def test_a_server_that_will_not_start_says_why(homes: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(starting, "GIVEN_WAY_S", 0.1)
    monkeypatch.setattr("os.geteuid", os.getuid)
    homes.other.mkdir(exist_ok=True)
    (homes.other / "server.log").touch()
    monkeypatch.setattr(starting, "run", run_that(1, "some noise\ntide: the disk is full\n"))
    with pytest.raises(FailureError, match=r"could not be started: the disk is full; see .*server\.log"):
        found(homes.other)
    (homes.other / "server.log").unlink()
    monkeypatch.setattr(starting, "run", run_that(1, ""))
    with pytest.raises(FailureError, match=r"it said nothing$"):
        found(homes.other)


def test_a_server_that_takes_too_long_is_given_up(homes: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    def run(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("tide", 60)

    monkeypatch.setattr(starting, "run", run)
    with pytest.raises(FailureError, match="after 300 s"):
        found()


def test_none_is_started_in_the_home_of_somebody_else(homes: SimpleNamespace):
    homes.other.mkdir()  # by this process, and the client believes that it is user 1000
    if os.getuid() == 1000:
        pytest.skip("this is user 1000")
    with pytest.raises(FailureError, match="belongs to another user"):
        found(homes.other)


def test_status_and_down_start_none(tide: Tide, tmp_path: Path):
    for command in ("status", "down"):
        done = tide(command, "--home", tmp_path / "none")
        assert (done.returncode, "tide up starts one" in done.stderr) == (1, True)
    assert not (tmp_path / "none").exists()
    assert tide("status", "--json", "--home", tmp_path / "none").stdout == '{"up":false}\n'
    done = tide("show", "12", "--home", tmp_path / "none")
    assert (done.returncode, "tide up starts one" in done.stderr) == (1, True)


def test_a_server_that_still_reads_its_journal_is_waited_for(homes: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    """Ours gave way to one that holds the lock and does not listen yet."""
    monkeypatch.setattr("os.geteuid", os.getuid)
    monkeypatch.setattr(starting, "GIVEN_WAY_S", 0.0)
    with FakeServer(homes.other) as fake:
        fake.stop()
        looks = iter([True, True, True])

        def is_served(_: str) -> bool:
            if next(looks, None) is None:
                fake.start()
            return True

        monkeypatch.setattr(starting, "late", lambda _: is_served)
        monkeypatch.setattr(starting, "run", run_that(1, "somebody serves already"))
        assert found(homes.other) == homes.other


def test_a_start_that_takes_a_while_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                            monkeypatch: pytest.MonkeyPatch):  # fmt: skip
    monkeypatch.setattr(starting, "TOLD_AFTER_S", 0.0)
    with (tmp_path / "said").open("wb") as said:
        assert starting.run(["/bin/sh", "-c", "sleep 0.3; exit 3"], said, 20.0) == 3
    assert "a server is starting for you" in capsys.readouterr().err
