"""Reservations come, move and go. Jobs that name one wait parked until its start, and are on their own after it."""

from bisect import insort
from typing import assert_never

from msgspec.structs import replace

from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS
from tidegate.world.records import Reservation
from tidegate.world.waiting import regroup_pool
from tidegate.world.world import World


def change_reservation(world: World, event: ev.ReservationMade | ev.ReservationMoved | ev.ReservationOver) -> None:
    match event:
        case ev.ReservationMade():
            spec = event.spec
            world.reservations[spec.name] = Reservation(spec, spec.pool, event.nodes, event.operator, 0, spec.start_ms)
            world.digest.reservations.touched.add(spec.name)
            _changed(world, spec.pool)
        case ev.ReservationMoved():
            known = world.reservations[event.name]
            world.reservations[event.name] = replace(known, nodes=event.nodes)
            world.digest.reservations.touched.add(event.name)
            _changed(world, known.pool)
        case ev.ReservationOver():
            known = world.reservations.pop(event.name)
            world.digest.reservations.gone(event.name)
            _changed(world, known.pool)
            if event.at < known.spec.start_ms:
                _let_go(world, event.name, event.at)
        case _:
            assert_never(event)


def _changed(world: World, name: str) -> None:
    """Jobs of the pool may stand elsewhere, and all that was planned must be looked at again."""
    pool = world.pools[name]
    pool.reserved = reserved_in(world, name)
    regroup_pool(world, pool)
    pool.freed = None
    world.stirred[name] = pool


def reserved_in(world: World, pool: str) -> tuple[str, ...]:
    return tuple(sorted([name for name, known in world.reservations.items() if known.pool == pool]))


def _let_go(world: World, name: str, at: int) -> None:
    """Who waited for its start waits for nothing but what else was said."""
    for job_id, parked in list(world.parked.items()):
        spec = world.jobs[job_id].spec
        if spec.reservation != name:
            continue
        world.parked[job_id] = replace(parked, begin_ms=spec.begin_ms)
        world.digest.parked.touched.add(job_id)
        world.ripe[job_id] = None
        if spec.begin_ms > at:
            insort(world.timers, (spec.begin_ms, job_id << ARRAY_BITS))
