"""A world as plain values, caches included, so that two of them can be compared by `==`."""

from collections.abc import Iterable
from typing import Any

from tidegate.world.pool import Pool
from tidegate.world.world import World

NOT_STATE = {"digest", "has_kept", "has_queues", "paths", "shapes", "token"}
NOT_POOL_STATE = {"buffer", "cells", "masks", "fitting", "owned_ends", "unbooked"}


def deep(world: World) -> dict[str, Any]:
    """Order within dicts counts where a decision could see it: runs, strays, lanes."""
    state: dict[str, Any] = {}
    for name in sorted({*attributes(world)} - NOT_STATE):
        value = getattr(world, name)
        if name == "pools":
            state[name] = {pool: _pool(here) for pool, here in value.items()}
        elif name == "stirred":
            state[name] = list(value)
        else:
            state[name] = _plain(value) if isinstance(value, dict | list) else value
    return state


def _pool(pool: Pool) -> dict[str, Any]:
    state = {name: getattr(pool, name) for name in attributes(pool) if name not in NOT_POOL_STATE}
    state["free"] = pool.free.tolist()
    state["total"] = pool.total.tolist()
    for name in ("lanes", "changed", "fresh"):
        state[name] = [(lane.key, lane.serial, tuple(lane.jobs)) for lane in state[name].values()]
    for name, value in state.items():
        if isinstance(value, dict | list | set):
            state[name] = sorted(value, key=repr) if isinstance(value, set) else _plain(value)
    return state


def without_traces(state: dict[str, Any]) -> dict[str, Any]:
    """What a snapshot gives back: all but the names of lanes, which of them changed, paths that were asked for, and
    counts nobody reads.
    """
    return {**state, "paths": {}, "pools": {name: _settled(pool) for name, pool in state["pools"].items()}}


def _settled(pool: dict[str, Any]) -> dict[str, Any]:
    told = {name: value for name, value in pool.items() if name not in {"changed", "fresh", "lane_serial"}}
    told["lanes"] = {key: jobs for key, _, jobs in pool["lanes"]}
    told["lanes_of"] = {user: dict(keys) for user, keys in pool["lanes_of"]}
    told["kinds"] = dict(pool["kinds"])
    told["tried"] = dict(pool["tried"])
    if pool["unit"] is None:
        told["free_units"] = told["units_free"] = told["open_rows"] = None
    return told


def _plain(value: dict[Any, Any] | list[Any]) -> list[Any]:
    return list(value.items()) if isinstance(value, dict) else list(value)


def attributes(of: World | Pool) -> Iterable[str]:
    """Their names: of a class of Python, with slots or without, and of a compiled one."""
    cls = type(of)
    names: Iterable[str] = getattr(cls, "__mypyc_attrs__", None) or getattr(cls, "__slots__", None) or vars(of)
    return names


def difference(one: dict[str, Any], other: dict[str, Any], path: str = "") -> list[str]:
    """Where they differ, for a message."""
    found = []
    for name in sorted({*one, *other}):
        a, b = one.get(name), other.get(name)
        if a != b:
            here = f"{path}.{name}"
            both = isinstance(a, dict) and isinstance(b, dict)
            found.extend(difference(a, b, here) if both else [f"{here}: {a!r} is not {b!r}"])  # type: ignore[arg-type]
    return found
