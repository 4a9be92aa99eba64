"""Compiles the kernel while a wheel is built; where that cannot be, the wheel is pure Python and says why.

The sources stay in the wheel beside the machine code: they are the fallback, and what a traceback shows.
An editable install is never compiled, and no failure in here fails an installation.
"""

import ast
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILE_S_MAX = 900
SAID_MAX = 200
SOURCES = "src"
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))

# numpy and msgspec because their types decide what mypyc generates: the same kernel from every build.
NEEDED = ("mypy[mypyc]>=1.18", "setuptools>=65", "msgspec>=0.19", "numpy>=1.26")


class CompileHook(BuildHookInterface[Any]):
    def dependencies(self) -> list[str]:
        return [] if why_pure() else list(NEEDED)

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "standard":
            return
        pure = why_pure()
        try:
            built = [] if pure else self.built()
        except (OSError, ImportError, subprocess.SubprocessError, CompileError) as error:
            built, pure = [], f"compiling failed ({error})"
        if pure:
            self.app.display_warning(f"tidegate: pure Python kernel, about half as fast: {pure}")
            return
        for path in built:
            build_data["force_include"][str(path)] = str(path.relative_to(self.store))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    @property
    def store(self) -> Path:
        """The machine code of the last build, kept for as long as its sources do not change."""
        return Path(self.root, "build", "kernel")

    def built(self) -> list[Path]:
        top = Path(self.root, SOURCES)
        modules = sorted(chosen(top, self.config["compile"]) - chosen(top, self.config["interpret"]))
        mark = self.store / "made-of"
        wanted = fingerprint(top, modules)
        if not mark.is_file() or mark.read_text() != wanted:
            shutil.rmtree(self.store, ignore_errors=True)
            compiled(top, modules, self.store)
            mark.write_text(wanted)
        return sorted(self.store.rglob(f"*{SUFFIX}"))


class CompileError(Exception):
    """What mypyc or the C compiler said, in a line."""


def why_pure() -> str:
    """What keeps this machine from compiling, as far as one can tell without trying; "" for nothing."""
    if os.environ.get("TIDEGATE_PURE", "") not in {"", "0"}:
        return "TIDEGATE_PURE is set"
    if platform.python_implementation() != "CPython":
        return "mypyc compiles for CPython only"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler}) found"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "Python.h not found; it comes with the development package of Python"
    return ""


def chosen(top: Path, patterns: Iterable[str]) -> set[Path]:
    """The files that the patterns name. One that names nothing is a mistake in pyproject.toml."""
    found: set[Path] = set()
    for pattern in patterns:
        here = set(top.glob(pattern))
        if not here:
            raise CompileError(f"{pattern} of pyproject.toml names no file")
        found |= here
    return found


def compiled(top: Path, modules: list[Path], store: Path) -> None:
    """Compiles in a copy, so that nothing is left between the sources, and moves the machine code to `store`."""
    with tempfile.TemporaryDirectory(prefix="tidegate-") as name:
        copy = Path(name, SOURCES)
        shutil.copytree(top, copy, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd"))
        names = [str(path.relative_to(top)) for path in modules]
        done = subprocess.run(
            [sys.executable, "-m", "mypyc", "--ignore-missing-imports", *names],
            cwd=copy,
            env=os.environ | {"MYPYC_OPT_LEVEL": "3", "MYPYC_DEBUG_LEVEL": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMPILE_S_MAX,
            check=False,
            text=True,
        )
        if done.returncode:
            raise CompileError(first_error(done.stdout))
        for path in sorted(copy.rglob(f"*{SUFFIX}")):
            inside = path.relative_to(copy)
            if inside.parts[0] != "build":
                (store / inside).parent.mkdir(parents=True, exist_ok=True)
                shutil.move(path, store / inside)


def first_error(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["mypyc said nothing"]
    return next((line for line in lines if "error:" in line), lines[-1])[:SAID_MAX]


def fingerprint(top: Path, modules: list[Path]) -> str:
    """Of all that the machine code is made of: the modules, what they import, and the tools."""
    tools = (SUFFIX, sys.version, version_of("mypy"), version_of("numpy"), version_of("msgspec"), os.environ.get("CC"))
    digest = hashlib.sha256(repr(tools).encode())
    digest.update(Path(__file__).read_bytes())
    digest.update("\n".join(str(path.relative_to(top)) for path in modules).encode())
    for path in sorted(with_imports(top, modules)):
        digest.update(str(path.relative_to(top)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def with_imports(top: Path, modules: Iterable[Path]) -> set[Path]:
    """The modules and every file of the project that a chain of imports reaches from them."""
    reached: set[Path] = set()
    pending = list(modules)
    while pending:
        path = pending.pop()
        if path not in reached:
            reached.add(path)
            pending.extend(file for name in imported(path) for file in files_of(top, name))
    return reached


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str() as module, names=names):
                yield module
                yield from (f"{module}.{alias.name}" for alias in names)
            case _:
                pass


def files_of(top: Path, name: str) -> Iterator[Path]:
    """`a.b.c` is in a/b/c.py or a/b/c/__init__.py, and loads a and a.b."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        place = top.joinpath(*parts[:depth])
        yield from (path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file())
