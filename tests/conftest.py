"""What every test may rely on: the Hypothesis profiles and the way to a real trace."""

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

import tidegate

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("TIDEGATE_SHARED", ROOT.parent / "shared"))
TRACES = SHARED / "traces"
MISSING = "real trace missing: "
NO_SLURM = "real Slurm missing: "
LOUD = (MISSING, NO_SLURM, "compiled kernel not tested: ")

# Processes that a test starts import the tidegate that the test does: the sources, or the installed copy.
if Path(tidegate.__file__).is_relative_to(ROOT / "src"):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))

# A shell that runs the tests in the background has Ctrl-C ignored, and what a test starts would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# dev looks for new failures on every run. ci draws the same examples each time, so red means that the
# change broke it. Both print the blob that repeats a failure; neither judges by the clock.
settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


@pytest.fixture(scope="session")
def real_trace() -> Callable[[str], Path]:
    """`real_trace("swf/NAME")` is that file of the shared traces; the test is skipped where it is missing."""

    def find(name: str) -> Path:
        wanted = TRACES / name
        if not wanted.exists():
            absent = wanted if TRACES.exists() else TRACES
            pytest.skip(MISSING + os.path.relpath(absent, ROOT))
        return wanted

    return find


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "real_trace" in getattr(item, "fixturenames", ()):
            item.add_marker("trace")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say aloud what was not tested: a skip in a row of dots is read as a pass."""
    skipped = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple) and any(reason in report.longrepr[2] for reason in LOUD)
    )
    for reason, count in sorted(skipped.items()):
        tests = "test" if count == 1 else "tests"
        terminalreporter.write_sep("!", f"{count} {tests} skipped: {reason}", yellow=True, bold=True)
