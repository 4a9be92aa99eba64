"""The house rules hold over the tree."""

import ast
import functools
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tidy import rules

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "tidegate"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

PURE_ROOMS = ("core", "model", "policy", "world")
FLOAT_FREE_ROOMS = ("core", "policy")
PRINTING_ROOMS = ("app", "cli")
THIN_CLIENT_ROOMS = ("cli", "model", "wire")
HEAVY = ("numpy", "rich", "yaml")
# Each takes a tenth of an interpreter's start or more, and no quick command needs it.
SLOW = ("argparse", "asyncio", "collections", "dataclasses", "email", "enum", "functools", "http", "json", "logging",
        "msgspec", "pathlib", "re", "selectors", "shutil", "socket", "subprocess", "tempfile", "typing",
        "urllib")  # fmt: skip
QUICK_COMMANDS = ("act", "jobs", "logs", "nodes", "show", "submit", "wait")

SOURCES = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}

SRC = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def room_of(path: Path) -> str:
    """`core` for core/decide.py, `app` for app.py, `__init__` for the package's own file."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def in_rooms(*rooms: str) -> list[Path]:
    return [path for path in SRC if room_of(path) in rooms]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def over_trees(check: Callable[[ast.Module], list[str]], paths: list[Path]) -> list[str]:
    return [f"{path.relative_to(ROOT)}:{found}" for path in paths for found in check(tree_of(path))]


def over_texts(check: Callable[[str], list[str]], paths: list[Path]) -> list[str]:
    return [f"{path.relative_to(ROOT)}:{found}" for path in paths for found in check(path.read_text())]


def kept_files() -> list[Path]:
    """Every text file that is tracked, or would be by `git add .`."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    paths = (ROOT / name for name in listing.stdout.decode().split("\0") if name)
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()]


def test_functions_are_short() -> None:
    assert over_trees(rules.long_functions, SRC + TESTS) == []


def test_the_tail_of_function_lengths_is_short() -> None:
    lengths = [rules.length(function) for path in SRC for function in rules.functions(tree_of(path))]
    assert rules.percentile(lengths, 95) <= rules.FUNCTION_LINES_P95_MAX


def test_files_are_short() -> None:
    assert over_texts(rules.long_file, SRC + TESTS) == []


def test_nothing_is_left_for_later() -> None:
    assert over_texts(lambda source: rules.matches(rules.UNFINISHED, source), SRC + TESTS) == []


def test_what_is_compared_is_never_a_float() -> None:
    assert over_trees(rules.floats, in_rooms(*FLOAT_FREE_ROOMS)) == []


def test_pure_rooms_have_no_back_door() -> None:
    assert over_trees(rules.back_doors, in_rooms(*PURE_ROOMS)) == []


def test_tests_do_not_sleep() -> None:
    assert over_trees(lambda tree: rules.calls(tree, "sleep"), TESTS) == []


def test_only_clients_print() -> None:
    quiet = [path for path in SRC if room_of(path) not in PRINTING_ROOMS]
    assert over_trees(lambda tree: rules.calls(tree, "print"), quiet) == []


def test_every_room_opens_with_its_rule() -> None:
    files = [path for path in PACKAGE.glob("*.py") if not path.stem.startswith("__")]
    rooms = [path / "__init__.py" for path in PACKAGE.iterdir() if any(path.glob("*.py"))]
    without_init = [str(init.relative_to(ROOT)) for init in rooms if not init.exists()]
    assert without_init == []
    assert over_trees(rules.unruly_room, sorted(files + rooms)) == []


def test_no_module_is_dead() -> None:
    trees = {module_of(path): tree_of(path) for path in SRC}
    scripts = [target.partition(":")[0] for target in PYPROJECT["project"]["scripts"].values()]
    runnable = [module for module in trees if module.endswith(".__main__")]
    by_path = ["tidegate.engines.local.launcher"]  # run as a file, where there is no C compiler
    assert rules.dead_modules(trees, scripts + runnable + by_path) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    def machine_paths(source: str) -> list[str]:
        return rules.matches(rules.MACHINE_PATH, source)

    assert over_texts(machine_paths, kept_files()) == []


def test_clients_import_app_late() -> None:
    assert over_trees(lambda tree: rules.eager_imports(tree, "tidegate.app"), in_rooms("cli")) == []


def loaded_by(code: str) -> set[str]:
    """The modules that are there afterwards, and were not before: some installations load a few at every start."""
    told = f"import sys; before = set(sys.modules); {code}; print(*set(sys.modules) - before, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-S", "-c", told], capture_output=True, check=True, text=True, env=SOURCES)
    return set(done.stderr.split())


def test_starting_a_client_loads_almost_nothing() -> None:
    quick = ", ".join(f"tidegate.cli.{name}" for name in QUICK_COMMANDS)
    for code in (f"import tidegate.cli.main, {quick}", "from tidegate.cli.main import main; main(['--help'])",
                 "from tidegate.cli.main import main; main(['submit', '--help'])"):  # fmt: skip
        loaded = loaded_by(code)
        rooms = {name.split(".")[1] for name in loaded if name.startswith("tidegate.")}
        assert rooms <= set(THIN_CLIENT_ROOMS)
        assert [name for name in (*HEAVY, *SLOW) if name in loaded] == []
