"""Shares are fair in the sense of the paper: Ghodsi et al., Dominant Resource Fairness (NSDI 2011).

The fluid algorithm is written here from the paper, in fractions: its four properties are checked on it, and the kernel,
which places whole tasks, comes within one task of it. Then what is kept of the past, and that accounts are what runs.
"""

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.choose import Seeded
from tidegate.core.accept import accept
from tidegate.core.decide import decide
from tidegate.core.memo import Memo
from tidegate.model.commands import ChangePolicy, Command, Refused, SetNode, Submit
from tidegate.model.events import Event
from tidegate.model.jobs import Array, JobSpec, Shape
from tidegate.model.nodes import Node
from tidegate.model.policy import PolicySpec, Queue, Share
from tidegate.policy.standing import standings
from tidegate.world.accounts import charge, used_at
from tidegate.world.apply import apply
from tidegate.world.check import check
from tidegate.world.decay import USE_BITS, halved
from tidegate.world.records import Account
from tidegate.world.world import World

RESOURCES = ("cpus", "disks", "memory")
Demand = tuple[int, ...]
"""Of one task, by resource."""
demands = st.lists(st.tuples(*[st.integers(0, 6)] * len(RESOURCES)).filter(any), min_size=1, max_size=4)
totals = st.tuples(*[st.integers(20, 60)] * len(RESOURCES))
weights = st.lists(st.integers(1, 3), min_size=4, max_size=4)


# -- the fluid algorithm -----------------------------------------------------------------------------------


def dominant(demand: Demand, total: Demand) -> Fraction:
    """The share that one task takes of its dominant resource."""
    return max(Fraction(asked, there) for asked, there in zip(demand, total, strict=True))


def fluid(wanted: Sequence[Demand], total: Demand, weight: Sequence[int]) -> list[Fraction]:
    """Tasks of each: all dominant shares by weight rise alike, and whoever needs what is used up stops."""
    tasks = [Fraction(0)] * len(wanted)
    free = [Fraction(there) for there in total]
    rising = set(range(len(wanted)))
    while rising:
        rate = {who: weight[who] / dominant(wanted[who], total) for who in rising}
        speed = [sum(rate[who] * wanted[who][at] for who in rising) for at in range(len(total))]
        step = min(free[at] / speed[at] for at in range(len(total)) if speed[at])
        for who in rising:
            tasks[who] += step * rate[who]
        free = [left - step * fast for left, fast in zip(free, speed, strict=True)]
        used_up = {at for at, left in enumerate(free) if not left}
        rising = {who for who in rising if not any(wanted[who][at] for at in used_up)}
    return tasks


def tasks_of(bundle: Sequence[Fraction], demand: Demand) -> Fraction:
    """How many tasks can be made of so much of everything."""
    return min(there / asked for there, asked in zip(bundle, demand, strict=True) if asked)


def test_the_paper_s_example():
    assert fluid([(1, 0, 4), (3, 0, 1)], (9, 1, 18), (1, 1)) == [3, 2]


@given(demands, totals, weights)
def test_nobody_is_worse_off_than_with_a_machine_of_their_own(wanted: list[Demand], total: Demand, weight: list[int]):
    """Sharing incentive: by weight."""
    weight = weight[: len(wanted)]
    for tasks, demand, mine in zip(fluid(wanted, total, weight), wanted, weight, strict=True):
        part = [Fraction(there * mine, sum(weight)) for there in total]
        assert tasks >= tasks_of(part, demand)


@given(demands, totals)
def test_nobody_would_rather_have_what_another_has(wanted: list[Demand], total: Demand):
    """Envy-freeness."""
    given_to = fluid(wanted, total, [1] * len(wanted))
    for mine, demand in zip(given_to, wanted, strict=True):
        for others, other in zip(given_to, wanted, strict=True):
            assert tasks_of([others * asked for asked in other], demand) <= mine


@given(demands, totals, weights)
def test_nobody_could_have_more_without_another_having_less(wanted: list[Demand], total: Demand, weight: list[int]):
    """Pareto efficiency: whoever one asks, something that they need is used up."""
    given_to = fluid(wanted, total, weight[: len(wanted)])
    used = [sum(tasks * demand[at] for tasks, demand in zip(given_to, wanted, strict=True)) for at in range(len(total))]
    for demand in wanted:
        assert any(asked and used[at] == total[at] for at, asked in enumerate(demand))


