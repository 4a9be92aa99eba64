"""A home that breaks under a running server: it says so, takes nothing it cannot keep, and goes on when mended."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.disks import fill, small_disk
from tests.kit.live import Client, LiveServer, RefusedError, until


def notes(client: Client) -> str:
    return "; ".join(client.ask("GET", "/v1/status").get("notes", []))


def must_be_refused(client: Client) -> None:
    with pytest.raises(RefusedError, match="503: the journal cannot be written"):
        client.submit("true")


@pytest.mark.parametrize("ending", ["", "-wal"])
def test_a_journal_that_is_moved_away_and_back(tmp_path: Path, ending: str) -> None:
    home, aside = tmp_path / "home", tmp_path / "aside"
    with LiveServer(home) as server:
        client = server.client()
        first = client.submit("true")
        client.wait(first)
        file = home / f"journal.db{ending}"
        file.rename(aside)
        until(lambda: "was removed" in notes(client))
        must_be_refused(client)
        aside.rename(file)
        until(lambda: not notes(client))  # though nothing else happens
        second = client.submit("true")
        client.wait(second)
        server.kill()
        server.start()
        assert sorted(row["id"] for row in server.client().rows(all=1)) == [first, second]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", 3) as place:
        yield place


def test_a_full_disk_under_a_server_that_is_killed_too(small: Path, tmp_path: Path) -> None:
    server = LiveServer(small / "home")
    server.log = tmp_path / "said"
    with server:
        client = server.client()
        running = client.submit("sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 7")
        until(lambda: client.show(running)["state"] == "RUNNING")
        ballast = fill(small)
        (tmp_path / "go").touch()
        until(lambda: "no room to write" in notes(client))
        must_be_refused(client)
        server.kill()
        server.start()
        client = server.client()
        until(lambda: "no room to write" in notes(client))
        ballast.unlink()
        until(lambda: not notes(client))
        client.wait(running)
        shown = client.show(running)
        assert (shown["state"], shown["exit_code"], shown["attempts"]) == ("FAILED", 7, 1)
        client.wait(client.submit("true"))
    assert "the journal can be written again" in server.said
