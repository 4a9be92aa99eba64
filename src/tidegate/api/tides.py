"""Tides as clients see them: how each stands, why, and what it changes."""

from tidegate.policy.tide import seen, turns_at
from tidegate.wire.policy_diff import changes
from tidegate.wire.tides import TideRow, TidesBody, TideTurn
from tidegate.world.gauges import is_known
from tidegate.world.world import World

MILLI = 1000


def tides_body(world: World, now: int) -> TidesBody:
    return TidesBody(now, [_row(world, name, now) for name in sorted(world.gauges)])


def _row(world: World, name: str, now: int) -> TideRow:
    pool, gauge, tide = world.pools[name], world.gauges[name], world.policy.tide
    assert tide is not None
    there = seen(world, pool, now)
    changed = changes(world.policy, world.policy_in(name))
    return TideRow(
        pool=name, state=gauge.state.value, since_ms=gauge.since, turns_ms=turns_at(world, pool),
        waiting=there.waiting, lately=there.lately, usual=there.usual / MILLI, known=is_known(tide, gauge, now),
        wait_ms=there.wait_ms, utilization_percent=there.utilization_percent,
        changes=[f"{one.path} {one.old} → {one.new}" for one in changed],
        refuses=[rule for rule, said in world.policy.admission.items() if gauge.state in said.tides],
        turns=[TideTurn(turn.at, turn.before.value, turn.after.value, turn.why) for turn in reversed(gauge.turns)],
    )  # fmt: skip
