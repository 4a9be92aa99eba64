"""What a new keeper does about the jobs of one that was killed: ends what is left of them, and says they are lost.

They cannot be taken over: nobody but their parent is told how they end.
"""

import os
import time

from tidegate.engines.local import trees
from tidegate.engines.local.cgroups import kill_all, leftover, processes_in, read
from tidegate.engines.local.records import Claim, End, Records

KILL = 9
ROUNDS_MAX = 200
ROUND_S = 0.01
BOOT_ID = "/proc/sys/kernel/random/boot_id"
LOST = "lost"
KEEPER_DIED = "the keeper was ended from outside while this ran, so how it ended is not known; it was ended too"
REBOOTED = "the machine was started anew while this ran"


def take_over(home: str, records: Records) -> int:
    """How many attempts were lost."""
    booted = f"{home}/keeper/boot"
    same_boot = read(booted) in {"", read(BOOT_ID)}  # who took the file away did not start the machine anew
    record = f"{home}/keeper/cgroups"
    if same_boot:
        _end_all(home, records.claims, record)
    _remove(record)
    with open(booted, "w", encoding="ascii") as file:
        file.write(read(BOOT_ID))
    for claim in records.claims:
        records.add(End(*claim.key, LOST, why=KEEPER_DIED if same_boot else REBOOTED))
    return len(records.claims)


def _end_all(home: str, claims: list[Claim], record: str) -> None:
    """Round after round until nobody is left; bounded, because one that waits for a device cannot be ended."""
    places = leftover(record)
    for _ in range(ROUNDS_MAX):
        for place in places:
            kill_all(place)
        found = _found(home, claims)
        trees.send(found, KILL)
        if not found and not any(processes_in(place) for place in places):
            return
        time.sleep(ROUND_S)


def _found(home: str, claims: list[Claim]) -> set[int]:
    """Who claimed, their sessions and descendants, and who carries the names of this home's jobs.

    A process is the one that claimed when it began no later than the claim was made: numbers are used again.
    """
    if not claims:
        return set()
    processes = trees.everyone()
    kept = trees.ancestors(processes)
    owners = {claim.pid for claim in claims if claim.pid in processes and processes[claim.pid].up_ms <= claim.up_ms}
    mark = f"TIDE_HOME={home}".encode()
    found = {pid for pid, it in processes.items() if pid in owners or it.session in owners or it.group in owners}
    for pid in processes.keys() - found - kept:
        entries = trees.environment(pid)
        if mark in entries and any(entry.startswith(b"TIDE_JOB_ID=") for entry in entries):
            found.add(pid)
    grown = True
    while grown:
        more = {pid for pid, it in processes.items() if it.parent in found} - found
        grown = bool(more)
        found |= more
    return found - kept


def _remove(record: str) -> None:
    """The places of earlier keepers, and then the record of them. What is not empty yet stays for the next time."""
    bases = [base for base in read(record).split("\n") if base]
    for directory in [*leftover(record), *dict.fromkeys(bases)]:
        try:
            os.rmdir(directory)
        except OSError:
            pass
    left = [base for base in dict.fromkeys(bases) if os.access(base, os.F_OK)]
    with open(record, "w", encoding="utf-8") as file:
        file.writelines(f"{base}\n" for base in left)
