"""Reservations: how many there may be, and who is entitled."""

import pytest

from tidegate.core.accept import accept
from tidegate.core.reserve import OF_USER_MAX, RESERVATIONS_MAX
from tidegate.model.commands import ChangePolicy, Command, Refused, Reserve, SetNode
from tidegate.model.jobs import Shape, amounts
from tidegate.model.nodes import Node
from tidegate.model.policy import Bound, PolicySpec, Reservations
from tidegate.model.reservations import ReservationSpec
from tidegate.world.apply import apply
from tidegate.world.world import World

NODES = 2


def sent(world: World, command: Command) -> Refused | None:
    answer = accept(world, command, 0)
    if isinstance(answer, Refused):
        return answer
    for event in answer:
        apply(world, event)
    return None


def test_there_is_a_bound_on_all_and_on_those_of_one_user():
    world = World()
    sent(world, ChangePolicy(PolicySpec("p", reservations=Reservations(user_hours=(Bound("cpus", 1 << 20),)))))
    for number in range(NODES):
        sent(world, SetNode(Node(f"n{number}", "p", amounts(cpus=RESERVATIONS_MAX * 1000))))
    one_cpu = Shape(amounts(cpus=1000), 1, stack=True)

    def made(number: int, *, by: str) -> Refused | None:
        spec = ReservationSpec(f"r{number}", 1000, 0, "p", (), one_cpu, ("ann",), by=by)
        return sent(world, Reserve(spec, operator=by == "root"))

    assert [made(number, by="ann") for number in range(OF_USER_MAX)] == [None] * OF_USER_MAX
    refused = made(OF_USER_MAX, by="ann")
    assert refused is not None
    assert refused.what == f"'ann' has {OF_USER_MAX} reservations already"
    assert made(OF_USER_MAX, by="ben") is None
    assert all(made(number, by="root") is None for number in range(OF_USER_MAX + 1, RESERVATIONS_MAX))
    refused = made(RESERVATIONS_MAX, by="root")
    assert refused is not None
    assert refused.what == f"there are {RESERVATIONS_MAX} reservations already"


@pytest.mark.parametrize(
    ("users", "queues", "user", "queue", "may"),
    [
        (("ann",), (), "ann", "any", True),
        (("ann",), (), "ben", "any", False),
        ((), ("lab",), "ben", "lab", True),
        ((), ("lab",), "ben", "lab/vision", True),
        ((), ("lab",), "ben", "labour", False),
        (("ann",), ("lab",), "ann", "rest", False),
        (("ann",), ("lab",), "ben", "lab", False),
        ((), (), "ann", "lab", False),
    ],
)
def test_both_users_and_queues_must_hold_where_both_are_named(
    users: tuple[str, ...], queues: tuple[str, ...], user: str, queue: str, may: bool
):
    assert ReservationSpec("r", 1, users=users, queues=queues).entitles(user, queue) is may
