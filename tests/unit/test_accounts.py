"""Accounts of queues: whose they are, and what becomes of them."""

import pytest

from tidegate.model.policy import Bound, PolicySpec, Queue, Share, Users
from tidegate.world import accounts
from tidegate.world.accounts import charge, is_of_user, leaf_of, path_of, queue_of, reopen, used_at
from tidegate.world.decay import USE_BITS
from tidegate.world.records import Account
from tidegate.world.world import World

LIMIT = (Bound("cpus", 2000),)
TREE = {"lab": Queue(), "lab/vision": Queue(users=Users.FAIR), "rest": Queue(user_limit=LIMIT)}


def world_with(queues: dict[str, Queue], half_life_ms: int = 100) -> World:
    world = World()
    world.policy = PolicySpec("p", queues=queues, share=Share(half_life_ms))
    return world


@pytest.mark.parametrize(
    ("queue", "path", "leaf"),
    [
        ("lab", ("lab/.", "lab"), "lab/."),
        ("lab/vision", ("lab/vision/@ann", "lab/vision", "lab"), "lab/vision/@ann"),
        ("rest", ("rest/@ann", "rest"), "rest"),
        ("gone", ("gone/.",), "gone/."),
        ("lab/gone", ("lab/gone/.",), "lab/gone/."),
    ],
)
def test_a_job_is_on_the_accounts_of_its_queue_and_all_above(queue: str, path: tuple[str, ...], leaf: str):
    policy = PolicySpec("p", queues=TREE)
    assert path_of(policy, queue, "ann") == path
    assert leaf_of(policy, path) == leaf


@pytest.mark.parametrize("user", ["ann", "lab/ann", "a/@b", "@", "."])
def test_a_user_may_be_called_anything(user: str):
    lowest = path_of(PolicySpec("p", queues=TREE), "lab/vision", user)[0]
    assert is_of_user(lowest)
    assert queue_of(lowest) == "lab/vision"
    assert accounts.user_of(lowest) == user


def test_what_is_known_of_the_past_outlives_a_change_of_the_policy():
    """By the half-life it was kept under; and what holds nothing any more goes on to decay."""
    world = world_with({"lab": Queue()})
    charge(world, "lab", "ann", ((0, 1000),), 1, 0)
    charge(world, "lab", "ann", ((0, 1000),), -1, 100)
    half = 500 << USE_BITS
    assert used_at(world.accounts["lab"], 100, 100) == (half,)
    world.policy = PolicySpec("p", queues={"lab": Queue(2)}, share=Share(50))
    reopen(world, 100, 200)
    assert used_at(world.accounts["lab"], 200, 50) == (half // 2,)
    assert used_at(world.accounts["lab"], 250, 50) == (half // 4,)
    world.policy = PolicySpec("p", queues={"lab": Queue(2)})
    reopen(world, 50, 300)
    assert not world.accounts


def test_columns_that_are_held_no_more_go_on_to_decay():
    assert used_at(Account(0, (), (0, 8)), 10, 10) == (0, 4)
    assert used_at(Account(0, (0,), (4, 8)), 10, 10) == (2, 4)


def test_accounts_do_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch):
    """Of users who came once, the past is forgotten when there are too many of them; never of who holds something."""
    monkeypatch.setattr(accounts, "ACCOUNTS_KEPT", 10)
    world = world_with({"lab": Queue(users=Users.FAIR)}, 1 << 40)
    charge(world, "lab", "holds", ((0, 1000),), 1, 0)
    for number in range(100):
        charge(world, "lab", f"u{number}", ((0, 1000),), 1, number)
        charge(world, "lab", f"u{number}", ((0, 1000),), -1, number + 1)
        assert len(world.accounts) <= 11
    assert "lab/@holds" in world.accounts
