"""Finding and ending every process of a job through /proc, where no cgroup holds them together.

A job is its process group and session, their descendants, what came to the keeper as an orphan, and whatever
carries the job's names in its environment.
"""

import os
from collections.abc import Iterable
from typing import NamedTuple

TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")


class Seen(NamedTuple):
    parent: int
    group: int
    session: int
    up_ms: int  # time since boot when it began, rounded down


def seen(pid: int) -> Seen | None:
    """None for what is gone, or has ended and waits to be reaped."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(fd, 4096)
    except OSError:
        return None
    finally:
        os.close(fd)
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20 or fields[0] in {b"Z", b"X"}:
        return None
    return Seen(int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]) * TICK_MS)


def everyone() -> dict[int, Seen]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            process = seen(int(name))
            if process is not None:
                found[int(name)] = process
    return found


def environment(pid: int) -> frozenset[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return frozenset(file.read().split(b"\0"))
    except OSError:
        return frozenset()  # gone, or not ours to read


def own_children() -> list[int] | None:
    """None where the kernel does not list them."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return None


def ancestors(processes: dict[int, Seen]) -> set[int]:
    """This process and what it came from: never to be ended, whatever they carry."""
    line, pid = {1}, os.getpid()
    while pid and pid not in line:
        line.add(pid)
        pid = processes[pid].parent if pid in processes else 0
    return line


def family(leader: int, marks: frozenset[bytes], *, gone: bool = False) -> list[int]:
    """Everyone in the session and group of `leader`, who descends from them, or carries all `marks`.

    `gone`: the leader was reaped; a process with its number now is somebody else.
    """
    processes = everyone()
    kept = ancestors(processes)
    found: set[int] = set()
    if not gone or leader not in processes:
        found = {pid for pid, it in processes.items() if leader in {pid, it.session, it.group}}
    found |= {pid for pid in processes.keys() - found - kept if marks and marks <= environment(pid)}
    grown = True
    while grown:
        more = {pid for pid, it in processes.items() if it.parent in found} - found
        grown = bool(more)
        found |= more
    return sorted(found - kept)


def listens(pid: int, signal: int) -> bool:
    """Whether it catches the signal, or blocks it to wait for it. Of one that it does neither with it might end."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith((b"SigCgt:", b"SigBlk:"))]
    return any(mask >> (signal - 1) & 1 for mask in masks)


def listeners(leader: int, signal: int) -> list[int]:
    """The process itself if it listens, else those of its descendants that do, and nobody below one of them."""
    if listens(leader, signal):
        return [leader]
    children: dict[int, list[int]] = {}
    for pid, it in everyone().items():
        children.setdefault(it.parent, []).append(pid)
    found, level = [], children.pop(leader, [])
    while level:
        hear = [pid for pid in level if listens(pid, signal)]
        found += hear
        level = [child for pid in level if pid not in hear for child in children.pop(pid, [])]
    return sorted(found)


def send(pids: Iterable[int], signal: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal)
        except OSError:
            pass  # gone, or (for another user's keeper) not ours


def send_group(leader: int, signal: int) -> None:
    try:
        os.killpg(leader, signal)
    except OSError:
        pass  # nobody is left in it
