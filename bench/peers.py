"""Rivals that are functions in the shared folder's scripts, loaded at the time of the run and never copied.

The scripts measure when they are imported, so only the imports and the functions asked for are taken.
"""

import ast
import importlib.util
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from bench.rows import MissingError

ROOT = Path(__file__).resolve().parent.parent
PEERS = Path(os.environ.get("TIDEGATE_SHARED", ROOT.parent / "shared")) / "peers"


def load_functions(script: str, names: Collection[str], **given: Any) -> dict[str, Any]:
    """These functions of the script; `given` stands in for other names that they use."""
    path = PEERS / script
    if not path.is_file():
        raise MissingError(f"{os.path.relpath(path, ROOT)} is missing (TIDEGATE_SHARED names another folder)")
    body: list[ast.stmt] = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            if node.name in names:
                body.append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom) and _is_here(node):
            body.append(node)
    missing = set(names) - {node.name for node in body if isinstance(node, ast.FunctionDef)}
    if missing:
        raise MissingError(f"{path.name} has no function {', '.join(sorted(missing))}")
    namespace: dict[str, Any] = {}
    exec(compile(ast.Module(body, []), str(path), "exec"), namespace)
    namespace.update(given)
    return {name: namespace[name] for name in names}


def _is_here(node: ast.Import | ast.ImportFrom) -> bool:
    modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    return all(importlib.util.find_spec(module.partition(".")[0]) for module in modules)
