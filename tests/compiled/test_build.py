"""The build hook: what it compiles, and that an installation never fails for want of a compiler."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hatch_build

ROOT = Path(__file__).resolve().parents[2]


def write(top: Path, **files: str) -> None:
    for name, text in files.items():
        path = top.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_pure_wheel_says_so_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"TIDEGATE_PURE": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("tidegate: ")]
    assert said == ["tidegate: pure Python kernel, about half as fast: TIDEGATE_PURE is set"]
    assert [path.name.partition("-py3-")[2] for path in tmp_path.iterdir()] == ["none-any.whl"]


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_PURE", raising=False)
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    assert hatch_build.why_pure() == "no C compiler (no-such-compiler) found"


def test_a_module_that_is_refused_is_an_error_with_its_place(tmp_path: Path) -> None:
    write(tmp_path / "src", pkg__a="def f(x: int) -> str:\n    return x\n")
    with pytest.raises(hatch_build.CompileError, match=r"pkg/a\.py:2: error: "):
        hatch_build.compiled(tmp_path / "src", [tmp_path / "src" / "pkg" / "a.py"], tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_pattern_that_names_nothing_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, pkg__a="")
    assert hatch_build.chosen(tmp_path, ["pkg/*.py"]) == {tmp_path / "pkg" / "a.py"}
    with pytest.raises(hatch_build.CompileError, match="pkg/b"):
        hatch_build.chosen(tmp_path, ["pkg/*.py", "pkg/b.py"])


def test_the_fingerprint_follows_what_the_modules_import_and_nothing_else(tmp_path: Path) -> None:
    files = {
        "pkg____init__": "",
        "pkg__a": "def late():\n    from pkg import b",
        "pkg__b": "import pkg.c",
        "pkg__c": "",
    }
    write(tmp_path, **files, pkg__other="import pkg.a")
    modules = [tmp_path / "pkg" / "a.py"]
    before = hatch_build.fingerprint(tmp_path, modules)
    write(tmp_path, pkg__other="changed = True")
    assert hatch_build.fingerprint(tmp_path, modules) == before
    for name in ("pkg__c", "pkg__a"):
        write(tmp_path, **{name: files[name] + "\nchanged = True"})
        after = hatch_build.fingerprint(tmp_path, modules)
        assert after != before
        before = after
