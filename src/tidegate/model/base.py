"""What every value of the model is made of: a frozen msgspec record (see docs/decisions/0002)."""

import msgspec


class Value(msgspec.Struct, frozen=True, gc=False):
    """A frozen value without reference cycles: the garbage collector need not look at it."""


FOREVER_MS = 1 << 60
"""Later than any time a run can reach; used as 'no bound' where an integer is compared."""

ARRAY_BITS = 20
ARRAY_TASKS_MAX = 1 << ARRAY_BITS
"""One array holds at most this many tasks, so that (job, index) packs into one ordered integer."""


def task_key(job: int, index: int = 0) -> int:
    """The one integer that names task `index` of `job`; keys order as (job, index) do."""
    return job << ARRAY_BITS | index


def job_of(task: int) -> int:
    return task >> ARRAY_BITS


def index_of(task: int) -> int:
    return task & (ARRAY_TASKS_MAX - 1)
