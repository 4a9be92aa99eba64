"""The world: everything that is alive. `world.apply` is its only writer; everybody else reads."""

from msgspec import to_builtins

from tidegate.model.base import ARRAY_BITS, job_of
from tidegate.model.events import Promise
from tidegate.model.jobs import Amounts, Job, JobSpec, Outcome, Pairs, Shape
from tidegate.model.nodes import Node
from tidegate.model.policy import PolicySpec, Queue, Users, in_tides
from tidegate.world.digest import MODULUS, RECORD_KINDS, Digest, record_hash
from tidegate.world.kept import shape_within
from tidegate.world.lanes import LaneKey
from tidegate.world.pool import Pool
from tidegate.world.records import (
    Account,
    Alike,
    AlikeRuns,
    ArrayState,
    Excess,
    Gauge,
    HaltAsked,
    LastRuns,
    Need,
    Notice,
    Parked,
    Pause,
    Reservation,
    Run,
    Save,
    Suspect,
    Tries,
)
from tidegate.world.rungs import AS_SUBMITTED, Standing, goes_by_standing, standing_of

OUTCOMES_KEPT = 10_000
"""So many ended jobs at least, and twice as many at most, are remembered for dependencies submitted later."""
KEYS_EXPIRE_MS = 24 * 3_600_000
SHAPES_KEPT = 100_000
USERS_KEPT = 100_000
"""So many users at least have their last run times remembered, and so many sorts of alike jobs; the ones first seen
go first."""

# What a fork takes over as it is, and what it copies; a compiled class has no `__dict__` to ask.
SCALARS = ("seq", "cycle", "policy", "policy_version", "next_job", "ordered", "interrupted", "writes_until")
TABLES = (*RECORD_KINDS, "columns", "emptying", "env_users", "launching", "looks", "asks", "timers", "ripe")


