"""Reserving: which nodes a reservation gets, who may make one, and who may use it.

Room is counted by time limits here, and beside every promise: what is reserved is certain, or it is refused.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tidegate.core.parts import rest, runs_apart
from tidegate.model import commands as cmd
from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS, FOREVER_MS
from tidegate.model.commands import Refused
from tidegate.model.events import Placement
from tidegate.model.jobs import Amounts, JobSpec, Shape
from tidegate.model.nodes import NodeState
from tidegate.model.policy import HOUR_MS
from tidegate.model.reservations import ReservationSpec
from tidegate.policy.admission import amount_of, lasting, said
from tidegate.world.draft import Rows, add_many, holds_chunk
from tidegate.world.holds import holds_of, reservation_of
from tidegate.world.pauses import ends_latest
from tidegate.world.pool import Columns, Pool, chunks_by_row
from tidegate.world.records import Need, Reservation
from tidegate.world.world import World

RESERVATIONS_MAX = 200
OF_USER_MAX = 20
"""So many of them may be one user's own, lest nobody else has any left."""
LASTS_MAX_MS = 366 * 24 * HOUR_MS
NAMED_MAX = 12
"""So many names are listed in a refusal."""
CHUNKS_MAX = 1 << 24
Answer = tuple[ev.Event, ...] | Refused


def reserve(world: World, command: cmd.Reserve, now: int) -> Answer:
    asked = command.spec
    spec = replace(asked, start_ms=asked.start_ms or now, pool=asked.pool or _pool_of(world, asked))
    known = world.reservations.get(spec.name)
    if known is not None and asked == _as_asked(known.spec, asked):
        return ()
    pool = world.pools.get(spec.pool)
    refused = _check(world, spec, pool, now) or (None if command.operator else _beyond_user(world, spec, now))
    if refused is not None:
        return refused
    assert pool is not None
    nodes = _place(world, pool, spec, now, force=command.force and command.operator)
    if isinstance(nodes, Refused):
        return nodes
    made = Reservation(spec, spec.pool, nodes, command.operator, 0, spec.start_ms)
    if not command.operator:
        refused = _over_quota(world, made, now)
        if refused is not None:
            return refused
    if not command.force:
        job = _delayed_by(world, pool, made, now)
        if job:
            return Refused(
                f"it would delay the promised start of job {job}",
                "reserve another time, less or other nodes; an operator may force it",
            )
    return (ev.ReservationMade(now, spec, nodes, command.operator),)


def _as_asked(known: ReservationSpec, asked: ReservationSpec) -> ReservationSpec:
    """With left out what was."""
    return replace(known, start_ms=known.start_ms if asked.start_ms else 0, pool=known.pool if asked.pool else "")


def end_reservation(world: World, command: cmd.EndReservation, now: int) -> Answer:
    if command.name not in world.reservations:
        return _unknown(world, command.name)
    by = f"released by {command.by}" if command.by else "released"
    return (ev.ReservationOver(now, command.name, by),)


def _unknown(world: World, name: str) -> Refused:
    known = sorted(world.reservations)
    if not known:
        return Refused(f"there is no reservation {name!r}", "there is none at all now: leave it out, or make one")
    more = f" and {len(known) - NAMED_MAX} more" if len(known) > NAMED_MAX else ""
    return Refused(f"there is no reservation {name!r}", f"name one of: {', '.join(known[:NAMED_MAX])}{more}")


# -- what may be asked for ---------------------------------------------------------------------------------


def _pool_of(world: World, spec: ReservationSpec) -> str:
    """That of its nodes, or the first by name."""
    node = world.nodes.get(spec.nodes[0]) if spec.nodes else None
    return node.pool if node is not None else min(world.pools, default="")


def _check(world: World, spec: ReservationSpec, pool: Pool | None, now: int) -> Refused | None:
    if not spec.name or spec.name in world.reservations:
        return Refused(f"the name {spec.name!r} is taken, or none", "release that one first, or give another name")
    if any(job.spec.reservation == spec.name for job in world.jobs.values()):
        return Refused(
            f"live jobs name an earlier reservation {spec.name!r}", "give another name, or wait until they have ended"
        )
    if len(world.reservations) >= RESERVATIONS_MAX:
        return Refused(f"there are {RESERVATIONS_MAX} reservations already", "release one, or wait for one to end")
    if pool is None:
        return Refused(
            f"there is no pool {spec.pool!r}", f"name one of: {', '.join(sorted(world.pools)) or 'none yet'}"
        )
    if spec.start_ms < now:
        return Refused("it would begin in the past", "leave the start out, and it begins at once")
    if not spec.start_ms < spec.end_ms:
        return Refused("it would end before it begins", "give an end that is later")
    if spec.end_ms - now > LASTS_MAX_MS:
        return Refused("it would end more than a year from now", "reserve for less than a year ahead")
    if bool(spec.nodes) == (spec.shape is not None):
        return Refused("it names neither nodes nor an amount, or both", "name nodes, or say how much")
    return _check_nodes(world, spec, pool) if spec.nodes else _check_shape(world, spec, pool)


