"""Likely: a vote is an exact number of steps, and what follows from votes stays within its bounds."""

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.base import ARRAY_BITS
from tidegate.model.events import JobEnded, JobStarted, JobSubmitted, NodeChanged, PolicyChanged
from tidegate.model.jobs import Job, JobSpec, Outcome, Shape, amounts
from tidegate.model.nodes import Node
from tidegate.model.policy import Order, OrderBy, PolicySpec
from tidegate.policy.likely import STEP_BITS, deferral, doublings, likely_ms, span
from tidegate.policy.order import rank
from tidegate.world.apply import apply
from tidegate.world.world import World

MINUTE, HOUR = 60_000, 3_600_000
STEPS = 1 << STEP_BITS
ONE = Shape(amounts(cpus=1000))
times = st.integers(1, 10**9)


@given(st.integers(0, 10**12), times)
def test_a_vote_is_the_logarithm_in_steps_straight_between_whole_ones(run_ms: int, short_ms: int):
    steps = doublings(run_ms, short_ms)
    assert steps == pytest.approx(STEPS * log2(1 + run_ms / short_ms), abs=1 + STEPS * 0.0861)
    assert steps <= doublings(run_ms + 1, short_ms)
    assert span(steps, short_ms) <= run_ms < max(run_ms + 1, span(steps + 2, short_ms))


def test_votes_are_exact_at_the_powers_of_two():
    assert [doublings(run, MINUTE) for run in (0, MINUTE, 3 * MINUTE, 7 * MINUTE)] == [0, 64, 128, 192]
    assert doublings(3 * MINUTE - 1, MINUTE) == 127


def world_after(order: Order, runs: list[tuple[str, int, int]], waiting: int, limit: int) -> World:
    """`runs`: (user, limit, how long it ran), one after the other; then so many wait of `u`."""
    world = World()
    apply(world, PolicyChanged(0, 1, PolicySpec("p", order)))
    apply(world, NodeChanged(0, Node("n", "p", amounts(cpus=1000))))
    now, number = 0, 0
    for user, allowed, took in runs:
        number += 1
        task = number << ARRAY_BITS
        apply(world, JobSubmitted(now, Job(number, now, allowed, "p", JobSpec(user, ONE, allowed), compared=True)))
        apply(world, JobStarted(now, task, 1, now + allowed, (("n", 1),), backfilled=False))
        now += took
        apply(world, JobEnded(now, task, 1, Outcome.COMPLETED))
    for _ in range(waiting):
        number += 1
        apply(world, JobSubmitted(now, Job(number, now, limit, "p", JobSpec("u", ONE, limit), compared=True)))
    return world


def ranks(world: World) -> list[int]:
    pool = world.pools["p"]
    (lane,) = pool.lanes.values()
    return [rank(world, world.policy, pool, lane, job, job.submit_ms) - job.submit_ms for job in lane.jobs]


HISTORY = st.lists(st.tuples(st.sampled_from("uv"), st.sampled_from((MINUTE, HOUR)), st.integers(0, HOUR)), max_size=6)


@given(HISTORY, st.integers(1, 4), st.integers(0, 3), st.integers(0, HOUR))
def test_no_job_is_deferred_by_more_than_its_limit_says(runs, waiting: int, scout_from: int, per_doubling: int):
    """And none is put ahead but scouts, so none can starve: whoever comes so much later goes after it."""
    order = Order(OrderBy.DEFERRED, per_doubling_ms=per_doubling, scout_from=scout_from, wide_ms=0)
    world = world_after(order, runs, waiting, HOUR)
    most = per_doubling * doublings(HOUR, order.short_ms) // STEPS
    first, *others = ranks(world)
    assert all(0 <= found <= most for found in others)
    assert -per_doubling * doublings(waiting - 1, 1) // STEPS <= first <= most


@given(HISTORY)
def test_it_is_likely_to_run_no_longer_than_it_may(runs):
    order = Order(OrderBy.DEFERRED)
    world = world_after(order, runs, 1, HOUR)
    (lane,) = world.pools["p"].lanes.values()
    assert order.short_ms <= likely_ms(world, order, lane, lane.jobs[0]) <= HOUR
    unknown = world_after(order, [], 1, HOUR)
    (lane,) = unknown.pools["p"].lanes.values()
    assert likely_ms(unknown, order, lane, lane.jobs[0]) == HOUR


def test_what_was_alike_says_most():
    order = Order(OrderBy.DEFERRED)
    unknown = ranks(world_after(order, [], 1, HOUR))
    of_the_user = ranks(world_after(order, [("u", MINUTE, 1000)], 1, HOUR))
    alike = ranks(world_after(order, [("u", HOUR, 1000)], 1, HOUR))
    of_another = ranks(world_after(order, [("v", HOUR, 1000)], 1, HOUR))
    assert alike < of_the_user < unknown == of_another


def test_the_first_of_many_alike_is_a_scout_until_one_runs():
    order = Order(OrderBy.DEFERRED, scout_from=3, wide_ms=0)
    asked = ranks(world_after(order, [], 2, HOUR))[0]
    world = world_after(order, [], 4, HOUR)
    first, *others = ranks(world)
    assert first == asked - 2 * order.per_doubling_ms
    assert set(others) == {asked}
    apply(world, JobStarted(0, 1 << ARRAY_BITS, 1, HOUR, (("n", 1),), backfilled=False))
    assert set(ranks(world)) == {asked}
    (lane,) = world.pools["p"].lanes.values()
    assert deferral(world, order, lane, lane.jobs[0]) == asked


def test_a_wide_job_has_a_head_start():
    narrow = ranks(world_after(Order(OrderBy.DEFERRED, wide_ms=0), [], 1, HOUR))
    wide = ranks(world_after(Order(OrderBy.DEFERRED, wide_ms=HOUR), [], 1, HOUR))
    assert wide[0] == narrow[0] - HOUR, "it takes all of its pool"
