"""Slurm's commands as files: each starts the one thin client, as quickly as the interpreter can."""

NAMES = (
    "sbatch", "srun", "salloc", "squeue", "sacct", "sinfo", "scancel", "scontrol", "sacctmgr", "sshare", "sprio",
    "sstat", "sdiag",
)  # fmt: skip
MARK = "# A command of Slurm, answered by Tidegate; written by `tide slurm install`."
SHEBANG_MAX = 120
"""A longer one, or one with a blank, some kernels cut."""


def text_of(name: str, python: str, package: str, home: str) -> str:
    """`package` is where `tidegate` is found, `home` the server that is asked where nothing names another."""
    body = (
        f"{MARK}\nimport sys\n\nsys.path.insert(0, {package!r})\n"
        f"from tidegate.cli.slurm.client import main\n\nsys.exit(main({name!r}, {home!r}))\n"
    )
    if len(python) < SHEBANG_MAX and " " not in python:
        return f"#!{python} -IS\n{body}"
    return f'#!/bin/sh\n"exec" \'{python}\' "-IS" "$0" "$@"\n{body}'
