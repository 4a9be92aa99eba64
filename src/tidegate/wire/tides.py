"""Tides as the interface tells them."""

import msgspec


class TideTurn(msgspec.Struct):
    at_ms: int
    before: str
    after: str
    why: str


class TideRow(msgspec.Struct):
    """The tide of a pool. Without `since_ms` in the past nothing has turned since it is measured."""

    pool: str
    state: str  # calm, rising, surge, ebbing
    since_ms: int
    turns_ms: int | None  # when it turns if nothing else happens
    waiting: int  # tasks that wait for room or their turn
    lately: int  # tasks that came within the window, decayed
    usual: float  # as many would have, by the baseline
    known: bool  # enough of the baseline has been seen for arrivals to count
    wait_ms: int  # of those that started lately, where the policy looks at it
    utilization_percent: int  # of the resource that is used most
    changes: list[str]  # against the policy as in a calm, as `tide policy diff` has them
    refuses: list[str]  # rules of admission that hold now because of it
    turns: list[TideTurn]  # the last, newest first


class TidesBody(msgspec.Struct):
    """By pool. No rows: the policy has no tide."""

    now_ms: int
    rows: list[TideRow]