def _check_nodes(world: World, spec: ReservationSpec, pool: Pool) -> Refused | None:
    strange = [name for name in spec.nodes if name not in pool.row_of]
    if strange:
        return Refused(f"pool {pool.name!r} has no node {strange[0]!r}", "name nodes of one pool")
    if list(spec.nodes) != sorted(set(spec.nodes)):
        return Refused("a node is named twice, or they are not in order", "name each once, sorted by name")
    return None


def _check_shape(world: World, spec: ReservationSpec, pool: Pool) -> Refused | None:
    shape = spec.shape
    assert shape is not None
    if not 0 < shape.count <= CHUNKS_MAX or not all(0 < amount <= FOREVER_MS >> 20 for _, amount in shape.chunk):
        return Refused("an amount is out of range", "reserve at least one node, cpu or gpu")
    need = world.need_of(shape.chunk)
    if need is None or any(column >= len(pool.capacity) for column, _ in need):
        return Refused(f"no node of pool {pool.name!r} has all that is named", "ask for less, or in another pool")
    fits = _count(pool, shape, need, pool.total)
    if fits < shape.count:
        return Refused(
            f"{_said(shape)} are more than pool {pool.name!r} has: all its nodes together hold {fits}",
            "ask for less, or in another pool",
        )
    return None


def _said(shape: Shape) -> str:
    if not shape.chunk:
        return f"{shape.count} nodes"
    each = ", ".join(said(resource, amount) for resource, amount in shape.chunk)
    return each if shape.count == 1 else f"{shape.count} x ({each})"


def _count(pool: Pool, shape: Shape, need: Need, room: Columns) -> int:
    return int(_chunks(pool, shape, need, room).sum())


def _chunks(pool: Pool, shape: Shape, need: Need, room: Columns) -> npt.NDArray[np.int64]:
    """How many chunks of it each row could keep; a chunk of nothing is a whole node."""
    if not shape.chunk:
        chunks: npt.NDArray[np.int64] = np.logical_and.reduce(room >= pool.total).astype(np.int64)
    elif shape.stack:
        chunks = chunks_by_row(room, need)
    else:
        chunks = holds_chunk(room, need).astype(np.int64)
    if shape.where:
        chunks *= pool.rows_matching(shape.where)
    return chunks


# -- what users may ------------------------------------------------------------------------------------------


def _beyond_user(world: World, spec: ReservationSpec, now: int) -> Refused | None:
    rules = world.policy.reservations
    if not rules.user_hours:
        return Refused("only operators reserve here", "ask one; the policy may give users a quota (`reservations`)")
    if spec.is_maintenance:
        return Refused("it says nobody who may use it", "name users or queues; only operators reserve for nobody")
    if sum(not known.operator and known.spec.by == spec.by for known in world.reservations.values()) >= OF_USER_MAX:
        return Refused(f"{spec.by!r} has {OF_USER_MAX} reservations already", "release one, or ask an operator")
    if spec.start_ms - now > rules.user_ahead_ms:
        return Refused(
            f"it begins more than {lasting(rules.user_ahead_ms)} from now", "begin it sooner, or ask an operator"
        )
    if spec.end_ms - spec.start_ms > rules.user_lasts_max_ms:
        return Refused(
            f"it lasts longer than {lasting(rules.user_lasts_max_ms)}", "reserve for less, or ask an operator"
        )
    return None


def _over_quota(world: World, made: Reservation, now: int) -> Refused | None:
    """Amounts times the time still to come, of all that this user has reserved and of this one."""
    mine = [known for known in world.reservations.values() if not known.operator and known.spec.by == made.spec.by]
    held: dict[str, int] = {}
    for known in (*mine, made):
        lasts = known.spec.end_ms - max(now, known.spec.start_ms)
        for resource, amount in _amounts(world, known):
            held[resource] = held.get(resource, 0) + amount * lasts
    for bound in world.policy.reservations.user_hours:
        most = amount_of(world, bound) * HOUR_MS
        asked = held.get(bound.resource, 0)
        if asked > most:
            return Refused(
                f"it would make {said(bound.resource, asked // HOUR_MS)} times hours that {made.spec.by!r} has "
                f"reserved, of {said(bound.resource, most // HOUR_MS)} times hours",
                "reserve less or for a shorter time, release another, or ask an operator",
            )
    return None


def _amounts(world: World, known: Reservation) -> Iterator[tuple[str, int]]:
    shape = known.spec.shape
    for node, count in known.nodes:
        has: Amounts = shape.chunk if shape is not None and shape.chunk else world.nodes[node].capacity
        for resource, amount in has:
            yield resource, amount * count


