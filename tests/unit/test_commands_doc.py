"""docs/commands.md names every command, and none that is not there."""

import re
from pathlib import Path

from tidegate.cli.main import MODULES, command_named

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")


def test_every_command_is_named():
    first_table = PAGE.split("## How things are written", maxsplit=1)[0]
    assert [name for name in MODULES if not re.search(rf"\b{name}\b", first_table)] == []


def test_no_other_command_is_named():
    named = set(re.findall(r"`tide ([a-z]+)", PAGE))
    assert named <= set(MODULES)


def test_every_option_that_is_named_is_there():
    there = {name for command in MODULES for option in command_named(command).options() for name in option.names}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) <= there | {"--help"}