class World:
    """State at one event number (`seq`)."""

    def __init__(self) -> None:
        self.seq = 0
        self.cycle = 0
        self.in_force = PolicySpec(name="none")  # `policy`
        self.has_queues = False
        self.has_standings = False
        self.in_tides: dict[str, PolicySpec] = {}  # `policy`, as it is in each state of a tide that changes it
        self.has_kept = False
        self.policy_version = 0
        self.next_job = 1
        self.columns: dict[str, int] = {}
        self.pools: dict[str, Pool] = {}
        self.nodes: dict[str, Node] = {}
        self.jobs: dict[int, Job] = {}
        self.runs: dict[int, Run] = {}
        self.parked: dict[int, Parked] = {}
        self.arrays: dict[int, ArrayState] = {}
        self.tries: dict[int, Tries] = {}  # by task
        self.promises: dict[int, Promise] = {}
        self.told: dict[int, int] = {}  # by task: the start that its promise may slip from, where it may
        self.halting: dict[int, HaltAsked] = {}
        self.saves: dict[int, Save] = {}  # by task: attempts that are asked to save themselves now and then
        self.pauses: dict[int, Pause] = {}  # by task: attempts that are suspended, or were
        self.interrupted: tuple[tuple[int, str], ...] = ()  # (when, user): who made room lately, a minute at least
        self.writes_until = 0  # when what was asked to be saved so far should have been written
        self.strays: dict[tuple[int, int], int] = {}  # (task, attempt) -> event number
        self.dependents: dict[int, tuple[int, ...]] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.keys: dict[str, tuple[int, int]] = {}  # idempotency key -> (job, expiry), oldest first
        self.last_runs: dict[str, LastRuns] = {}  # by user
        self.accounts: dict[str, Account] = {}  # by queue, and by user below it; see world.accounts
        self.excesses: dict[str, Excess] = {}  # by queue
        self.reservations: dict[str, Reservation] = {}  # by name
        self.gauges: dict[str, Gauge] = {}  # by pool; none while the policy has no tide
        self.alike: dict[Alike, AlikeRuns] = {}  # compared jobs only
        self.environments: dict[str, Pairs] = {}  # by the name that works give them
        self.notices: dict[int, Notice] = {}  # by job
        # Who is to blame (docs/decisions/0010).
        self.marks: dict[str, tuple[int, ...]] = {}  # node -> jobs that failed there since one succeeded
        self.failed_on: dict[int, str] = {}  # live job -> the node it failed on; "": on more than one
        self.suspects: dict[str, Suspect] = {}  # by node
        # Derived from the records above, kept for speed only.
        self.ordered = 0  # the number of the last event that an engine has to act on
        self.launching: dict[int, int] = {}  # task -> event number of a start the engine has not confirmed
        self.looks: dict[str, int] = {}  # pool -> when time alone may change what is decided there
        self.asks: list[tuple[int, int]] = []  # (when to ask for a checkpoint, task), sorted
        self.timers: list[tuple[int, int]] = []  # (when to look, task), sorted; index 0 is for the job, too
        self.ripe: dict[int, None] = {}  # parked jobs whose conditions changed
        self.env_users: dict[str, int] = {}  # environment -> how many live jobs and notices name it
        self.paths: dict[tuple[str, str], tuple[str, ...]] = {}  # (queue, user) -> their accounts, as far as asked
        self.shapes: dict[tuple[str, str, Shape], Shape] = {}  # as policy.kept lets them be placed, as far as asked
        self.emptying: dict[str, None] = {}  # draining nodes that a run has left, and changed ones that are reserved
        self.stirred: dict[str, Pool] = {}  # pools with changes since the last cycle
        self.digest = Digest()
        self.swayed: dict[str, PolicySpec] = {}  # by pool, where the tide changes it: `policy_in`
        self.token = object()  # who may write to a lane

    def fork(self) -> "World":
        """A twin that may go its own way. Frozen records are shared, and lanes until one side writes."""
        twin = World()
        for name in SCALARS:
            setattr(twin, name, getattr(self, name))
        for name in TABLES:
            setattr(twin, name, getattr(self, name).copy())
        twin.pools = {name: pool.fork() for name, pool in self.pools.items()}
        twin.stirred = {name: twin.pools[name] for name in self.stirred}
        twin.paths = self.paths.copy()
        twin.swayed = self.swayed.copy()
        twin.digest = self.digest.fork()
        self.token = object()
        return twin

    @property
    def policy(self) -> PolicySpec:
        return self.in_force

    @policy.setter
    def policy(self, policy: PolicySpec) -> None:
        self.in_force = policy
        self.has_queues = bool(policy.queues)  # asked several times a job
        self.has_standings = goes_by_standing(policy)
        self.in_tides = in_tides(policy)
        self.has_kept = bool(policy.kept)
        self.shapes = {}

    # -- reading -----------------------------------------------------------------------------------------

    def policy_in(self, pool: str) -> PolicySpec:
        """As the tide there has it."""
        return self.swayed.get(pool, self.in_force) if self.swayed else self.in_force

    def need_of(self, chunk: Amounts) -> Need | None:
        """The chunk by column; None where no node has ever had such a resource."""
        columns = self.columns
        try:
            return tuple([(columns[name], amount) for name, amount in chunk])
        except KeyError:
            return None

    def runs_of(self, job: int) -> list[Run]:
        if job not in self.arrays:
            run = self.runs.get(job << ARRAY_BITS)
            return [] if run is None else [run]
        return [run for task, run in self.runs.items() if job_of(task) == job]

    def runs_on(self, node: str) -> list[Run]:
        known = self.nodes.get(node)
        if known is None:
            return []
        pool = self.pools[known.pool]
        row = pool.row_of[node]
        return [run for run in self.runs.values() if run.pool == pool.name and row in run.rows]

    def lane_key(self, job: Job) -> LaneKey:
        spec = job.spec
        user = spec.user if job.compared else ""
        if self.has_queues and tells_users_apart(self.in_force.queues.get(spec.queue)):
            user = spec.user
        standing = self.standing_of(job) if self.has_standings else AS_SUBMITTED
        if not self.reservations and not self.has_kept:
            return (spec.queue, spec.klass, spec.shape, job.estimate_ms, user, standing, "", 0)
        name = spec.reservation if spec.reservation in self.reservations else ""
        limit_ms = spec.limit_ms if self.pools[job.pool].reserved else 0
        return (spec.queue, spec.klass, self.shape_of(spec, job.pool), job.estimate_ms, user, standing, name, limit_ms)

    def shape_of(self, spec: JobSpec, pool: str) -> Shape:
        """As it may be placed there: what the policy keeps for other classes is left out, but within a reservation."""
        if not self.has_kept or spec.reservation in self.reservations:
            return spec.shape
        key = (pool, spec.klass, spec.shape)
        shape = self.shapes.get(key)
        if shape is None:
            if len(self.shapes) >= SHAPES_KEPT:
                self.shapes.clear()
            shape = self.shapes[key] = shape_within(self.in_force, pool, spec.klass, spec.shape)
        return shape

    def standing_of(self, job: Job) -> Standing:
        """Of an array that of the task whose turn is next."""
        task = job.id << ARRAY_BITS
        if job.spec.array is not None:
            returned = self.arrays[job.id].returned
            if not returned:
                return standing_of(self.in_force, job, None)
            task |= returned[0]
        return standing_of(self.in_force, job, self.tries.get(task))

    # -- digest ------------------------------------------------------------------------------------------

    def read_digest(self) -> str:
        """The state as one number, from what changed since it was last read."""
        return self._with_scalars(self.digest.read(self))

    def full_digest(self) -> str:
        """The same number from every record, whatever was noted as changed."""
        fresh = self.digest.fork()
        return self._with_scalars(fresh.read(self))

    def _with_scalars(self, records: int) -> str:
        policy = to_builtins(self.policy)  # a record's header depends on how many fields it might have
        scalars = (self.cycle, self.policy_version, policy, self.next_job, self.writes_until, self.interrupted)
        return f"{(records + record_hash('world', 0, scalars)) % MODULUS:032x}"


def tells_users_apart(queue: Queue | None) -> bool:
    return queue is not None and (queue.users is Users.FAIR or bool(queue.user_limit))
