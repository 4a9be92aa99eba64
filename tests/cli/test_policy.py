"""`tide policy` as a user and as a CI job run it: against a server that says what the test wants, and a real one."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.cli.conftest import TIDE, Tide
from tests.kit.fake_server import Asked, FakeServer, Problem
from tests.kit.live import LiveServer, environment
from tidegate.wire import api
from tidegate.wire.policy_file import dump_policy, load_builtin, load_policy

CHANGES = [
    api.ChangeRow("order.by", "fcfs", "shortest", "short first"),
    api.ChangeRow("order.ageing_bound", "0s", "7d", "short first"),
    api.ChangeRow("classes.night", None, "{head_start: -1d}", ""),
]
EFFECT = api.EffectBody(
    seq=9, running=1, waiting=2000, looked_at=1500, first=1000, cut=False, promises_kept=1, promises_new=2,
    promises_lost=3, promises_later=1, refusals=["job 5: too long; ask for less"],
    rows=[api.EffectRow("gpu", "normal", 2000, 1500, 30, 1400, 2, 3, 1)],
)  # fmt: skip
DIFF = api.PolicyDiffBody(4, "easy", "lab", CHANGES, ["lab.yaml:2:1: order: a doubt; a cure"], EFFECT)
SAME = api.PolicyDiffBody(4, "easy", "easy", [], [], None)
SAID = """\
policy 'easy' (version 4) → 'lab'
  order.by            fcfs → shortest
  order.ageing_bound  0s → 7d
                      why: short first
  classes.night       (none) → {head_start: -1d}

1 task running: not touched. 2,000 jobs waiting for room or a turn; 1,500 looked at, \
the first 1,000 of each pool's line at most.
QUEUE  CLASS   WAITING   SEEN  FORWARD   BACK  STARTS  REFUSED
gpu    normal    2,000  1,500       30  1,400   2 → 3        1
promised starts: 1 kept (1 of them for later), 2 new, 3 lost
refused if submitted now; what waits already stays:
  job 5: too long; ask for less
