"""docs/slurm.md has every option of sbatch, srun and salloc, and says of each what becomes of it."""

import re
from pathlib import Path

from tidegate.slurm.wish import IGNORED, REFUSED, TABLES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "slurm.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `--([\w-]+)`[^|]*\| ([\w, ]+) \| (\w+) \|$", re.MULTILINE)


def test_every_option_has_its_row():
    rows = {name: (commands.split(", "), kind) for name, commands, kind in ROW.findall(PAGE)}
    names = {name for table in TABLES.values() for name in table.long}
    assert rows.keys() == names
    for name, (commands, kind) in rows.items():
        assert commands == [command for command, table in TABLES.items() if name in table.long]
        assert kind == ("refused" if name in REFUSED else "ignored" if name in IGNORED else "yes")


def test_no_option_is_both():
    assert not REFUSED & IGNORED
