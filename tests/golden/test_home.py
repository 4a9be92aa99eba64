"""A home that an earlier release left in the middle of things is opened, and goes on where it was."""

import os
from pathlib import Path

import pytest

from tests.golden.home import FOLDER, NODES, homes, unpack
from tests.kit.live import LiveServer, until
from tidegate.journals.history import History
from tidegate.journals.sqlite import SqliteJournal
from tidegate.loop.recovery import recovered
from tidegate.wire.events import FORMAT
from tidegate.world.check import check

DONE, FAILED, ARRAY, RUNNING, AFTER_IT, HELD, LATER = range(1, 8)


@pytest.fixture(params=homes(), ids=lambda packed: packed.name)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    unpack(request.param, tmp_path / "home")
    return tmp_path / "home"


def test_there_is_one_of_todays_format():
    assert FOLDER / f"home-{FORMAT}.tar.xz" in homes(), "write it: python -m tests.golden.home"


def test_its_state_is_folded_from_its_snapshot_and_its_history_is_there(home: Path):
    journal = SqliteJournal(home / "journal.db", history=True)
    done = recovered(journal)
    assert (done.snapshot > 0, done.notes) == (True, [])
    assert not check(done.world)
    assert set(done.world.jobs) == {RUNNING, AFTER_IT, HELD, LATER}
    journal.settle()
    history = journal.history()
    assert [len(history.endings(job)) for job in (DONE, FAILED, ARRAY)] == [1, 1, 10]
    assert sum(history.counts().values()) == 12
    journal.close()
    assert History(home / "journal.db").job(FAILED) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="the jobs in it are root's")
def test_a_server_takes_it_on(home: Path):
    with LiveServer(home, *NODES) as server:
        client = server.client()
        again = client.ask("POST", "/v1/jobs", {"command": ["true"], "name": "done", "key": "a key"})
        assert (again["id"], again["known"]) == (DONE, True)
        client.wait(RUNNING, AFTER_IT)
        shown = client.show(RUNNING)
        assert [(one["state"], one["why"]) for one in shown["history"]] == [
            ("LOST", "the machine was started anew while this ran"),
            ("COMPLETED", ""),
        ]
        rows = {(row["id"], row["index"]): row for row in client.rows(all=1)}
        assert rows[FAILED, None]["exit_code"] == 3
        assert {rows[ARRAY, index]["state"] for index in range(10)} == {"COMPLETED"}
        assert {row["state"] for (job, _), row in rows.items() if job == HELD} == {"HELD"}
        client.ask("POST", f"/v1/jobs/{HELD}/release", {})
        client.wait(HELD)
        assert client.submit("true") == LATER + 1
        until(lambda: not [row for row in client.rows() if row["id"] != LATER])