@given(demands, totals, st.data())
def test_nobody_gains_by_asking_for_what_they_do_not_need(wanted: list[Demand], total: Demand, data: st.DataObject):
    """Strategy-proofness."""
    honest = fluid(wanted, total, [1] * len(wanted))
    liar = data.draw(st.integers(0, len(wanted) - 1))
    lie = data.draw(st.tuples(*[st.integers(0, 6)] * len(total)).filter(any))
    told = [lie if who == liar else demand for who, demand in enumerate(wanted)]
    got = [fluid(told, total, [1] * len(wanted))[liar] * asked for asked in lie]
    assert tasks_of(got, wanted[liar]) <= honest[liar]


# -- whole tasks -------------------------------------------------------------------------------------------

UNIT = {"cpus": 1000, "disks": 1, "memory": 1}


def tell(world: World, command: Command, now: int = 0) -> None:
    answer = accept(world, command, now)
    assert not isinstance(answer, Refused), answer
    for event in answer:
        apply(world, event)


def shared(wanted: Sequence[Demand], total: Demand, weight: Sequence[int]) -> World:
    """One node, and a queue for each with more tasks than fit; one cycle."""
    world = World()
    queues = {f"q{who}": Queue(weight[who]) for who in range(len(wanted))}
    tell(world, ChangePolicy(PolicySpec("p", queues=queues)))
    has = tuple((name, there * UNIT[name]) for name, there in zip(RESOURCES, total, strict=True))
    tell(world, SetNode(Node("n", "p", has)))
    for who, demand in enumerate(wanted):
        asked = [(name, amount * UNIT[name]) for name, amount in zip(RESOURCES, demand, strict=True) if amount]
        array = Array(tuple(range(100)))
        tell(world, Submit(JobSpec("u", Shape(tuple(asked)), 1000, queue=f"q{who}", array=array)))
    plan = decide(world, Memo(), 1)
    events: list[Event] = [plan.cycle, *plan.starts]
    for event in events:
        apply(world, event)
    return world


@given(demands, totals, weights)
def test_whole_tasks_come_within_one_of_the_fluid_shares(wanted: list[Demand], total: Demand, weight: list[int]):
    """Nobody is further behind the share that the fluid algorithm gives to all than the largest task by weight."""
    weight = weight[: len(wanted)]
    world = shared(wanted, total, weight)
    tasks = [world.arrays[who + 1].running for who in range(len(wanted))]
    free = list(total)
    for count, demand in zip(tasks, wanted, strict=True):
        free = [left - count * asked for left, asked in zip(free, demand, strict=True)]
    assert all(left >= 0 for left in free)
    share = [count * dominant(demand, total) / mine for count, demand, mine in zip(tasks, wanted, weight, strict=True)]
    one = [dominant(demand, total) / mine for demand, mine in zip(wanted, weight, strict=True)]
    for demand in wanted:
        assert any(left < asked for left, asked in zip(free, demand, strict=True)), "a task more fits"
    least = min(share)
    first_stopped = min(fluid_shares(wanted, total, weight))
    assert least > first_stopped - max(one), "who has least has, but for a task, what the fluid algorithm gives to all"


def fluid_shares(wanted: Sequence[Demand], total: Demand, weight: Sequence[int]) -> list[Fraction]:
    tasks = fluid(wanted, total, weight)
    return [count * dominant(demand, total) / mine
            for count, demand, mine in zip(tasks, wanted, weight, strict=True)]  # fmt: skip


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), weights)
def test_of_one_resource_everybody_gets_their_part_but_for_a_task(sizes: list[int], weight: list[int]):
    wanted = [(size, 0, 0) for size in sizes]
    weight = weight[: len(wanted)]
    world = shared(wanted, (60, 1, 1), weight)
    for who, count in enumerate(fluid(wanted, (60, 1, 1), weight)):
        others = max(sizes) * max(weight)  # what one task of another moves
        assert abs(world.arrays[who + 1].running * sizes[who] - count * sizes[who]) <= sizes[who] + others


def test_the_paper_s_example_in_whole_tasks():
    world = shared([(1, 0, 4), (3, 0, 1)], (9, 1, 18), (1, 1))
    assert [world.arrays[job].running for job in (1, 2)] == [3, 2]


