"""The records of live things. Frozen: a fork shares them, and a change replaces one."""

from tidegate.model.base import Value
from tidegate.model.events import Placement
from tidegate.model.jobs import After, Amounts, Job, Outcome
from tidegate.model.policy import Tide
from tidegate.model.reservations import ReservationSpec

Need = tuple[tuple[int, int], ...]
"""(column, amount) of one chunk, zero amounts left out."""


class Run(Value, frozen=True, gc=False):
    """A live attempt and what it holds."""

    task: int
    attempt: int
    pool: str
    start_ms: int
    expected_end: int
    nodes: Placement
    rows: tuple[int, ...]  # the same, as rows of the pool, with the chunks on each
    counts: tuple[int, ...]
    need: Need
    plain: bool  # stackable chunks without constraints
    seq: int  # the number of the event that started it
    raises: int = 0  # how often its estimate was raised


class Parked(Value, frozen=True, gc=False):
    """Why a job is in no lane yet."""

    after: tuple[After, ...]  # not yet resolved
    failed: bool  # a dependency ended the wrong way
    held: bool
    begin_ms: int


class ArrayState(Value, frozen=True, gc=False):
    """Where an array stands. Tasks start in index order, those that wait again first. `world.arrays` changes it."""

    started: int  # how many of `indices` have had their turn
    returned: tuple[int, ...]  # those that wait again, sorted
    running: int
    ended: int
    failed: bool
    resting: tuple[int, ...] = ()  # those that wait out a back-off before, sorted
    skipped: tuple[int, ...] = ()  # those that ended before their turn came, sorted

    def ready(self, tasks: int) -> int:
        """How many tasks wait for nothing but their turn."""
        return tasks - self.started - len(self.skipped) + len(self.returned)

    def waiting(self, tasks: int) -> int:
        return self.ready(tasks) + len(self.resting)

    def available(self, tasks: int, at_once_max: int) -> int:
        """How many tasks may start now, capacity aside."""
        ready = self.ready(tasks)
        return min(ready, at_once_max - self.running) if at_once_max else ready


class Tries(Value, frozen=True, gc=False):
    """The attempts of a task that are over, from the first until the task ends."""

    attempt: int  # the number of the last
    failed: int  # how many ended badly by themselves,
    lost: int  # and how many were lost and count
    until: int  # the next does not start before
    ran_ms: int = 0  # how long they ran together,
    kept_ms: int = 0  # and how much of that is saved


NO_TRIES = Tries(0, 0, 0, 0)


class HaltAsked(Value, frozen=True, gc=False):
    attempt: int
    outcome: Outcome
    seq: int  # the number of the event, so that a cursor can skip what was sent
    again: bool = False  # when it has ended the task waits again
    save: bool = False  # it is asked to save itself first
    room_for: int = 0  # the task it makes room for


class Pause(Value, frozen=True, gc=False):
    """A live attempt that was suspended: it is now, or for how long it was."""

    attempt: int
    seq: int  # as in HaltAsked
    stopped: bool  # it is suspended now
    at: int  # since when that is so
    before_ms: int  # how long it was suspended before
    left_ms: int  # how long planning assumed it to run on when it was stopped
    lent: Need  # of each chunk, while it is stopped
    held: bool = False  # somebody has to let it go on
    room_for: int = 0  # the task it made room for
    by: str = ""


class Save(Value, frozen=True, gc=False):
    """How far a running attempt that can save itself has been asked to, and has."""

    attempt: int
    next_ms: int  # when it is asked next
    number: int = 0  # of the last ask
    asked_ms: int = 0
    is_open: bool = False  # that ask is not answered
    seq: int = 0  # as in HaltAsked
    kept_ms: int = 0  # so much of what it did itself is saved
    size_mib: int = 0  # of what it saved last


class Notice(Value, frozen=True, gc=False):
    """A job that has ended and whose `notify` command has not been run."""

    job: Job
    outcome: Outcome
    seq: int  # as in HaltAsked


class Suspect(Value, frozen=True, gc=False):
    """A node on which jobs fail one after the other."""

    until: int  # drained until then; from then on it is tried
    strikes: int  # how often in a row
    tried: bool  # it takes one job at a time until one succeeds
    why: str


class Account(Value, frozen=True, gc=False):
    """What a queue, or a user of one, holds and has held. By column; columns at the end may be missing."""

    at: int  # when `used` was brought up to date
    held: tuple[int, ...]
    used: tuple[int, ...]  # decayed, with USE_BITS bits; empty where the policy forgets


class Excess(Value, frozen=True, gc=False):
    """What a queue may hold beyond its limit, for a time."""

    amounts: Amounts
    until: int
    by: str
    note: str


class Reservation(Value, frozen=True, gc=False):
    """One that is to come, or is under way."""

    spec: ReservationSpec
    pool: str
    nodes: Placement  # where it is, with the chunks on each
    operator: bool
    runs: int  # how many runs are in it,
    idle_ms: int  # and since when there are none, if there are


class Turn(Value, frozen=True, gc=False):
    """A turn of the tide that is over."""

    at: int
    before: Tide
    after: Tide
    why: str


class Gauge(Value, frozen=True, gc=False):
    """The tide of a pool, and what is measured there. See world.gauges."""

    state: Tide
    since: int
    began: int  # measuring
    at: int  # when what follows was brought up to date
    recent: int = 0  # tasks that came, decayed by the window, with ARRIVAL_BITS bits
    usual: int = 0  # the same by the baseline; bursts count in part only
    started: int = 0  # tasks that started, decayed by the window, likewise,
    waited: int = 0  # and the milliseconds they had waited
    turns: tuple[Turn, ...] = ()  # the last, newest last


NO_USE = Account(0, (), ())


class LastRuns(Value, frozen=True, gc=False):
    """The last two run times of a user, such that the order of reports within one instant does not matter.

    Runs that end at one instant count in the order they started, and are known from the next instant on.
    """

    at: int
    ended: tuple[tuple[int, int], ...]  # (start event, run time) of the latest two that ended at `at`
    before: tuple[int, ...]  # run times of the latest two before that, newest first

    def known(self, now: int) -> tuple[int, ...]:
        return self.after() if now > self.at else self.before

    def after(self) -> tuple[int, ...]:
        if len(self.ended) == 2:
            return (self.ended[0][1], self.ended[1][1])
        return (self.ended[0][1], *self.before[:1]) if self.ended else self.before

    def ending(self, at: int, seq: int, run_ms: int) -> "LastRuns":
        if at > self.at:
            return LastRuns(at, ((seq, run_ms),), self.after())
        latest = sorted((*self.ended, (seq, run_ms)), reverse=True)
        return LastRuns(at, tuple(latest[:2]), self.before)


NO_RUNS = LastRuns(-1, (), ())

Alike = tuple[str, int, int]
"""(user, chunks, estimate): jobs that are likely to run equally long; estimate 0: whatever they ask for."""


class AlikeRuns(Value, frozen=True, gc=False):
    """What is known of compared jobs that are alike."""

    running: int  # tasks
    last: LastRuns


NONE_ALIKE = AlikeRuns(0, NO_RUNS)
