"""The digest of a world: equal states give equal digests, on any machine and under any hash seed.

It is the sum, modulo 2**128, of a hash of every record. So it follows what changed: whoever changes a record
notes its key, and the next reading re-hashes the noted ones only. A record that comes and goes between two
readings costs nothing but the note.
"""

from hashlib import blake2b
from typing import Any

import msgspec

MODULUS = 1 << 128

_encode = msgspec.msgpack.Encoder().encode


def record_hash(kind: str, key: Any, record: Any) -> int:
    return int.from_bytes(blake2b(_encode((kind, key, record)), digest_size=16).digest())


class Notes:
    """What is known of one kind of record."""

    __slots__ = ("hashes", "touched")

    def __init__(self) -> None:
        self.hashes: dict[Any, int] = {}
        self.touched: set[Any] = set()

    def gone(self, key: Any) -> None:
        """The record left. One that was never hashed needs no note, so notes stay as few as live records."""
        if key in self.hashes:
            self.touched.add(key)
        else:
            self.touched.discard(key)


RECORD_KINDS = (
    "accounts", "alike", "arrays", "dependents", "environments", "excesses", "failed_on", "gauges", "halting", "jobs",
    "keys", "last_runs", "marks", "nodes", "notices", "outcomes", "parked", "pauses", "promises", "reservations",
    "runs", "saves", "strays", "suspects", "told", "tries",
)  # fmt: skip


class Digest:
    """One attribute a kind of record, named as the world names it."""

    accounts: Notes
    alike: Notes
    arrays: Notes
    dependents: Notes
    environments: Notes
    excesses: Notes
    failed_on: Notes
    gauges: Notes
    halting: Notes
    jobs: Notes
    keys: Notes
    last_runs: Notes
    marks: Notes
    nodes: Notes
    notices: Notes
    outcomes: Notes
    parked: Notes
    pauses: Notes
    promises: Notes
    reservations: Notes
    runs: Notes
    saves: Notes
    strays: Notes
    suspects: Notes
    told: Notes
    tries: Notes

    def __init__(self) -> None:
        self.total = 0
        self.is_cold = False
        for kind in RECORD_KINDS:
            setattr(self, kind, Notes())

    def fork(self) -> "Digest":
        """Knows nothing yet: few forks are ever asked, and the first reading hashes everything."""
        twin = Digest()
        twin.is_cold = True
        return twin

    def read(self, records: object) -> int:
        """Brings the noted records up to date."""
        if self.is_cold:
            self.is_cold = False
            for kind in RECORD_KINDS:
                getattr(self, kind).touched.update(getattr(records, kind))
        for kind in RECORD_KINDS:
            notes, known = getattr(self, kind), getattr(records, kind)
            hashes = notes.hashes
            for key in notes.touched:
                old = hashes.pop(key, 0)
                record = known.get(key)
                if record is not None:
                    hashes[key] = new = record_hash(kind, key, record)
                    self.total += new
                self.total -= old
            notes.touched.clear()
        self.total %= MODULUS
        return self.total
