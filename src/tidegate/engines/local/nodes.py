"""Nodes of this machine: one that is measured, or several that are declared and share it."""

import os
import socket
from pathlib import Path
from typing import NamedTuple

from tidegate.engines.local.cgroups import mounts, read
from tidegate.model.jobs import CPUS, GPU_LABEL, GPUS, MEMORY, amounts
from tidegate.model.nodes import Node

POOL = "main"
RESERVE_MIB = 512
RESERVE_SHARE = 20
"""Left to the system, the server and its clients: a twentieth of the memory, and 512 MiB at the most."""

UNLIMITED = 1 << 60


class Machine(NamedTuple):
    """Nodes, and the devices of each that jobs may be given."""

    nodes: tuple[Node, ...]
    devices: dict[str, tuple[str, ...]]
    declared: bool
    notes: tuple[str, ...] = ()


def detect(gpus: int | None = None, proc: Path = Path("/proc")) -> Machine:
    """This machine as one node. `gpus` says how many there are where they cannot be asked."""
    labels: dict[str, str] = {}
    notes: list[str] = []
    if gpus is None:
        devices, model, note = nvidia()
        if model:
            labels[GPU_LABEL] = model
        notes += [note] if note else []
    else:
        devices = tuple(str(number) for number in range(gpus))
    name = socket.gethostname() or "localhost"
    capacity = amounts(**{CPUS: cpus_milli(proc), MEMORY: memory_mib(proc), GPUS: 1000 * len(devices)})
    node = Node(name, POOL, capacity, tuple(sorted(labels.items())))
    return Machine((node,), {name: devices}, declared=False, notes=tuple(notes))


def declare(count: int, milli_cpus: int, memory_mib: int, gpus: int = 0) -> Machine:
    """`count` nodes of that size, node1 to nodeN, whatever this machine has: for tests and for learning."""
    nodes, devices = [], {}
    for number in range(count):
        name = f"node{number + 1}"
        nodes.append(Node(name, POOL, amounts(**{CPUS: milli_cpus, MEMORY: memory_mib, GPUS: 1000 * gpus})))
        devices[name] = tuple(str(number * gpus + device) for device in range(gpus))
    return Machine(tuple(nodes), devices, declared=True)


def cpus_milli(proc: Path = Path("/proc")) -> int:
    """What this process may use: the processors it may run on, and the quotas of the cgroups around it."""
    allowed = 1000 * len(os.sched_getaffinity(0))
    for mount in mounts(str(proc / "self")):
        if "cpu" in mount.controllers:
            for place in upwards(mount.here):
                quota, period = quota_of(place, mount.version)
                if quota > 0 and period > 0:
                    allowed = min(allowed, max(1000 * quota // period, 1))
    return allowed


def quota_of(place: str, version: int) -> tuple[int, int]:
    words = (
        read(f"{place}/cpu.max").split()
        if version == 2
        else [read(f"{place}/cpu.cfs_quota_us").strip(), read(f"{place}/cpu.cfs_period_us").strip()]
    )
    return (int(words[0]), int(words[1])) if len(words) == 2 and all(word.isdecimal() for word in words) else (0, 0)


def memory_mib(proc: Path = Path("/proc")) -> int:
    """All memory, or what the cgroups around this process leave of it, minus the reserve."""
    total = UNLIMITED
    for line in (proc / "meminfo").read_text().splitlines():
        words = line.split()
        if words[0] == "MemTotal:":
            total = int(words[1]) << 10
    for mount in mounts(str(proc / "self")):
        if "memory" in mount.controllers:
            file = "memory.max" if mount.version == 2 else "memory.limit_in_bytes"
            for place in upwards(mount.here):
                limit = read(f"{place}/{file}").strip()
                if limit.isdecimal():
                    total = min(total, int(limit))
    mib = total >> 20
    return max(1, mib - min(RESERVE_MIB, mib // RESERVE_SHARE))


def upwards(directory: str) -> list[str]:
    """The directory and all above it: a limit of any of them holds."""
    parts = directory.split("/")
    return ["/".join(parts[:depth]) for depth in range(len(parts), 3, -1)]


def nvidia() -> tuple[tuple[str, ...], str, str]:
    """Device numbers, the model (where all are the same), and what a person should know. No driver is no fault."""
    try:
        import pynvml
    except ImportError:
        return (), "", ""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        absent = {pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED}
        return (), "", "" if error.value in absent else f"GPUs cannot be asked for: {error}"
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
        models = {str(pynvml.nvmlDeviceGetName(handle)) for handle in handles}
    except pynvml.NVMLError as error:
        return (), "", f"GPUs cannot be asked for: {error}"
    finally:
        pynvml.nvmlShutdown()
    model = models.pop() if len(models) == 1 else ""
    note = f"GPUs of different models ({', '.join(sorted(models))}): none is a label" if models else ""
    return tuple(str(number) for number in range(len(handles))), model, note
