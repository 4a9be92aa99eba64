"""Reservations, as clients ask for and see them."""

from typing import Annotated

from msgspec import Meta

from tidegate.wire.bodies import NAME_MAX, Body, Count, Millis, Name, Whole


class ReserveBody(Body):
    """What is kept: these nodes; or so many whole nodes; or `count` times the amounts. For those named and nobody else.

    With neither users nor queues it is for whoever makes it; `maintenance` is for nobody.
    """

    name: Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
    lasts_ms: Millis = 0
    start_ms: Millis = 0  # 0: at once
    pool: Name = ""
    nodes: list[Name] = []
    node_count: Annotated[int, Meta(ge=0, le=1 << 24)] = 0
    cpus: Annotated[float, Meta(ge=0, le=1 << 20)] = 0
    memory_mib: Count = 0
    gpus: Annotated[float, Meta(ge=0, le=1 << 20)] = 0
    resources: dict[str, Count] = {}
    count: Annotated[int, Meta(ge=1, le=1 << 24)] = 1
    users: list[Name] = []
    queues: list[Name] = []  # and their parts; with users, both must hold
    maintenance: bool = False
    force: bool = False  # over whatever runs or is promised there; for administrators
    note: Name = ""


class EndReservationBody(Body):
    pass


class ReservationRow(Whole):
    name: str
    pool: str
    start_ms: int
    end_ms: int
    nodes: dict[str, int]  # node -> how many chunks of it
    chunk: dict[str, int]  # amounts as in NodeRow; none: whole nodes
    open: bool  # it has begun
    running: int  # tasks in it
    users: list[str]
    queues: list[str]
    by: str
    note: str = ""
    maintenance: bool = False
    named: bool = False  # these nodes and no others


class ReservationsBody(Whole):
    now_ms: int
    rows: list[ReservationRow]  # by start
