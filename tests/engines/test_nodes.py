"""What this machine is found to have, and what it is declared to have."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tidegate.engines.local import nodes
from tidegate.engines.local.nodes import cpus_milli, declare, detect, memory_mib, upwards
from tidegate.model.jobs import GPU_LABEL, amounts


def test_this_machine_is_one_node() -> None:
    machine = detect()
    node = machine.nodes[0]
    has = dict(node.capacity)
    assert (len(machine.nodes), node.pool, machine.declared) == (1, "main", False)
    assert node.name == os.uname().nodename
    assert 0 < has["cpus"] <= 1000 * (os.cpu_count() or 1)
    assert 0 < has["memory"] < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20


def test_declared_nodes_have_devices_of_their_own() -> None:
    machine = declare(3, 4000, 1024, gpus=2)
    assert [node.name for node in machine.nodes] == ["node1", "node2", "node3"]
    assert {node.capacity for node in machine.nodes} == {amounts(cpus=4000, memory=1024, gpus=2000)}
    assert machine.devices == {"node1": ("0", "1"), "node2": ("2", "3"), "node3": ("4", "5")}
    assert machine.declared


def test_gpus_may_be_said_where_they_cannot_be_asked() -> None:
    machine = detect(gpus=3)
    assert dict(machine.nodes[0].capacity)["gpus"] == 3000
    assert machine.devices == {machine.nodes[0].name: ("0", "1", "2")}


def proc(tmp_path: Path, cgroup: str, mounts: str) -> Path:
    place = tmp_path / "proc"
    (place / "self").mkdir(parents=True)
    (place / "self" / "cgroup").write_text(cgroup)
    (place / "self" / "mountinfo").write_text(mounts)
    (place / "meminfo").write_text("MemTotal:       16777216 kB\nMemFree:  1 kB\n")
    return place


def write(path: Path, **files: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text + "\n")


def test_limits_of_version_2_count_at_every_height(tmp_path: Path) -> None:
    top = tmp_path / "cgroup"
    write(top / "a" / "b", cgroup__controllers="cpu memory", cpu__max="max 100000", memory__max="max")
    write(top / "a", cpu__max="50000 100000", memory__max=str(2 << 30))
    place = proc(tmp_path, "0::/a/b\n", f"30 23 0:26 / {top} rw shared:4 - cgroup2 cgroup2 rw\n")
    assert cpus_milli(place) == 500
    assert memory_mib(place) == 2048 - 2048 // 20


def test_limits_of_version_1_count_through_the_mount_of_a_container(tmp_path: Path) -> None:
    cpu, memory = tmp_path / "cpu,cpuacct", tmp_path / "memory"
    write(cpu / "job", cpu__cfs_quota_us="150000", cpu__cfs_period_us="100000")
    write(memory / "job", memory__limit_in_bytes=str(1 << 30))
    place = proc(
        tmp_path,
        "5:memory:/docker/x/job\n4:cpu,cpuacct:/docker/x/job\n",
        f"31 23 0:27 /docker/x {cpu} rw - cgroup cgroup rw,cpu,cpuacct\n"
        f"32 23 0:28 /docker/x {memory} rw - cgroup cgroup rw,memory\n",
    )
    assert cpus_milli(place) == min(1500, 1000 * len(os.sched_getaffinity(0)))
    assert memory_mib(place) == 1024 - 1024 // 20


def test_without_cgroups_the_machine_counts(tmp_path: Path) -> None:
    place = proc(tmp_path, "", "")
    assert cpus_milli(place) == 1000 * len(os.sched_getaffinity(0))
    assert memory_mib(place) == 16384 - 512


def test_upwards_ends_at_the_mount_of_all() -> None:
    assert upwards("/sys/fs/cgroup/memory/a/b")[0] == "/sys/fs/cgroup/memory/a/b"
    assert upwards("/sys/fs/cgroup/memory/a/b")[-1] == "/sys/fs/cgroup"


class Nvml(ModuleType):
    """As nvidia-ml-py, with the devices that a test wants."""

    NVML_ERROR_LIBRARY_NOT_FOUND, NVML_ERROR_DRIVER_NOT_LOADED = 12, 9

    class NVMLError(Exception):
        value = 12

    def __init__(self, models: list[str], fault: int = 0) -> None:
        super().__init__("pynvml")
        self.models, self.fault = models, fault

    def nvmlInit(self) -> None:  # noqa: N802 - its name
        if self.fault:
            error = self.NVMLError("a fault")
            error.value = self.fault
            raise error

    def nvmlShutdown(self) -> None: ...  # noqa: N802 - its name

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - its name
        return len(self.models)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:  # noqa: N802 - its name
        return number

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802 - its name
        return self.models[handle]


@pytest.mark.parametrize(
    ("nvml", "devices", "model", "note"),
    [
        (Nvml(["A100", "A100"]), ("0", "1"), "A100", ""),
        (Nvml(["A100", "H100"]), ("0", "1"), "", "GPUs of different models (A100, H100): none is a label"),
        (Nvml([]), (), "", ""),
        (Nvml([], fault=12), (), "", ""),
        (Nvml([], fault=9), (), "", ""),
        (Nvml([], fault=3), (), "", "GPUs cannot be asked for: a fault"),
    ],
)
def test_gpus_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, nvml: Nvml, devices: tuple[str, ...], model: str, note: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert nodes.nvidia() == (devices, model, note)
    found = detect().nodes[0].labels
    assert found == (((GPU_LABEL, model),) if model else ())
