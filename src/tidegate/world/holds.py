"""What reservations hold of a pool, and which runs are in them."""

from tidegate.model.base import ARRAY_BITS
from tidegate.world.pool import Pool
from tidegate.world.records import Need, Reservation, Run
from tidegate.world.world import World

Hold = tuple[tuple[int, ...], tuple[int, ...], Need]
"""(rows, chunks on each, chunk)"""


def reservation_of(world: World, run: Run) -> str:
    """The reservation that the run is in; "": none. A name is not given again while a live job names it."""
    name = world.jobs[run.task >> ARRAY_BITS].spec.reservation
    return name if name in world.reservations else ""


def holds_of(world: World, pool: Pool, reservation: Reservation) -> list[Hold]:
    """What nobody else may use from its start to its end. Of a whole node, all that it has."""
    nodes = [(pool.row_of[name], count) for name, count in reservation.nodes]
    shape = reservation.spec.shape
    if shape is not None and shape.chunk:
        need = world.need_of(shape.chunk)
        assert need is not None, "accept refuses what no node has"
        return [(tuple([row for row, _ in nodes]), tuple([count for _, count in nodes]), need)]
    by_need: dict[Need, list[int]] = {}
    for row, _ in nodes:
        capacity = tuple([(world.columns[name], amount) for name, amount in pool.nodes[row].capacity if amount])
        by_need.setdefault(capacity, []).append(row)
    return [(tuple(rows), (1,) * len(rows), need) for need, rows in by_need.items() if need]


def count_run(world: World, run: Run, change: int, at: int) -> None:
    """One more, or one less, in its reservation, if it is in one."""
    name = reservation_of(world, run)
    if not name:
        return
    known = world.reservations[name]
    idle_ms = at if change < 0 else known.idle_ms
    world.reservations[name] = Reservation(
        known.spec, known.pool, known.nodes, known.operator, known.runs + change, idle_ms
    )
    world.digest.reservations.touched.add(name)
