"""The policies that were in force, as a table: a view of the PolicyChanged events, kept when those are let go by age.

It is written in the transaction of the events themselves, so the two never disagree.
"""

import sqlite3
from collections.abc import Iterable, Sequence

from tidegate.model.events import Event, PolicyChanged
from tidegate.wire.events import decode, encode

TABLE = """
CREATE TABLE IF NOT EXISTS policy (version INTEGER PRIMARY KEY, seq INTEGER NOT NULL, body BLOB NOT NULL)
"""
"""Not part of a format: an earlier release takes no notice of it, and what it adds is found again in the events."""
INSERT = "INSERT OR REPLACE INTO policy VALUES (?, ?, ?)"
Numbered = tuple[int, PolicyChanged]
"""The number of the event, and the event."""


def changes_among(events: Sequence[Event], first: int) -> list[Numbered]:
    """`first`: the number of the first of them."""
    return [(number, event) for number, event in enumerate(events, first) if type(event) is PolicyChanged]


def write_policies(db: sqlite3.Connection, changes: Iterable[Numbered]) -> None:
    db.executemany(INSERT, [(event.version, number, encode(event)) for number, event in changes])


def newest(db: sqlite3.Connection) -> tuple[int, int]:
    """(version, number of its event) of the last one that the table has."""
    row = db.execute("SELECT version, seq FROM policy ORDER BY version DESC LIMIT 1").fetchone()
    return (row[0], row[1]) if row else (0, 0)


def read_policy(db: sqlite3.Connection, version: int) -> PolicyChanged | None:
    row = db.execute("SELECT body FROM policy WHERE version = ?", (version,)).fetchone()
    return _decoded(row[0]) if row else None


def read_policies(db: sqlite3.Connection, at_most: int) -> list[PolicyChanged]:
    """Newest first."""
    rows = db.execute("SELECT body FROM policy ORDER BY version DESC LIMIT ?", (at_most,)).fetchall()
    return [_decoded(body) for (body,) in rows]


def _decoded(body: bytes) -> PolicyChanged:
    event = decode(body)
    assert isinstance(event, PolicyChanged), "nothing else is written there"
    return event
