"""Where a random scenario gets its choices: from a seed, or from Hypothesis, which can shrink them."""

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Chooser(Protocol):
    def integer(self, low: int, high: int) -> int: ...

    def pick(self, options: Sequence[T]) -> T: ...


class Seeded:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.random.randrange(len(options))]


class Drawn:
    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def integer(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))

    def pick(self, options: Sequence[T]) -> T:
        return options[self.data.draw(st.integers(0, len(options) - 1))]


def one_in(chooser: Chooser, times: int) -> bool:
    """Hypothesis shrinks towards False."""
    return chooser.integer(0, times - 1) == times - 1