"""


def setting(server: FakeServer, diff: api.PolicyDiffBody = DIFF) -> None:
    def put(asked: Asked) -> api.PolicySetBody:
        wish = asked.body
        if wish.dry_run:
            return api.PolicySetBody(bool(diff.changes), diff.version, diff.old, diff)
        return api.PolicySetBody(True, 5, "lab")

    server.on("set_policy", put)


@pytest.mark.parametrize(
    ("interrupted", "said"),
    [(-1, "not touched"), (0, "none interrupted at once"), (3, "3 would be interrupted at once")],
)
def test_what_becomes_of_those_that_run_is_told(server: FakeServer, tide: Tide, interrupted: int, said: str):
    server.on("policy_diff", replace(DIFF, effect=replace(EFFECT, interrupted=interrupted)))
    assert f"1 task running: {said}" in tide("policy", "diff", "tide").stdout


def wishes(server: FakeServer) -> list[api.PolicyWish]:
    return [asked.body for asked in server.said("set_policy")]


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "lab.yaml"
    path.write_text("name: lab\norder: {by: shortest, ageing_bound: 7d}\n")
    return path


def test_diff_tells_what_and_for_whom(server: FakeServer, tide: Tide, lab: Path):
    server.on("policy_diff", DIFF)
    done = tide("policy", "diff", lab)
    assert (done.returncode, done.stdout) == (0, SAID)
    assert done.stderr == "tide: warning: lab.yaml:2:1: order: a doubt; a cure\n"
    assert server.said("policy_diff")[0].body == api.PolicyChoice(text=lab.read_text(), source=str(lab))
    assert tide("policy", "diff", "tide", "--exit-code").returncode == 3
    assert server.said("policy_diff")[1].body == api.PolicyChoice(name="tide")
    assert json.loads(tide("policy", "diff", "tide", "--json").stdout)["changes"][0]["new"] == "shortest"
    server.on("policy_diff", SAME)
    done = tide("policy", "diff", "tide", "--exit-code")
    assert (done.returncode, done.stdout) == (0, "policy 'easy' (version 4) says the same\n")


def test_a_look_that_failed_is_said(server: FakeServer, tide: Tide):
    server.on("policy_diff", api.PolicyDiffBody(4, "easy", "lab", CHANGES[:1], [], None, "it took longer than 18 s"))
    done = tide("policy", "diff", "tide")
    assert "could not be worked out: it took longer than 18 s" in done.stdout


def test_apply_shows_then_changes_just_that_version(server: FakeServer, tide: Tide, lab: Path):
    setting(server)
    done = tide("policy", "apply", lab, "--yes", "--note", "commit 12")
    assert (done.returncode, done.stdout) == (0, f"{SAID}policy 'lab' is in force, version 5\n")
    dry, real = wishes(server)
    assert (dry.dry_run, dry.if_version, dry.note) == (True, -1, "commit 12")
    assert (real.dry_run, real.if_version, real.note, real.text) == (False, 4, "commit 12", lab.read_text())
    done = tide("policy", "apply", lab, "--yes", "--json", "--if-version", 3)
    assert json.loads(done.stdout)["version"] == 5
    assert [wish.if_version for wish in wishes(server)[2:]] == [3, 3]


def test_the_same_again_is_unchanged(server: FakeServer, tide: Tide):
    setting(server, SAME)
    done = tide("policy", "apply", "easy", "--yes", "--exit-code")
    assert (done.returncode, done.stdout) == (0, "unchanged: policy 'easy' is in force, version 4\n")
    assert [wish.dry_run for wish in wishes(server)] == [True]
    assert json.loads(tide("policy", "apply", "easy", "--yes", "--json").stdout)["changed"] is False


def test_a_dry_run_changes_nothing(server: FakeServer, tide: Tide):
    setting(server)
    done = tide("policy", "apply", "tide", "--dry-run", "--exit-code")
    assert (done.returncode, done.stdout) == (3, SAID)
    assert json.loads(tide("policy", "apply", "tide", "--dry-run", "--json").stdout)["diff"]["version"] == 4
    assert all(wish.dry_run for wish in wishes(server))


@pytest.mark.parametrize(("answer", "code", "changed"), [(b"y\n", 0, 2), (b"\n", 1, 1), (b"no\n", 1, 1)])
def test_a_person_is_asked(server: FakeServer, env: dict[str, str], answer: bytes, code: int, changed: int):
    setting(server)
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        done = subprocess.run(
            [*TIDE, "policy", "apply", "tide"], stdin=theirs, capture_output=True, env=env, check=False, timeout=60
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"put policy 'lab' in force? [y/N]" in done.stdout
    assert (done.returncode, len(wishes(server))) == (code, changed)


def test_rollback_goes_to_the_one_before(server: FakeServer, tide: Tide):
    setting(server)
    server.on("policy", api.PolicyBody(4, "easy", "", 1, "ann", ""))
    assert tide("policy", "rollback", "--yes").returncode == 0
    assert [(wish.version, wish.note) for wish in wishes(server)] == [(3, "back to version 3")] * 2
    assert tide("policy", "rollback", 1, "--yes", "--note", "too slow").returncode == 0
    assert (wishes(server)[-1].version, wishes(server)[-1].note) == (1, "too slow")
    server.on("policy", api.PolicyBody(1, "easy", "", 1, "ann", ""))
    done = tide("policy", "rollback", "--yes")
    assert (done.returncode, "is the first one" in done.stderr) == (1, True)


def test_history_and_show(server: FakeServer, tide: Tide):
    rows = [
        api.PolicyVersionRow(3, "lab", 1_700_000_000_000, "ann", "why\x1b[2J not", "order.by fcfs → shortest"),
        api.PolicyVersionRow(2, "easy", None, "", "", "the one before is not known any more"),
    ]
    server.on("policy_history", api.PolicyHistoryBody(rows, True))
    done = tide("policy", "history", "--limit", 2)
    assert done.stdout.splitlines()[1:] == [
        "      3  2023-11-14 22:13:20  ann  lab     order.by fcfs → shortest              why?[2J not",
        "      2  (not known)               easy    the one before is not known any more",
        "and older ones: tide policy history --limit 4",
    ]
    assert server.said("policy_history")[0].query == {"limit": "2"}
    assert [row["version"] for row in json.loads(tide("policy", "history", "--json").stdout)] == [3, 2]
    text = dump_policy(load_builtin("easy"))
    server.on("policy", api.PolicyBody(3, "easy", text, 1_700_000_000_000, "ann", "as\npublished"))
    done = tide("policy", "show")
    assert done.stdout == f"# version 3, applied 2023-11-14 22:13:20 by ann: as?published\n{text}"
    assert load_policy(done.stdout, "shown") == load_builtin("easy")
    assert server.said("policy")[0].query == {}
    tide("policy", "show", "--version", 2)
    assert server.said("policy")[1].query == {"version": "2"}


def test_refusals_are_told_by_line(server: FakeServer, tide: Tide):
    server.on("set_policy", Problem(400, "a.yaml:1:1: x\na.yaml:2:1: y", "nothing was changed"))
    done = tide("policy", "apply", "-", "--yes", said="nonsense: 1")
    assert (done.returncode, done.stderr) == (1, "tide: a.yaml:1:1: x\na.yaml:2:1: y; nothing was changed\n")
    assert wishes(server)[0].source == "standard input"


@pytest.mark.parametrize(
    ("octets", "says"),
    [(b"", "the file is empty"), (b"name: \xff", "not UTF-8"), (b"#" * 70_000, "larger than 64 KiB")],
)
def test_what_is_no_policy_file_is_not_sent(tide: Tide, home: Path, lab: Path, octets: bytes, says: str):
    lab.write_bytes(octets)
    for words in (("diff", lab), ("apply", lab, "--yes")):
        done = tide("policy", *words)
        assert (done.returncode, says in done.stderr) == (1, True), done.stderr
    assert not (home / "server.lock").exists(), "no server was started for it"


# -- without a server ----------------------------------------------------------------------------------------


def test_two_are_compared_without_a_server(tide: Tide, lab: Path):
    done = tide("policy", "diff", lab, "--against", "easy", "--exit-code")
    assert done.returncode == 3
    assert done.stdout.startswith("policy 'easy' → 'lab'\n")
    assert "  order.by            fcfs → shortest\n" in done.stdout
    found = json.loads(tide("policy", "diff", "easy", "--against", "easy", "--json").stdout)
    assert (found["changes"], found["effect"]) == ([], None)


def test_check_show_and_list_have_json(tide: Tide, lab: Path):
    assert json.loads(tide("policy", "check", lab, "--json").stdout)["good"] is True
    assert {"name": "easy", "why": load_builtin("easy").why} in json.loads(tide("policy", "list", "--json").stdout)
    assert json.loads(tide("policy", "show", "easy", "--json").stdout)["text"] == dump_policy(load_builtin("easy"))
    lab.write_text("name: lab\norder: fast\n")
    done = tide("policy", "check", lab, "--json")
    assert done.returncode == 1
    assert ":2:8: order: " in json.loads(done.stdout)["errors"][0]


# -- a real one ----------------------------------------------------------------------------------------------


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveServer]:
    with LiveServer(tmp_path / "live", "--engine", "virtual", "--nodes", "1", "--cpus", "2") as server:
        yield server


def test_a_file_in_git_and_a_job_that_applies_it(live: LiveServer, lab: Path):
    def tide(*words: Any) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "tidegate.cli.main", "policy", *map(str, words)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment(live.home), timeout=60
        )
        return done.returncode, done.stdout, done.stderr

    live.client().submit("true", cpus=2, expected_ms=3_600_000)
    live.client().submit("true", cpus=2, expected_ms=3_600_000)
    assert tide("apply", lab, "--dry-run", "--exit-code")[0] == 3
    code, said, _ = tide("apply", lab, "--yes", "--note", "commit 1")
    assert (code, "1 job waiting" in said, said.splitlines()[-1]) == (0, True, "policy 'lab' is in force, version 2")
    assert tide("apply", lab, "--yes") == (0, "unchanged: policy 'lab' is in force, version 2\n", "")
    assert tide("diff", lab, "--exit-code") == (0, "policy 'lab' (version 2) says the same\n", "")
    assert tide("apply", "easy", "--yes", "--if-version", 1)[0] == 1
    lab.write_text(lab.read_text() + "ordr: 1\n")
    code, _, error = tide("apply", lab, "--yes")
    assert (code, f"{lab}:3:1: ordr: " in error) == (1, True)
    assert tide("rollback", "--yes")[1].splitlines()[-1] == "policy 'tide' is in force, version 3"
    live.kill()
    live.start()
    assert [line.split()[0] for line in tide("history")[1].splitlines()] == ["VERSION", "3", "2", "1"]
    assert "commit 1" in tide("history")[1]
    assert tide("show")[1].startswith("# version 3, applied ")
    events = [sys.executable, "-m", "tidegate.cli.main", "events", "--after", "0"]
    said = subprocess.run(events, capture_output=True, text=True, check=True, env=environment(live.home)).stdout
    assert "policy 'lab' is in force, version 2 by " in said
    assert ": commit 1" in said
