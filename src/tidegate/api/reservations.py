"""Reservations as clients make and see them."""

from collections.abc import Iterator

from tidegate.api.submit import MistakeError
from tidegate.model.commands import Reserve
from tidegate.model.jobs import CPUS, GPUS, MEMORY, Shape
from tidegate.model.reservations import ReservationSpec
from tidegate.wire.reservations import ReservationRow, ReservationsBody, ReserveBody
from tidegate.world.world import World

MILLI = 1000


def reserve_of(body: ReserveBody, user: str, now: int, *, is_admin: bool) -> Reserve:
    """Raises MistakeError. Whoever says nothing else reserves for themselves."""
    if body.maintenance and (body.users or body.queues):
        raise MistakeError("maintenance is for nobody, and somebody is named", "leave the one or the other out")
    if not body.lasts_ms:
        raise MistakeError("it does not say how long it lasts", "say it in lasts_ms")
    chunk = {CPUS: round(body.cpus * MILLI), GPUS: round(body.gpus * MILLI), MEMORY: body.memory_mib} | body.resources
    amounts = tuple(sorted((name, amount) for name, amount in chunk.items() if amount))
    if body.node_count and amounts:
        raise MistakeError("whole nodes are named, and amounts too", "leave the one or the other out")
    shape: Shape | None = None
    if amounts:
        shape = Shape(amounts, body.count, stack=True)
    elif body.node_count:
        shape = Shape((), body.node_count)
    nobody = body.maintenance or body.users or body.queues
    spec = ReservationSpec(
        name=body.name,
        start_ms=body.start_ms,
        end_ms=(body.start_ms or now) + body.lasts_ms,
        pool=body.pool,
        nodes=tuple(sorted(set(body.nodes))),
        shape=shape,
        users=tuple(sorted(set(body.users))) if nobody else (user,),
        queues=tuple(sorted(set(body.queues))),
        by=user,
        note=body.note,
    )
    return Reserve(spec, is_admin, body.force)


def reservations_body(world: World, now: int) -> ReservationsBody:
    return ReservationsBody(now, list(_rows(world, now)))


def _rows(world: World, now: int) -> Iterator[ReservationRow]:
    """By start, then by name."""
    for known in sorted(world.reservations.values(), key=lambda known: (known.spec.start_ms, known.spec.name)):
        spec = known.spec
        chunk = dict(spec.shape.chunk) if spec.shape is not None else {}
        yield ReservationRow(
            name=spec.name, pool=known.pool, start_ms=spec.start_ms, end_ms=spec.end_ms, nodes=dict(known.nodes),
            chunk=chunk, open=spec.start_ms <= now, running=known.runs, users=list(spec.users),
            queues=list(spec.queues), by=spec.by, note=spec.note, maintenance=spec.is_maintenance,
            named=spec.shape is None,
        )  # fmt: skip
