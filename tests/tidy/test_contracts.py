"""The import contracts hold over src/, and each is seen to fail on a planted import."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "api",
    "app",
    "checkpoint",
    "cli",
    "core",
    "engines",
    "journals",
    "lab",
    "loop",
    "model",
    "policy",
    "ports",
    "slurm",
    "wire",
    "world",
)

# What DESIGN's table of rooms allows and the contracts must let pass.
ALLOWED = {
    "checkpoint": ("json", "shutil"),
    "cli": ("app", "checkpoint", "model", "wire"),
    "app": ("slurm", "api", "lab", "engines", "journals", "loop", "core", "policy", "world", "wire", "ports", "model"),
    "slurm": ("api", "loop", "core", "policy", "world", "wire", "ports", "model"),
    "api": ("loop", "core", "policy", "world", "wire", "ports", "model"),
    "lab": ("loop", "core", "policy", "world", "wire", "ports", "model"),
    "engines": ("ports", "wire", "model"),
    "journals": ("ports", "wire", "model"),
    "loop": ("core", "policy", "world", "ports", "model"),
    "core": ("policy", "world", "model", "numpy"),
    "policy": ("world", "model", "numpy"),
    "world": ("model", "numpy"),
    "wire": ("model",),
    "ports": ("model",),
    "model": ("msgspec", "enum"),
}

# One import against each contract: (importer, imported, contract that must break).
PLANTED = (
    ("policy", "core", "rooms point one way"),
    ("core", "time", "pure rooms touch no clock, disk, network, thread or chance"),
    ("model", "numpy", "the model is the standard library and msgspec"),
    ("loop", "wire", "the loop and what it runs know no encoding"),
    ("engines", "world", "adapters know the ports, not the scheduler"),
    ("api", "journals", "what clients see knows neither the engines nor how anything is stored"),
    ("checkpoint", "msgspec", "what runs in jobs is the standard library"),
    ("cli", "loop", "clients reach the rest through app only"),
)


def lint(cwd: Path, path: Path) -> subprocess.CompletedProcess[str]:
    """The contracts of this repository, judged over the `tidegate` found under `path`."""
    command = "import sys; from importlinter.cli import lint_imports_command as run; run(sys.argv[1:])"
    return subprocess.run(
        [sys.executable, "-c", command, "--no-cache", "--no-logo", "--config", str(ROOT / "pyproject.toml")],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(path), "COLUMNS": "200"},
        capture_output=True,
        check=False,
        text=True,
    )


def imports(names: tuple[str, ...]) -> str:
    return "".join(f"import tidegate.{name}\n" if name in ROOMS else f"import {name}\n" for name in names)


def house(top: Path) -> Path:
    """A tree in which every room imports all it may."""
    for room in ROOMS:
        package = top / "tidegate" / room
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(imports(ALLOWED[room]))
    (top / "tidegate" / "__init__.py").touch()
    return top


def test_the_contracts_hold() -> None:
    result = lint(ROOT, ROOT / "src")
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_contracts_allow_what_the_design_allows(tmp_path: Path) -> None:
    result = lint(tmp_path, house(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_contract_fails_on_its_planted_import(tmp_path: Path) -> None:
    house(tmp_path)
    for importer, imported, _ in PLANTED:
        (tmp_path / "tidegate" / importer / "planted.py").write_text(imports((imported,)))
    result = lint(tmp_path, tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    kept = [name for _, _, name in PLANTED if f"{name} BROKEN" not in result.stdout]
    assert kept == [], result.stdout


def test_an_unlisted_room_fails(tmp_path: Path) -> None:
    (house(tmp_path) / "tidegate" / "attic.py").touch()
    result = lint(tmp_path, tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "tidegate.attic" in result.stdout
