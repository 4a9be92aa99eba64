"""Fit: which nodes, among those that can hold the job. A score by row; smaller is taken first, then the row."""

from typing import assert_never

import numpy as np
import numpy.typing as npt

from tidegate.model.policy import FitBy
from tidegate.policy import SHARE_BITS
from tidegate.world.lanes import Lane
from tidegate.world.pool import Columns, Pool, chunks_by_row

Scores = npt.NDArray[np.int64]


def scores(by: FitBy, pool: Pool, lane: Lane, room: Columns) -> Scores | None:
    """None: rows in their order."""
    match by:
        case FitBy.FIRST:
            return None
        case FitBy.BEST:
            return chunks_by_row(room, lane.need)  # the row that could hold fewest more of the same
        case FitBy.PACK:
            return free_share(pool, room)
        case FitBy.SPREAD:
            return -free_share(pool, room)
        case _:
            assert_never(by)


def free_share(pool: Pool, room: Columns) -> Scores:
    """How free each row is: the sum over its resources of the free part."""
    total = np.maximum(pool.total, 1)
    share: Scores = ((room << SHARE_BITS) // total).sum(axis=0)
    return share
