"""What the benchmarks share: rounds, processes, the garbage collector, and the traces they replay."""

import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

GC_EVERY = 200_000
"""As the application sets it: see `tidegate.app`."""
TIDE = (sys.executable, "-m", "tidegate.cli.main")
NODES, CPUS_PER_NODE = 64, 8
PROCESSORS = NODES * CPUS_PER_NODE


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How much to do."""

    name: str
    smoke: bool = False

    @property
    def rounds(self) -> int:
        return 2 if self.smoke else 5

    def pick(self, full: int, smoke: int) -> int:
        return smoke if self.smoke else full

    def say(self, text: str) -> None:
        print(f"bench: {self.name}: {text}", file=sys.stderr, flush=True)

    def each_round(self) -> "Sequence[int]":
        return range(1, self.rounds + 1)


@dataclass(frozen=True, slots=True)
class Done:
    """A process that ended well."""

    wall_s: float
    peak_mib: float
    out: str

    @property
    def figures(self) -> Any:
        return json.loads(self.out)


def process(command: Sequence[str], cwd: str | None = None) -> Done:
    """Runs it to its end. The peak is the kernel's own count for that process."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        began = perf_counter()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, cwd=cwd)
        _, status, usage = os.wait4(child.pid, 0)
        wall = perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)  # so that Popen does not wait for it again
        out.seek(0)
        if child.returncode:
            errors.seek(0)
            tail = errors.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}:\n{tail}")
        return Done(wall, usage.ru_maxrss / 1024, out.read().decode())


def steady() -> None:
    """Sets the collector as the application does; call it when what lives long is there."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_EVERY, 50, 100)


def generated(folder: Path, jobs: int, load: float) -> Path:
    """A stationary trace for 512 processors. In a process of its own, so that ours stays small."""
    path = folder / f"generated-{jobs}-{load:g}.swf"
    if not path.exists():
        command = (*TIDE, "generate", "--jobs", str(jobs), "--procs", str(PROCESSORS), "--load", str(load))
        process([*command, "--out", str(path)])
    return path


def replay(trace: Path, *options: str) -> Done:
    return process([*TIDE, "replay", str(trace), "--policy", "easy", "--json", *options])
