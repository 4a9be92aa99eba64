"""Engines on homes of their own, closed so that nothing is left running."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.kit import LAUNCHERS, Local, local_engines


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    yield from local_engines(tmp_path)


@pytest.fixture(params=LAUNCHERS)
def either(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Local]:
    """With the compiled launcher and with the interpreted one."""
    yield from local_engines(tmp_path, kind=request.param)


@pytest.fixture(params=["cgroups", "bare"])
def holding(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Local]:
    """With cgroups where the machine has them, and without."""
    yield from local_engines(tmp_path, cgroups=request.param == "cgroups")


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Callable[..., Local]]:
    """Engines one after the other on one home; the last one is closed."""
    made: list[Local] = []

    def make(**options: Any) -> Local:
        made.append(Local(tmp_path, **options))
        return made[-1]

    yield make
    if made:
        made[-1].close()
