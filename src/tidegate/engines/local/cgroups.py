"""What this machine lets us do with cgroups, and a place in them for each job: version 2, and version 1.

A `Place` is one or more directories. Those without a memory limit are used again by the next job, because an
empty one is as good as new; one with a memory limit is made for its job and removed after it, because what was
charged to it stays. The places are below the cgroup that the keeper itself is in: what holds the keeper holds all.
"""

import os
from typing import NamedTuple

PERIOD_US = 100_000
QUOTA_MIN_US = 1_000
IDLE_PLACES_MAX = 32
ROUNDS_MAX = 100
READ_MAX = 1 << 16
UNIFIED = "unified"


class Place:
    """Where one job is held. `joins` are the files that its first process writes itself to."""

    def __init__(self, tree: str, joins: tuple[str, ...], cpu: str = "", memory: str = "") -> None:
        self.tree = tree  # the directory that lists every process of the job
        self.joins = joins
        self.cpu = cpu
        self.memory = memory
        self.quota_us = -1
        self.alarm = -1  # readable when the job is out of memory; version 1 has to be watched
        self.watched = -1
        self.cpu_before_us = 0

    def directories(self) -> list[str]:
        return [directory for directory in dict.fromkeys((self.memory, self.tree, self.cpu)) if directory]


class Mount(NamedTuple):
    """One hierarchy, and the directory in it that this process is in."""

    version: int
    controllers: frozenset[str]
    here: str