# -- which nodes ---------------------------------------------------------------------------------------------


class Taken(NamedTuple):
    """What is not free for a new reservation, from one time to another."""

    start: int
    end: int
    rows: Rows
    counts: Rows
    need: Need
    what: str


def _place(world: World, pool: Pool, spec: ReservationSpec, now: int, *, force: bool) -> Placement | Refused:
    taken = list(_reserved(world, pool, world.reservations, ""))
    if not force:
        taken += _running(world, pool)
        taken += _promised(world, pool, now)
    room = _least(pool, taken, spec.start_ms, spec.end_ms)
    shape = spec.shape
    if shape is None:
        for name in spec.nodes:
            row = pool.row_of[name]
            if (room[:, row] < pool.total[:, row]).any():
                return _in_the_way(taken, spec, name, row, now)
        return tuple([(name, 1) for name in spec.nodes])
    nodes = _last_rows(world, pool, shape, room, shape.count)
    if nodes is None:
        need = world.need_of(shape.chunk) or ()
        fits = _count(pool, shape, need, _open(pool, room))
        return Refused(
            f"{_said(shape)} are not certain to be free then: {fits} are, beside what is reserved, promised, "
            "and might run until its time limit",
            "reserve less, a later time, or another pool; an operator may force it",
        )
    return nodes


def _in_the_way(taken: list[Taken], spec: ReservationSpec, name: str, row: int, now: int) -> Refused:
    here = [one for one in taken if row in one.rows and one.start < spec.end_ms and one.end > spec.start_ms]
    last = max(here, key=lambda one: one.end)
    until = f"for another {lasting(last.end - now)}" if last.end < FOREVER_MS >> 1 else "without end"
    return Refused(
        f"node {name} may not be free then: {last.what}, {until}",
        "begin it later or name other nodes; an operator may force it over jobs and promises",
    )


def _last_rows(world: World, pool: Pool, shape: Shape, room: Columns, count: int) -> Placement | None:
    """From the last open row down, for most work packs the first ones."""
    chunks = _chunks(pool, shape, world.need_of(shape.chunk) or (), _open(pool, room)).tolist()
    found: list[tuple[str, int]] = []
    for row in range(len(chunks) - 1, -1, -1):
        if count and chunks[row] > 0:
            here = min(chunks[row], count)
            count -= here
            found.append((pool.names[row], here))
    return None if count else tuple(reversed(found))


def _open(pool: Pool, room: Columns) -> Columns:
    """Nothing is free on a node that takes no work, or that the policy keeps for some classes."""
    shut = [row for row, node in enumerate(pool.nodes) if node.state is not NodeState.UP or row in pool.kept]
    if shut:
        room = room.copy()
        room[:, shut] = -1
    return room


def _least(pool: Pool, taken: list[Taken], start: int, end: int) -> Columns:
    """The least that is free by row from `start` to `end`."""
    room = pool.total.copy()
    live = [one for one in taken if one.start <= start < one.end]
    add_many(room, [(one.rows, one.counts, one.need) for one in live], -1)
    least = room.copy()
    coming = [one for one in taken if start < one.start < end]
    changes = [(one.start, 1, one) for one in coming]
    changes += [(one.end, 0, one) for one in (*live, *coming)]
    for _, begins, one in sorted(changes, key=lambda change: change[:2]):  # what ends first gives room first
        add_many(room, [(one.rows, one.counts, one.need)], -1 if begins else 1)
        if begins:
            rows = list(one.rows)
            least[:, rows] = np.minimum(least[:, rows], room[:, rows])
    return least


def _reserved(world: World, pool: Pool, reservations: Mapping[str, Reservation], but: str) -> Iterator[Taken]:
    for name in pool.reserved:
        if name != but:
            known = reservations[name]
            for hold in holds_of(world, pool, known):
                yield Taken(known.spec.start_ms, known.spec.end_ms, *hold, f"reservation {name!r} holds it")


def _running(world: World, pool: Pool) -> Iterator[Taken]:
    """Those outside of reservations, until their time limit; and what the suspended lend, from when they go on."""
    for run in world.runs.values():
        if run.pool == pool.name and not reservation_of(world, run):
            end, what = max(run.expected_end, ends_latest(world, run)), f"job {run.task >> ARRAY_BITS} may run there"
            yield Taken(run.start_ms, end, run.rows, run.counts, run.need, what)
            if run.task in pool.suspended:
                pause = world.pauses[run.task]
                yield Taken(run.expected_end - pause.left_ms, end, run.rows, run.counts, pause.lent, what)


