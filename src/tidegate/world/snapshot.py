"""A world as octets, and back. The records are written as they are; what the world keeps for speed is made again.

A fold may begin at a snapshot instead of at event 1, so what is loaded must not only look the same: it must decide the
same, and go on the same. Where an order can reach an event (ends at one instant, timers, what ripens), it is kept.
"""

from typing import Any

import msgspec
import numpy as np

from tidegate.model.base import ARRAY_BITS
from tidegate.model.events import Promise
from tidegate.model.jobs import Job, Outcome, Pairs
from tidegate.model.nodes import Node, NodeState
from tidegate.model.policy import PolicySpec
from tidegate.world.gauges import sway
from tidegate.world.kept import kept_rows
from tidegate.world.pool import CLOSED, Pool
from tidegate.world.records import (
    Account,
    Alike,
    AlikeRuns,
    ArrayState,
    Excess,
    Gauge,
    HaltAsked,
    LastRuns,
    Notice,
    Parked,
    Pause,
    Reservation,
    Run,
    Save,
    Suspect,
    Tries,
)
from tidegate.world.reservations import reserved_in
from tidegate.world.waiting import can_start, enter_lane
from tidegate.world.world import SCALARS, TABLES, World

FORMAT = 1
"""Raised when an older snapshot could not be read as it is; `load` then translates the format before."""
MARK = b"tide%d\n"


class SnapshotError(Exception):
    """The octets are not a world this release can read."""


class _PoolImage(msgspec.Struct):
    """What of a pool does not follow from the records."""

    columns: int  # how many it has; a resource that came later with a node of another pool is not among them
    ends: dict[int, list[int]]  # the tasks that should end at one instant, in their order
    grown: bool
    freed: list[int] | None


class _Image(msgspec.Struct, kw_only=True):
    """Every name of SCALARS and TABLES. A new one that is missing here fails at the first `dump`.

    What came later has a default, so that an older snapshot loads.
    """

    seq: int
    cycle: int
    policy: PolicySpec
    policy_version: int
    next_job: int
    ordered: int
    interrupted: tuple[tuple[int, str], ...] = ()
    writes_until: int = 0
    accounts: dict[str, Account] = {}
    asks: list[tuple[int, int]] = []
    looks: dict[str, int] = {}
    pauses: dict[int, Pause] = {}
    told: dict[int, int] = {}
    saves: dict[int, Save] = {}
    arrays: dict[int, ArrayState]
    columns: dict[str, int]
    dependents: dict[int, tuple[int, ...]]
    emptying: dict[str, None]
    env_users: dict[str, int]
    environments: dict[str, Pairs]
    excesses: dict[str, Excess] = {}
    failed_on: dict[int, str]
    gauges: dict[str, Gauge] = {}
    halting: dict[int, HaltAsked]
    jobs: dict[int, Job]
    keys: dict[str, tuple[int, int]]
    last_runs: dict[str, LastRuns]
    launching: dict[int, int]
    marks: dict[str, tuple[int, ...]]
    nodes: dict[str, Node]
    notices: dict[int, Notice]
    outcomes: dict[int, Outcome]
    parked: dict[int, Parked]
    promises: dict[int, Promise]
    reservations: dict[str, Reservation] = {}
    ripe: dict[int, None]
    runs: dict[int, Run]
    strays: dict[tuple[int, int], int]
    suspects: dict[str, Suspect]
    timers: list[tuple[int, int]]
    tries: dict[int, Tries]
    pools: dict[str, _PoolImage]
    stirred: list[str]
    alike: dict[Alike, AlikeRuns] = {}  # releases before 0.2 kept none


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Image).decode


def dump(world: World) -> bytes:
    given: dict[str, Any] = {name: getattr(world, name) for name in (*SCALARS, *TABLES)}
    pools = {name: _pool_image(pool) for name, pool in world.pools.items()}
    return MARK % FORMAT + _encode(_Image(**given, pools=pools, stirred=list(world.stirred)))


def _pool_image(pool: Pool) -> _PoolImage:
    ends = {end: list(runs) for end, runs in pool.runs_at.items()}
    return _PoolImage(pool.total.shape[0], ends, pool.grown, None if pool.freed is None else sorted(pool.freed))


def load(octets: bytes) -> World:
    """Raises SnapshotError. The digest is cold: its first reading hashes every record."""
    mark, end, body = octets.partition(b"\n")
    if mark + end != MARK % FORMAT:
        raise SnapshotError(f"begins with {mark[:16]!r}, and this release reads {MARK % FORMAT!r}")
    try:
        image = _decode(body)
    except msgspec.DecodeError as error:
        raise SnapshotError(f"{error}") from error
    world = World()
    for name in (*SCALARS, *TABLES):
        setattr(world, name, getattr(image, name))
    for name, pool_image in image.pools.items():
        world.pools[name] = _pool(world, name, pool_image)
        world.pools[name].reserved = reserved_in(world, name)
        world.pools[name].kept = kept_rows(world.policy, world.pools[name])
    sway(world)
    for job in world.jobs.values():
        if job.id not in world.parked and can_start(world, job):
            enter_lane(world, job)
    for task in world.promises:
        world.pools[world.jobs[task >> ARRAY_BITS].pool].promised[task] = None
    for task, pause in world.pauses.items():
        if pause.stopped:
            world.pools[world.runs[task].pool].suspended[task] = None
    for name, pool_image in image.pools.items():
        _settle(world.pools[name], pool_image)
    world.stirred = {name: world.pools[name] for name in image.stirred}
    world.digest = world.digest.fork()
    return world


def _pool(world: World, name: str, image: _PoolImage) -> Pool:
    """With its nodes and runs."""
    pool = Pool(name)
    pool.nodes = [node for node in world.nodes.values() if node.pool == name]
    pool.names = [node.name for node in pool.nodes]
    pool.row_of = {node: row for row, node in enumerate(pool.names)}
    pool.total = np.zeros((image.columns, len(pool.names)), np.int64)
    for row, node in enumerate(pool.nodes):
        for resource, amount in node.capacity:
            pool.total[world.columns[resource], row] = amount
    pool.capacity = pool.total.sum(axis=1).tolist()
    pool.buffer = pool.total.copy()
    pool.cells = [column.data for column in pool.buffer]
    pool.tried = {pool.row_of[node]: 0 for node, suspect in world.suspects.items()
                  if suspect.tried and node in pool.row_of}  # fmt: skip
    for tasks in image.ends.values():
        for task in tasks:
            _place(pool, world.runs[task])
    pool.closed = {row for row, node in enumerate(pool.nodes)
                   if node.state is not NodeState.UP or pool.tried.get(row, 0)}  # fmt: skip
    pool.buffer[:, sorted(pool.closed)] -= CLOSED
    return pool


def _place(pool: Pool, run: Run) -> None:
    for column, amount in run.need:
        cells = pool.cells[column]
        for row, count in zip(run.rows, run.counts, strict=True):
            cells[row] -= amount * count
    for row in run.rows:
        if row in pool.tried:
            pool.tried[row] += 1
    pool.expect(run)


def _settle(pool: Pool, image: _PoolImage) -> None:
    """Counts what is there. Whoever decides next has a memo that knows nothing, so no lane counts as changed."""
    for runs in pool.runs_at.values():
        for run in runs.values():
            pool.join(run.need, plain=run.plain)
    pool.recount()
    pool.changed.clear()
    pool.fresh.clear()
    pool.grown = image.grown
    pool.freed = None if image.freed is None else set(image.freed)
