"""History: what has ended, as rows. A view of the events: the fold of the same events gives the same rows."""

from tidegate.model.base import Value
from tidegate.model.events import Placement
from tidegate.model.jobs import NOTHING_KNOWN, Job, Outcome, Used


class Ending(Value, frozen=True, gc=False):
    """The end of one attempt, or of tasks that will never start."""

    job: Job
    indices: tuple[int, ...]  # which tasks; (0,) of a job that is no array
    attempt: int  # 0: it never started
    final: bool  # the tasks are over; if not, the task waits again
    outcome: Outcome
    end_ms: int
    start_ms: int = -1  # -1: it never started
    nodes: Placement = ()
    code: int = 0
    signal: int = 0
    used: Used = NOTHING_KNOWN
    why: str = ""
    failed: int = 0  # attempts of the task that failed by then, and
    lost: int = 0  # that were lost, this one included
    row: int = 0  # its number in the history; later ends have higher ones