def _promised(world: World, pool: Pool, now: int) -> Iterator[Taken]:
    """Those outside of reservations, on the nodes that they would get now."""
    if not pool.promised:
        return
    part = rest(world, pool, now, [world.reservations[name] for name in pool.reserved], runs_apart(world, pool))
    placer = part.placer(world.policy_in(pool.name).fit.by, now)
    for start, task in sorted((world.promises[task].start_by, task) for task in part.pool.promised):
        job = world.jobs[task >> ARRAY_BITS]
        lane = part.pool.lanes[world.lane_key(job)]
        nodes = world.promises[task].nodes
        rows, counts = tuple([pool.row_of[name] for name, _ in nodes]), tuple([count for _, count in nodes])
        chosen = placer.stand(lane, start, (rows, counts)) or (rows, counts)
        begins = max(start, now)
        end = begins + max(job.estimate_ms, job.spec.limit_ms)
        yield Taken(begins, end, *chosen, lane.need, f"job {job.id} is promised to start there")


def _delayed_by(world: World, pool: Pool, made: Reservation, now: int) -> int:
    """The first job whose promise would not stand beside it; 0: all do."""
    if not pool.promised:
        return 0
    known = [world.reservations[name] for name in pool.reserved]
    runs = runs_apart(world, pool)
    before, after = rest(world, pool, now, known, runs), rest(world, pool, now, [*known, made], runs)
    by = world.policy_in(pool.name).fit.by
    stood, stands = before.placer(by, now), after.placer(by, now)
    for start, task in sorted((world.promises[task].start_by, task) for task in before.pool.promised):
        job = world.jobs[task >> ARRAY_BITS]
        lane = before.pool.lanes[world.lane_key(job)]
        nodes = world.promises[task].nodes
        chosen = tuple([pool.row_of[name] for name, _ in nodes]), tuple([count for _, count in nodes])
        was = stood.stand(lane, start, chosen) is not None
        if stands.stand(lane, start, chosen) is None and was:
            return job.id
    return 0


# -- when a node is lost -------------------------------------------------------------------------------------


def moves(world: World, now: int) -> Iterator[ev.Event]:
    """Amounts that are kept on nodes which take no work any more are kept elsewhere, as far as there is room."""
    reservations = dict(world.reservations)  # as they are when those before have moved
    for name in sorted(reservations):
        known = reservations[name]
        pool, shape = world.pools[known.pool], known.spec.shape
        bad = {node for node, _ in known.nodes if world.nodes[node].state is not NodeState.UP}
        if shape is None or not bad:
            continue
        stay = tuple([one for one in known.nodes if one[0] not in bad])
        taken = [*_reserved(world, pool, reservations, name), *_running(world, pool), *_promised(world, pool, now)]
        start = max(now, known.spec.start_ms)
        room = _least(pool, taken, start, known.spec.end_ms)
        if stay:
            add_many(room, holds_of(world, pool, replace(known, nodes=stay)), -1)
        missing = sum(count for _, count in known.nodes) - sum(count for _, count in stay)
        more = _last_rows(world, pool, shape, room, missing)
        if more is not None:
            counts = dict(stay)
            for node, count in more:
                counts[node] = counts.get(node, 0) + count
            nodes = tuple(sorted(counts.items(), key=lambda one: pool.row_of[one[0]]))
            reservations[name] = replace(known, nodes=nodes)
            yield ev.ReservationMoved(now, name, nodes)


# -- who may use it ------------------------------------------------------------------------------------------


def not_entitled(world: World, spec: JobSpec, pool: str, now: int) -> Refused | None:
    """Of a job that names a reservation: may it run there, and could it?"""
    known = world.reservations.get(spec.reservation)
    if known is None:
        return _unknown(world, spec.reservation)
    name, kept = spec.reservation, known.spec
    if kept.is_maintenance:
        return Refused(f"nobody may use reservation {name!r}", "leave it out")
    if not kept.entitles(spec.user, spec.queue):
        return Refused(
            f"reservation {name!r} is not for user {spec.user!r} in queue {spec.queue!r}",
            "leave it out, or ask whoever made it",
        )
    if pool != known.pool:
        return Refused(f"reservation {name!r} is in pool {known.pool!r}", "leave the pool out")
    begins = max(now, kept.start_ms, spec.begin_ms)
    if begins + spec.limit_ms > kept.end_ms:
        left = kept.end_ms - begins
        return Refused(
            f"the time limit of {lasting(spec.limit_ms)} does not end within reservation {name!r}",
            f"ask for at most {lasting(left)}" if left > 0 else "leave the reservation out",
        )
    room = np.zeros_like(world.pools[pool].total)
    add_many(room, holds_of(world, world.pools[pool], known), 1)
    fits = _count(world.pools[pool], spec.shape, world.need_of(spec.shape.chunk) or (), room)
    if fits < spec.shape.count:
        return Refused(
            f"{_said(spec.shape)} do not fit in reservation {name!r}, which holds {fits} of it",
            "ask for less, or for what is reserved",
        )
    return None