# -- the past ----------------------------------------------------------------------------------------------

MILLION = 1_000_000


@given(st.integers(-(1 << 60), 1 << 60), st.integers(1, 1 << 40), st.lists(st.integers(0, 1 << 44), max_size=3))
def test_decay_is_towards_zero_and_never_back(value: int, half_life: int, waits: list[int]):
    left = [abs(halved(value, elapsed, half_life)) for elapsed in sorted([0, *waits])]
    assert left[0] == abs(value)
    assert left == sorted(left, reverse=True)


@given(st.integers(0, 1 << 60), st.integers(1000, 1 << 40), st.integers(1, 30))
def test_a_half_life_halves(value: int, half_life: int, halves: int):
    assert abs(halved(value, half_life * halves, half_life) - (value >> halves)) <= 1


@given(st.integers(0, 1 << 50), st.integers(1000, 1 << 36), st.integers(0, 1 << 37), st.integers(0, 1 << 37))
def test_two_waits_are_one(value: int, half_life: int, first: int, second: int):
    """But for a part in a million: a table and a straight line between stand for the curve."""
    apart = halved(halved(value, first, half_life), second, half_life)
    assert abs(apart - halved(value, first + second, half_life)) <= value // MILLION + 2


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(1, 1 << 36), st.integers(0, 1 << 38))
def test_use_goes_from_what_was_to_what_is(before: int, held: int, half_life: int, elapsed: int):
    (used,) = used_at(Account(0, (held,), (before << USE_BITS,)), elapsed, half_life)
    low, high = sorted([before << USE_BITS, held << USE_BITS])
    assert low <= used <= high


@pytest.mark.parametrize("seed", range(20))
def test_accounts_are_what_runs_in_whatever_order_it_starts_and_ends(seed: int):
    """At one instant; then every order gives the same decayed use."""
    chooser = Seeded(seed)
    worlds = []
    policy = PolicySpec("p", queues={"a": Queue(), "a/b": Queue(), "c": Queue()}, share=Share(1000))
    changes = [(chooser.pick(("a", "a/b", "c")), chooser.integer(1, 5)) for _ in range(8)]
    for order in (changes, changes[::-1]):
        world = World()
        world.policy = policy
        for at in (0, 700, 1500):
            for queue, units in order:
                charge_all(world, queue, units if at < 1500 else -2 * units, at)
        worlds.append(world)
    assert worlds[0].accounts == worlds[1].accounts
    assert worlds[0].read_digest() == worlds[1].read_digest()


def charge_all(world: World, queue: str, units: int, at: int) -> None:
    charge(world, queue, "u", ((0, 1000),), units, at)


# -- what is shown -----------------------------------------------------------------------------------------


@given(demands, totals, weights)
def test_what_is_shown_is_what_is_decided_by(wanted: list[Demand], total: Demand, weight: list[int]):
    """Whose turn is first by `standings` is whose task starts first when room for everything comes."""
    world = shared(wanted, total, weight)
    assert not check(world)
    shown = standings(world, 2)
    assert [one.place for one in shown] == list(range(1, len(wanted) + 1))
    assert [one.key for one in shown] == sorted(one.key for one in shown)
    tell(world, SetNode(Node("m", "p", tuple((name, 6 * UNIT[name]) for name in RESOURCES))))
    again = standings(world, 2)
    plan = decide(world, Memo(), 2)
    assert plan.starts
    assert world.jobs[plan.starts[0].task >> 20].spec.queue == again[0].name


def test_who_borrowed_is_ahead_again_when_it_is_said():
    world = World()
    tell(world, ChangePolicy(PolicySpec("p", queues={"a": Queue(), "b": Queue()}, share=Share(3_600_000))))
    tell(world, SetNode(Node("n", "p", (("cpus", 4000),))))
    world.accounts["a"] = Account(0, (0,), (4000 << USE_BITS,))
    world.accounts["b"] = Account(0, (1000,), (0,))
    first, second = standings(world, 0)
    assert (first.name, second.name, second.ahead) == ("b", "a", "b")
    assert second.again_ms is not None
    assert [one.name for one in standings(world, second.again_ms)] == ["a", "b"]
    assert [one.name for one in standings(world, second.again_ms - 60_000)] == ["b", "a"]