def read(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        text = b""
        while part := os.read(fd, READ_MAX):
            text += part
        return text.decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def try_write(path: str, text: str) -> bool:
    try:
        write(path, text)
    except OSError:
        return False
    return True


def number_in(path: str, name: str = "") -> int:
    """The number after `name` in a file of names and numbers, or the only one; -1 where there is none."""
    for line in read(path).splitlines():
        words = line.split()
        if words and (words[0] == name or not name) and words[-1].isdecimal():
            return int(words[-1])
    return -1


def processes_in(directory: str) -> list[int]:
    text = read(f"{directory}/cgroup.procs")
    return [int(pid) for pid in text.split() if pid != "0"] if text else []


def mounts(proc: str = "/proc/self") -> list[Mount]:
    """Every hierarchy that is mounted, with our own directory as it is seen through the mount."""
    inside: dict[str, str] = {}
    for line in read(f"{proc}/cgroup").splitlines():
        _, joined, where = line.split(":", 2)
        for name in joined.split(",") if joined else [UNIFIED]:
            inside[name] = where
    found = []
    for line in read(f"{proc}/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind not in {"cgroup", "cgroup2"}:
            continue
        root, point = left.split()[3:5]
        names = {UNIFIED} if kind == "cgroup2" else set(options.split()[-1].split(",")) & inside.keys()
        path = next((inside[name] for name in sorted(names) if name in inside), None)
        if path is None:
            continue
        path = path[len(root) :] if root != "/" and path.startswith(root) else path
        here = f"{point}/{path.strip('/')}".rstrip("/")
        version, controllers = (2, read(f"{here}/cgroup.controllers").split()) if kind == "cgroup2" else (1, names)
        found.append(Mount(version, frozenset(controllers), here))
    return found


class Cgroups:
    """All places of one keeper. `record` names the directories it made, so that its successor finds them."""

    def __init__(self, name: str, record: str, hierarchies: list[Mount]) -> None:
        self.name = name
        self.record = record
        self.notes: list[str] = []
        self.bases: dict[str, str] = {}  # cpu, memory, tree -> directory
        self.version = {"cpu": 0, "memory": 0, "tree": 0}
        self.idle: list[Place] = []
        self.dying: list[str] = []
        self.made = 0
        self.serial = 0
        self.has_kill = False
        self.counts_cpu = ""
        self._find(hierarchies)

    # -- what the machine allows, once -------------------------------------------------------------------

    def _find(self, hierarchies: list[Mount]) -> None:
        trouble = ""
        for mount in sorted(hierarchies, key=lambda mount: (-mount.version, mount.here)):
            wanted = {"cpu", "memory"} & mount.controllers - self.bases.keys()
            if not wanted:
                continue
            try:
                for what in self._base2(mount, wanted) if mount.version == 2 else self._base1(mount, wanted):
                    self.version[what] = mount.version
            except OSError as error:
                trouble = f" ({mount.here}: {error.strerror})"
        if "cpu" in self.bases:
            self.bases["tree"], self.version["tree"] = self.bases["cpu"], self.version["cpu"]
        else:
            self._find_tree(hierarchies)
        self.has_kill = bool(self.version["tree"] == 2 and os.access(self.bases["tree"] + "/cgroup.kill", os.W_OK))
        cure = "run the server as root, or as a systemd unit with Delegate=yes" + trouble
        if "memory" not in self.bases:
            self.notes.append(f"memory limits are not held: no memory cgroup is usable; {cure}")
        if "cpu" not in self.bases:
            self.notes.append(f"jobs may use more cpus than given: no cpu cgroup is usable; {cure}")

    def _find_tree(self, hierarchies: list[Mount]) -> None:
        """Without cpu limits any hierarchy can still hold the processes of a job together."""
        for mount in sorted(hierarchies, key=lambda mount: (-mount.version, mount.here)):
            try:
                self.bases["tree"] = self._make_base(mount.here)
            except OSError:
                continue
            self.version["tree"] = mount.version
            return

    def _make_base(self, here: str) -> str:
        base = f"{here}/{self.name}"
        fd = os.open(self.record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(fd, base.encode() + b"\n")  # before it is made: a name too many harms nobody
        os.close(fd)
        os.makedirs(base, exist_ok=True)
        return base

    def _base1(self, mount: Mount, wanted: set[str]) -> set[str]:
        base = self._make_base(mount.here)
        if "memory" in wanted:
            try_write(f"{base}/memory.use_hierarchy", "1")  # kernels before 5.11
        if "cpu" in wanted and not os.access(f"{base}/cpu.cfs_quota_us", os.W_OK):
            wanted = wanted - {"cpu"}  # a kernel without quotas
        if "cpu" in wanted and "cpuacct" in mount.controllers:
            self.counts_cpu = "cpuacct.usage"
        for what in wanted:
            self.bases[what] = base
        return wanted

    def _base2(self, mount: Mount, wanted: set[str]) -> set[str]:
        """Version 2 gives limits only below a cgroup without processes: beside our own, or in it once we moved on."""
        parent = mount.here.rsplit("/", 1)[0]
        top = not os.access(f"{mount.here}/cgroup.events", os.F_OK)  # the root of all has none
        for place in [mount.here] if top else [parent, mount.here]:
            have = set(read(f"{place}/cgroup.subtree_control").split())
            if not wanted <= have and not self._enable(place, wanted - have):
                continue
            try:
                base = self._make_base(place)
            except OSError:
                continue
            if not try_write(f"{base}/cgroup.subtree_control", " ".join(f"+{what}" for what in sorted(wanted))):
                continue
            for what in wanted:
                self.bases[what] = base
            self.counts_cpu = "cpu.stat"
            return wanted
        raise OSError(1, "not delegated to this user, or shared with other processes")

    def _enable(self, place: str, wanted: set[str]) -> bool:
        control, text = f"{place}/cgroup.subtree_control", " ".join(f"+{what}" for what in sorted(wanted))
        if try_write(control, text):
            return True
        ours = {os.getpid(), os.getppid()}
        inside = set(processes_in(place))
        if not inside or not inside <= ours:
            return False
        try:
            leaf = f"{place}/{self.name}-keeper"
            os.makedirs(leaf, exist_ok=True)
            for pid in inside:
                write(f"{leaf}/cgroup.procs", str(pid))
        except OSError:
            return False
        return try_write(control, text)

    # -- places ------------------------------------------------------------------------------------------

    def take(self, cpu_milli: int, memory_mib: int) -> Place | None:
        """A place with these limits; None where the machine has none to offer. OSError: it has, and failed."""
        if not self.bases:
            return None
        quota = -1 if not cpu_milli or "cpu" not in self.bases else max(QUOTA_MIN_US, cpu_milli * PERIOD_US // 1000)
        limited = bool(memory_mib and "memory" in self.bases)
        place = None
        if not (limited and self.version["memory"] == 2):
            place = next((idle for idle in reversed(self.idle) if idle.quota_us == quota), None)
            place = place or (self.idle[-1] if self.idle else None)
        if place is None:
            place = self._make()
        else:
            self.idle.remove(place)
        try:
            if place.quota_us != quota and place.cpu:
                self._set_quota(place, quota)
            if limited:
                self._limit_memory(place, memory_mib << 20)
        except OSError:
            self._remove(place)
            raise
        if self.counts_cpu:
            place.cpu_before_us = self._cpu_us(place)
        return place

    def _make(self) -> Place:
        self.serial += 1
        directory = f"{self.bases['tree']}/{self.serial}"
        os.mkdir(directory)
        return Place(directory, (f"{directory}/cgroup.procs",), directory if "cpu" in self.bases else "")

    def _set_quota(self, place: Place, quota: int) -> None:
        """A share that an outer cgroup already undercuts is refused by version 1: then that one holds."""
        if self.version["cpu"] == 2:
            write(f"{place.cpu}/cpu.max", f"{quota if quota > 0 else 'max'} {PERIOD_US}")
        elif not try_write(f"{place.cpu}/cpu.cfs_quota_us", str(quota)):
            write(f"{place.cpu}/cpu.cfs_quota_us", "-1")
        place.quota_us = quota

    def _limit_memory(self, place: Place, octets: int) -> None:
        if self.version["memory"] == 2:
            place.memory = place.tree
            try_write(f"{place.memory}/memory.oom.group", "1")
            try_write(f"{place.memory}/memory.swap.max", "0")
            write(f"{place.memory}/memory.max", str(octets))
            return
        self.serial += 1
        directory = f"{self.bases['memory']}/m{self.serial}"
        os.mkdir(directory)
        place.memory = directory
        write(f"{directory}/memory.limit_in_bytes", str(octets))
        try_write(f"{directory}/memory.memsw.limit_in_bytes", str(octets))  # memory and swap together
        try_write(f"{directory}/memory.swappiness", "0")
        place.joins = (f"{place.tree}/cgroup.procs", f"{directory}/cgroup.procs")
        self._watch_memory(place)

    def _watch_memory(self, place: Place) -> None:
        """Version 1 kills one process and lets the rest go on; the alarm lets the keeper end the job."""
        try:
            place.alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            place.watched = os.open(f"{place.memory}/memory.oom_control", os.O_RDONLY)
            write(f"{place.memory}/cgroup.event_control", f"{place.alarm} {place.watched}")
        except OSError:
            self._unwatch(place)  # then it is seen when the job has ended

    def _unwatch(self, place: Place) -> None:
        for fd in (place.alarm, place.watched):
            if fd >= 0:
                os.close(fd)
        place.alarm = place.watched = -1

    def give_back(self, place: Place) -> None:
        """Nobody is in it any more."""
        self._unwatch(place)
        if place.memory and place.memory != place.tree:
            self._rmdir(place.memory)
            place.memory = ""
            place.joins = (f"{place.tree}/cgroup.procs",)
        if place.memory or len(self.idle) >= IDLE_PLACES_MAX:
            self._remove(place)
        else:
            self.idle.append(place)

    def _remove(self, place: Place) -> None:
        self._unwatch(place)
        for directory in place.directories():
            self._rmdir(directory)

    def _rmdir(self, directory: str) -> None:
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            pass
        except OSError:
            self.dying.append(directory)  # somebody in it has not quite gone; tried again by `tidy`

    def abandon(self, place: Place) -> None:
        """Somebody in it cannot be ended: nobody else comes in, and it goes when it can."""
        self._remove(place)

    def tidy(self) -> None:
        dying, self.dying = self.dying, []
        for directory in dying:
            self._rmdir(directory)

    def close(self) -> None:
        for place in self.idle:
            self._remove(place)
        self.idle.clear()
        for base in set(self.bases.values()):
            self._rmdir(base)

    # -- what happens in a place -------------------------------------------------------------------------

    def processes(self, place: Place) -> list[int]:
        return processes_in(place.tree)

    def kill(self, place: Place) -> None:
        kill_all(place.tree)

    def out_of_memory(self, place: Place, signal: int) -> bool:
        """Whether the kernel ended somebody in it for want of memory."""
        if not place.memory:
            return False
        if self.version["memory"] == 2:
            return number_in(f"{place.memory}/memory.events", "oom_kill") > 0
        kills = number_in(f"{place.memory}/memory.oom_control", "oom_kill")
        if kills < 0:  # kernels before 4.13 do not count them
            return signal == 9 and number_in(f"{place.memory}/memory.failcnt") > 0
        return kills > 0

    def peak_kib(self, place: Place) -> int:
        if not place.memory:
            return -1
        file = "memory.peak" if self.version["memory"] == 2 else "memory.max_usage_in_bytes"
        octets = number_in(f"{place.memory}/{file}")
        return -1 if octets < 0 else octets >> 10

    def cpu_ms(self, place: Place) -> int:
        return (self._cpu_us(place) - place.cpu_before_us) // 1000 if self.counts_cpu else -1

    def _cpu_us(self, place: Place) -> int:
        if self.counts_cpu == "cpu.stat":
            return number_in(f"{place.tree}/cpu.stat", "usage_usec")
        return number_in(f"{place.tree}/{self.counts_cpu}") // 1000


def kill_all(directory: str) -> None:
    """Ends everyone in it. Killing is quicker than forking, so a few rounds outrun a job that multiplies."""
    if try_write(f"{directory}/cgroup.kill", "1"):
        return
    killed: set[int] = set()
    for _ in range(ROUNDS_MAX):
        fresh = set(processes_in(directory)) - killed
        if not fresh:
            return
        killed |= fresh
        for pid in fresh:
            try:
                os.kill(pid, 9)
            except OSError:
                pass  # gone


def leftover(record: str) -> list[str]:
    """The directories of places that earlier keepers of this home made, deepest last; their bases come at the end."""
    bases = list(dict.fromkeys(read(record).split("\n")))
    places = []
    for base in filter(None, bases):
        try:
            places += [f"{base}/{name}" for name in os.listdir(base)]
        except OSError:
            continue
    return [place for place in places if os.access(f"{place}/cgroup.procs", os.F_OK)]
