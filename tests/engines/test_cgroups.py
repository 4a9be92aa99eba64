"""Version 2 of cgroups, on files that stand for it: few machines have both versions to run jobs on.

What a real kernel makes of it is tested wherever `test_holding` runs on such a machine.
"""

import os
from pathlib import Path

import pytest

from tidegate.engines.local.cgroups import Cgroups, Mount, kill_all, leftover, number_in

FILES = {
    "cgroup.procs": "", "cgroup.subtree_control": "", "cgroup.events": "populated 0\n", "cgroup.kill": "",
    "cpu.max": "max 100000\n", "cpu.stat": "usage_usec 5000\nuser_usec 5000\n", "memory.max": "max\n",
    "memory.oom.group": "0\n", "memory.swap.max": "max\n", "memory.peak": "0\n",
    "memory.events": "low 0\nmax 3\noom 1\noom_kill 0\n",
}  # fmt: skip
NOBODY = 1 << 22


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hierarchy whose directories come with their files, and go with them."""
    make, remove = os.mkdir, os.rmdir

    def mkdir(path: str, mode: int = 0o777) -> None:
        make(path, mode)
        if str(path).startswith(f"{tmp_path}/cgroup"):
            for name, text in FILES.items():
                Path(path, name).write_text(text)

    monkeypatch.setattr(os, "mkdir", mkdir)

    def rmdir(path: str) -> None:
        for name in FILES:
            Path(path, name).unlink(missing_ok=True)
        remove(path)

    monkeypatch.setattr(os, "rmdir", rmdir)
    place = tmp_path / "cgroup" / "user.slice" / "tide.service"
    place.mkdir(parents=True)
    return place


def cgroups(top: Path, controllers: str = "cpu memory", *others: Mount) -> Cgroups:
    mount = Mount(2, frozenset(controllers.split()), str(top))
    return Cgroups("tide", str(top.parents[2] / "record"), [*others, mount])


def delegate(place: Path, controllers: str = "cpu memory") -> None:
    (place / "cgroup.subtree_control").write_text(controllers)


def test_limits_are_written_where_version_2_has_them(top: Path):
    delegate(top.parent)
    found = cgroups(top)
    assert (found.version, found.notes) == ({"cpu": 2, "memory": 2, "tree": 2}, [])
    assert found.bases == dict.fromkeys(("cpu", "memory", "tree"), f"{top.parent}/tide")
    place = found.take(2500, 64)
    assert place is not None
    assert place.joins == (f"{place.tree}/cgroup.procs",)
    written = {name: Path(place.tree, name).read_text() for name in FILES}
    assert (written["cpu.max"], written["memory.max"]) == ("250000 100000", str(64 << 20))
    assert (written["memory.oom.group"], written["memory.swap.max"][:1]) == ("1\n", "0")


def test_what_happened_is_read_where_version_2_tells_it(top: Path):
    delegate(top.parent)
    found = cgroups(top)
    place = found.take(1000, 64)
    assert place is not None
    assert not found.out_of_memory(place, 9)
    tree = Path(place.tree)
    (tree / "memory.events").write_text("oom 1\noom_kill 1\noom_group_kill 1\n")
    (tree / "memory.peak").write_text(f"{50 << 20}\n")
    (tree / "cpu.stat").write_text("usage_usec 1234999\n")
    assert (found.out_of_memory(place, 0), found.peak_kib(place), found.cpu_ms(place)) == (True, 50 << 10, 1229)
    found.kill(place)
    assert number_in(f"{place.tree}/cgroup.kill") == 1


def test_a_place_with_a_memory_limit_is_not_used_again(top: Path):
    """Its peak and its kills stay; one without is as good as new."""
    delegate(top.parent)
    found = cgroups(top)
    limited, free = found.take(1000, 64), found.take(1000, 0)
    assert limited is not None
    assert free is not None
    found.give_back(limited)
    found.give_back(free)
    assert not Path(limited.tree).exists()
    assert found.take(2000, 0) is free
    assert Path(free.tree, "cpu.max").read_text() == "200000 100000"
    found.give_back(free)
    record = str(top.parents[2] / "record")
    assert leftover(record) == [free.tree]
    found.close()
    assert leftover(record) == []


def test_alone_in_a_delegated_cgroup_the_keeper_moves_on_and_gives_limits_in_it(top: Path):
    """No process may be where limits are given below: as systemd leaves it, with Delegate=yes."""
    (top / "cgroup.procs").write_text(f"{os.getpid()}\n")
    parent = top.parent / "cgroup.subtree_control"
    parent.unlink()
    parent.mkdir()  # the one above is not ours to change
    control = top / "cgroup.subtree_control"
    control.unlink()
    control.symlink_to(top / "tide-keeper" / "cgroup.subtree_control")  # can be written when the keeper has moved
    found = cgroups(top)
    assert found.bases["memory"] == f"{top}/tide"
    assert (top / "tide-keeper" / "cgroup.procs").read_text() == str(os.getpid())


def test_where_others_are_nothing_is_held_and_it_says_so(top: Path):
    (top / "cgroup.procs").write_text(f"{os.getpid()}\n{NOBODY}\n")
    for place in (top, top.parent):
        (place / "cgroup.subtree_control").unlink()
    found = cgroups(top)
    assert found.version == {"cpu": 0, "memory": 0, "tree": 2}, "a job is held together all the same"
    assert "memory limits are not held" in found.notes[0]
    assert "shared with other processes" in found.notes[1]


def test_what_only_one_version_offers_is_taken_from_it(top: Path, tmp_path: Path):
    """As on machines between the two: memory by version 1, the rest by version 2."""
    delegate(top.parent, "cpu")
    old = tmp_path / "memory"
    old.mkdir()
    found = cgroups(top, "cpu", Mount(1, frozenset({"memory"}), str(old)))
    assert found.version == {"cpu": 2, "memory": 1, "tree": 2}
    assert found.bases["memory"] == f"{old}/tide"


def test_killing_ends_where_nobody_is(top: Path):
    (top / "cgroup.kill").unlink()
    kill_all(str(top))
    (top / "cgroup.procs").write_text(f"{NOBODY}\n")
    kill_all(str(top))
