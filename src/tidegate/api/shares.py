"""Queues as clients see them: how they stand against each other, and why."""

from collections.abc import Iterable

from tidegate.model.commands import ApproveExcess
from tidegate.model.jobs import CPUS, GPUS, MEMORY
from tidegate.model.policy import Queue
from tidegate.policy import SHARE_BITS
from tidegate.policy.share import Key
from tidegate.policy.standing import SHARE_ONE, Standing, standings
from tidegate.wire import api
from tidegate.wire.units import format_duration
from tidegate.world.accounts import ITSELF, is_of_user, queue_of, user_of
from tidegate.world.world import World

MILLI = 1000
MINUTE_MS = 60_000
UNKNOWN = Queue()


def excess_of(body: api.ExcessBody, queue: str, by: str) -> ApproveExcess:
    amounts = {CPUS: round(body.cpus * MILLI), GPUS: round(body.gpus * MILLI), MEMORY: body.memory_mib}
    given = tuple(sorted((name, amount) for name, amount in (amounts | body.resources).items() if amount))
    return ApproveExcess(queue, given, body.until_ms, by, body.note)


def share_body(world: World, now: int) -> api.ShareBody:
    names = {column: resource for resource, column in world.columns.items()}
    rows = [_row(world, names, standing) for standing in standings(world, now)]
    return api.ShareBody(now_ms=now, half_life_ms=world.policy.share.half_life_ms, rows=rows)


def _row(world: World, names: dict[int, str], standing: Standing) -> api.ShareRow:
    queue, of_user = queue_of(standing.name), is_of_user(standing.name)
    known, excess = world.policy.queues.get(queue, UNKNOWN), world.excesses.get(standing.name)
    is_itself = standing.name == f"{queue}/{ITSELF}"

    def amounts(row: Iterable[tuple[int, int]]) -> dict[str, int]:
        return {names[column]: amount for column, amount in row}

    return api.ShareRow(
        queue=queue, user=user_of(standing.name), itself=is_itself, depth=standing.depth,
        place=standing.place, neighbours=standing.neighbours, weight=1 if of_user or is_itself else known.weight,
        share=_rounded(standing.share / SHARE_ONE),
        filled=_rounded(standing.key[1] / (1 << SHARE_BITS)) if standing.key[0] == 0 else None,
        held=amounts(standing.held), used=amounts(standing.used), guarantee=amounts(standing.guarantee),
        limit=amounts(standing.limit), waiting=standing.waiting, why=_why(standing), again_ms=standing.again_ms,
        excess=None if excess is None else api.ExcessRow(
            amounts=dict(excess.amounts), until_ms=excess.until, by=excess.by, note=excess.note
        ),
    )  # fmt: skip


def _rounded(share: float) -> float:
    return round(share, 6)


def _why(standing: Standing) -> str:
    if standing.ahead_key is None:
        return "it has no neighbour" if standing.neighbours == 1 else f"first: {_said(standing.key)}"
    told = f"behind {called(standing.ahead)}: {_against(standing.key, standing.ahead_key)}"
    if standing.again_ms is None:
        return told
    again = -(-standing.again_ms // MINUTE_MS) * MINUTE_MS
    return f"{told}; ahead of it in {format_duration(again)} if nothing else happens"


def _against(key: Key, other: Key) -> str:
    if key[:2] == other[:2]:
        return f"{_said(key)} too, then by name"
    return f"{_said(key)} against {_said(other) if key[0] != other[0] else _said(other).removeprefix('share ')}"


def _said(key: Key) -> str:
    if key[0] == 0:
        return f"{100 * key[1] >> SHARE_BITS}% of its guarantee"
    return f"share {key[1] / SHARE_ONE:.3g}"


def called(name: str) -> str:
    if is_of_user(name):
        return f"{user_of(name)} of {queue_of(name)}"
    return f"{queue_of(name)} itself" if name.endswith(f"/{ITSELF}") else name
