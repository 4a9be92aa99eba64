"""A server of root runs each job as the user who submitted it."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.engines.kit import LAUNCHERS, Local, local_engines
from tidegate.engines.local import users
from tidegate.engines.local.users import User, UserError, Users
from tidegate.model.engine import Ask, Notified, Notify, Saved
from tidegate.model.jobs import Checkpoint, Outcome

SOMEBODY = 65_432
AS_SOMEBODY = str(SOMEBODY)

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as other users")


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that any user can come through; those of pytest are for one user."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


@pytest.fixture(params=LAUNCHERS)
def shared(open_place: Path, request: pytest.FixtureRequest) -> Iterator[Local]:
    yield from local_engines(open_place / "home", kind=request.param)


@only_root
def test_a_job_is_its_user_in_every_way(shared: Local) -> None:
    job = shared.job("sh", "-c", "id -u; id -g; id -G; cat /proc/self/oom_score_adj; umask", user=AS_SOMEBODY)
    assert shared.end_of(shared.launch(job)).outcome is Outcome.COMPLETED
    before = Path("/proc/self/oom_score_adj").read_text().strip()
    assert shared.output(job).split() == [AS_SOMEBODY, AS_SOMEBODY, AS_SOMEBODY, before, "0022"]
    capabilities = shared.job("grep", "-E", "Cap(Inh|Prm|Eff)", "/proc/self/status", user=AS_SOMEBODY)
    shared.end_of(shared.launch(capabilities))
    assert {line.split()[1] for line in shared.output(capabilities).splitlines()} == {"0" * 16}


@only_root
def test_the_default_output_is_the_users(shared: Local) -> None:
    job = shared.job("echo", "mine", user=AS_SOMEBODY)
    shared.end_of(shared.launch(job))
    path = shared.home / "output" / str(job.id // 1000) / f"{job.id}.out"
    status = path.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (SOMEBODY, SOMEBODY, 0o600)
    parent = path.parent.stat()
    assert (parent.st_uid, stat.S_IMODE(parent.st_mode)) == (0, 0o711)


@only_root
def test_paths_of_users_are_opened_with_their_rights(shared: Local, open_place: Path) -> None:
    theirs, ours = open_place / "theirs", open_place / "ours"
    theirs.mkdir()
    os.chown(theirs, SOMEBODY, SOMEBODY)
    ours.mkdir()
    (ours / "secret").write_text("no\n")
    (ours / "secret").chmod(0o600)
    assert shared.run("echo", "hi", user=AS_SOMEBODY, stdout=f"{theirs}/out").outcome is Outcome.COMPLETED
    assert (theirs / "out").stat().st_uid == SOMEBODY
    for work in ({"stdout": f"{ours}/out"}, {"stdin": f"{ours}/secret"}, {"stdout": f"{ours}/secret"}):
        end = shared.run("true", user=AS_SOMEBODY, **work)
        assert (end.outcome, end.code) == (Outcome.FAILED, 126)
        assert "Permission denied" in end.why
    assert (ours / "secret").read_text() == "no\n"


@only_root
def test_a_link_in_place_of_an_output_is_not_followed(shared: Local, open_place: Path) -> None:
    job = shared.job("echo", "gotcha", user=AS_SOMEBODY)
    place = shared.home / "output" / str(job.id // 1000)
    place.mkdir()
    (place / f"{job.id}.out").symlink_to(open_place / "target")
    assert "cannot open the output" in shared.refusal_of(shared.launch(job)).why
    assert not (open_place / "target").exists()


@only_root
def test_a_script_is_run_as_the_user_and_is_theirs_alone(shared: Local) -> None:
    job = shared.job(user=AS_SOMEBODY, script='#!/bin/sh\nid -u\nstat -c "%u %a" "$0"\n')
    assert shared.end_of(shared.launch(job)).outcome is Outcome.COMPLETED
    assert shared.output(job).split() == [AS_SOMEBODY, AS_SOMEBODY, "700"]


@only_root
def test_a_notice_is_sent_as_the_user(shared: Local, open_place: Path) -> None:
    theirs = open_place / "theirs"
    theirs.mkdir()
    os.chown(theirs, SOMEBODY, SOMEBODY)
    job = shared.job("true", user=AS_SOMEBODY, notify=f"id -u > {theirs}/said")
    shared.engine.deliver([Notify(job, Outcome.COMPLETED)], 0)
    shared.wait_for(lambda: shared.of(Notified))
    assert shared.wait_for_text(theirs / "said") == f"{AS_SOMEBODY}\n"


@only_root
def test_nobodys_notice_is_not_sent_and_not_waited_for(local: Local) -> None:
    job = local.job("true", user="no-such-user", notify="true")
    local.engine.deliver([Notify(job, Outcome.COMPLETED)], 0)
    local.wait_for(lambda: local.of(Notified))
    assert "knows no user 'no-such-user'" in " ".join(local.engine.notes())


def test_names_are_looked_up_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = users.look_up

    def counted(name: str) -> User:
        asked.append(name)
        return real(name)

    monkeypatch.setattr(users, "look_up", counted)
    known, me = Users(), users.entry_of(str(os.geteuid())).pw_name
    for now in (0, 59_999, 60_000, 60_001):
        assert known.find(me, now).ids is None
    assert len(asked) == 2


def test_a_server_that_is_not_root_runs_only_its_own_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    with pytest.raises(UserError, match="only a server of root"):
        users.look_up("root")
    assert users.look_up("1234").ids is None


@pytest.mark.parametrize("name", ["", "no-such-user", "-1", "99999999999", "²"])
def test_nobody_is_said_to_be_nobody(name: str) -> None:
    with pytest.raises(UserError, match="this machine knows no user"):
        users.look_up(name)


@only_root
def test_a_user_is_asked_answers_and_saves_as_that_user_and_can_replace_nothing_of_ours(shared: Local) -> None:
    """Nobody may lead root astray in the place where asks are written."""
    script = """
        cd "$TIDE_CHECKPOINT_DIR" && touch state && stat -c %u:%a . state
        place=$(dirname "$TIDE_CHECKPOINT_ASKED")
        touch "$place/mine" 2>/dev/null || echo refused
        mv "$TIDE_CHECKPOINT_DONE" "$place/other" 2>/dev/null || echo refused
        ls "$(dirname "$place")" 2>/dev/null || echo refused
        while [ ! -e "$TIDE_CHECKPOINT_ASKED" ]; do sleep 0.02; done
        cat "$TIDE_CHECKPOINT_ASKED"
        echo done >"$TIDE_CHECKPOINT_DONE"
    """
    job = shared.job("sh", "-c", script, user=AS_SOMEBODY)
    job = replace(job, spec=replace(job.spec, checkpoint=Checkpoint()))
    key = shared.launch(job)
    shared.started(key)
    shared.engine.deliver([Ask(*key, 1)], 0)
    assert shared.end_of(key).outcome is Outcome.COMPLETED
    assert [report.number for report in shared.of(Saved)] == [1]
    said = shared.output(job).split()
    assert said[:5] == [f"{SOMEBODY}:700", f"{SOMEBODY}:644", "refused", "refused", "refused"]
