"""Decay: a number that loses half of itself every half-life, in integers, the same on every machine."""

from math import isqrt

USE_BITS = 20
"""Decayed use is fixed-point: with fewer bits, many small steps would round a slow decay away."""
STEP_BITS = 10
"""A half-life is divided into so many steps by a table, and a step by a straight line."""
FACTOR_BITS = 40
ONE = 1 << FACTOR_BITS


def _factors() -> list[int]:
    """2 ** -(k / 2 ** STEP_BITS) for every step, by square roots."""
    roots = [ONE >> 1]  # 2 ** -1, 2 ** -1/2, 2 ** -1/4, …
    for _ in range(STEP_BITS):
        roots.append(isqrt(roots[-1] << FACTOR_BITS))
    factors = []
    for step in range((1 << STEP_BITS) + 1):
        factor = ONE
        for bit in range(STEP_BITS + 1):
            if step >> bit & 1:
                factor = factor * roots[STEP_BITS - bit] >> FACTOR_BITS
        factors.append(factor)
    return factors


FACTORS = _factors()


def halved(value: int, elapsed_ms: int, half_life_ms: int) -> int:
    """What is left of it; towards zero, so that a rest of either sign ends."""
    halves, rest = divmod(elapsed_ms, half_life_ms)
    if halves >= FACTOR_BITS:
        return 0
    step, within = divmod(rest << STEP_BITS, half_life_ms)
    high, low = FACTORS[step], FACTORS[step + 1]
    factor = high - (high - low) * within // half_life_ms
    left = abs(value) * factor >> FACTOR_BITS + halves
    return left if value > 0 else -left
