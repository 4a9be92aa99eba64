"""One server of root, two users of the machine: each is who they are, and keeps what is theirs."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.live import ROOT, LiveServer
from tidegate.app.tokens import add

ADA, BOB = 61_001, 61_002

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's server has several users")
As = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def shared() -> Iterator[LiveServer]:
    """In a place that any user can come through; those of pytest are for one user."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    try:
        with LiveServer(place / "home", "--nodes", "1", "--cpus", "4", "--memory", "1G",
                        "--listen", "127.0.0.1:0") as live:  # fmt: skip
            yield live
    finally:
        shutil.rmtree(place)


@pytest.fixture
def tide(shared: LiveServer) -> As:
    def run(uid: int, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
        plain = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HOME": "/"}
        return subprocess.run(
            [sys.executable, str(ROOT / "tests/cli/as_user.py"), str(uid), *map(str, words)], cwd="/", check=False,
            env={**plain, "TIDEGATE_HOME": str(shared.home), **more}, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    return run


def test_each_job_runs_as_its_owner(tide: As):
    for user in (ADA, BOB):
        done = tide(user, "run", "--", "sh", "-c", "id -u; id -g; id -G")
        assert (done.returncode, done.stdout.split()) == (0, [str(user)] * 3), done.stderr


def test_each_is_refused_what_is_the_others(shared: LiveServer, tide: As):
    job = int(
        tide(ADA, "submit", "--quiet", "--env", "SECRET=s3same", "--", "sh", "-c", "echo secret; sleep 60").stdout
    )
    for words in (("show", job), ("logs", job), ("logs", "-f", job), ("cancel", job), ("hold", job), ("requeue", job)):
        done = tide(BOB, *words)
        assert (done.returncode, done.stdout) == (1, ""), words
        assert f"job {job} belongs to {ADA}; ask them, or an administrator" in done.stderr
    assert f" {ADA} " in tide(BOB, "queue", job).stdout, "everybody sees the queue"
    for managing in ("drain node1", "resume node1", "down"):
        assert "may not manage the server" in tide(BOB, *managing.split()).stderr
    assert f'"user":"{ADA}"' not in tide(BOB, "events", "--after", 0, "--json").stdout
    assert f'"user":"{ADA}"' in tide(ADA, "events", "--after", 0, "--json").stdout
    assert tide(ADA, "cancel", job).returncode == 0, tide(0, "show", job).stdout
    assert tide(ADA, "wait", job).returncode == 1
    assert tide(ADA, "logs", job).stdout == "secret\n"
    assert tide(0, "show", job).returncode == 0, "root may"


def test_files_of_the_home_are_for_the_server(shared: LiveServer, tide: As):
    """The journal holds the environments of everybody."""
    add(str(shared.home), "of root", "")
    open_to_others = {
        str(path.relative_to(shared.home)) for path in shared.home.rglob("*")
        if path.is_file() and path.stat().st_mode & 0o077 and path.parent.name != "bin"  # Slurm's commands, for all
    }  # fmt: skip
    assert open_to_others == set()
    folders = {path for path in shared.home.rglob("*") if path.is_dir()} | {shared.home}
    assert {path.stat().st_mode & 0o066 for path in folders} == {0}
    assert "tide.sock" in {path.name for path in shared.home.iterdir() if path.stat().st_mode & 0o777 == 0o666}
    for words in (("backup", "/tmp/x.tide"), ("token", "list"), ("token", "add", "x"), ("up",)):
        done = tide(BOB, *words)
        assert done.returncode == 1, words
        assert any(why in done.stderr for why in ("ermission denied", "cannot be opened", "another user"))
        assert "; " in done.stderr, "and what to do"


@pytest.mark.parametrize("field", ["stdout", "stderr"])
def test_nobody_reads_with_the_rights_of_the_server(shared: LiveServer, tide: As, field: str):
    """An output that a user named may lie anywhere, in the home too."""
    ended = int(tide(ADA, "submit", "--quiet", "--wait", "--", "true").stdout)
    of_another = f"{shared.home}/output/0/{ended}.out"
    for path in (shared.home / "journal.db", f"{shared.home}/../../../etc/shadow", of_another):
        option = "--output" if field == "stdout" else "--error"
        job = int(tide(BOB, "submit", "--quiet", "--hold", option, path, "--", "true").stdout)
        done = tide(BOB, "logs", job, *(["--stderr"] if field == "stderr" else []))
        assert (done.returncode, done.stdout) == (1, ""), path
        assert f"the job writes to {path}; read it there" in done.stderr
        assert tide(BOB, "cancel", job).returncode == 0


def test_a_token_is_for_one_user(shared: LiveServer, tide: As):
    address = next(word for word in shared.said.split() if word.startswith("http://")).rstrip(";")
    token = add(str(shared.home), "laptop", str(ADA))
    by_tcp = {"TIDEGATE_HOME": "", "TIDEGATE_SERVER": address, "TIDEGATE_TOKEN": token}
    done = tide(BOB, "run", "--", "id", "-u", **by_tcp)
    assert (done.returncode, done.stdout) == (0, f"{ADA}\n"), done.stderr
    assert "may not manage" in tide(BOB, "down", **by_tcp).stderr
    with pytest.raises(ValueError, match="there is no user 'nobody-at-all'"):
        add(str(shared.home), "x", "nobody-at-all")


def test_root_serves_no_home_of_somebody_else(tide: As, tmp_path: Path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, ADA, ADA)
    done = tide(0, "up", "--home", theirs)
    assert (done.returncode, done.stderr) == (
        1, f"tide: {theirs} belongs to another user; name one of your own with --home\n",
    )  # fmt: skip
    assert list(theirs.iterdir()) == []
