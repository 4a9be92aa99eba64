"""What clients and the server say to each other over HTTP: bodies of requests and answers, as msgspec records.

Times are milliseconds since 1970, durations milliseconds, sizes MiB. A client may leave out whatever has a
default. ROUTES is the whole interface: the server dispatches by it and makes its OpenAPI document from it.

Every answer carries `Server: tidegate/VERSION`, so that a client of another version can say so when it is refused.
A task of an array is written `12_5` in queries. A server that is busy answers 503 with `Retry-After` in seconds.
"""

from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from tidegate.wire.bodies import NAME_MAX, Body, Count, Millis, Name, Whole
from tidegate.wire.reservations import EndReservationBody, ReservationsBody, ReserveBody
from tidegate.wire.tides import TidesBody

ARGUMENTS_MAX = 10_000
SCRIPT_MAX = 4 << 20
JOBS_PER_REQUEST_MAX = 10_000
POLICY_MAX = 64 * 1024
NOTE_MAX = 1000


class AfterBody(Body):
    job: Annotated[int, Meta(ge=1)]
    kind: str = "ok"  # ok, any, fail


class RetryBody(Body):
    times: Annotated[int, Meta(ge=0, le=1000)] = 0
    on: list[str] = []  # exit, exit:75, exit:100-110, signal, signal:9, oom, timeout; []: exit and signal
    backoff_ms: Millis = 1000
    backoff_max_ms: Millis = 600_000


class CheckpointBody(Body):
    """That the job can save itself, and how; docs/checkpoints.md."""

    signal: Name = ""  # USR2, SIGUSR2 or 12: sent when it is asked; "": it looks for itself
    every_ms: Millis = 0  # how often it is asked; 0: as the policy says
    size_mib: Count = 0  # about how much it writes; 0: as the policy assumes
    where: str = ""  # a directory or the URL of a bucket, a pattern as stdout; "": in the server's home


class SubmitBody(Body, rename={"klass": "class"}):
    """One job. `command`, or `script` (its text, with an interpreter line), or both: then arguments."""

    command: Annotated[list[str], Meta(max_length=ARGUMENTS_MAX)] = []
    script: Annotated[str, Meta(max_length=SCRIPT_MAX)] = ""
    name: Name = ""  # "": made of the command
    queue: Name = "default"
    klass: Name = "normal"
    pool: Name = ""
    cpus: Annotated[float, Meta(ge=0, le=1 << 20)] = 1
    memory_mib: Count = 0  # 0: not limited and not counted
    gpus: Count = 0
    gpu_model: Name = ""
    resources: dict[str, Count] = {}  # any other countable resource
    nodes: Annotated[int, Meta(ge=1, le=1 << 24)] = 1  # each with the amounts above
    where: dict[str, list[str]] = {}  # node labels: any of these values
    time_ms: Millis = 0  # limit; 0: the server's default
    expected_ms: Millis = 0
    begin_ms: Millis = 0
    deadline_ms: Millis = 0  # 0: none
    after: list[AfterBody] = []
    array: str = ""  # 0-999%50
    held: bool = False
    retry: RetryBody | None = None
    losses_max: Annotated[int, Meta(ge=0, le=1000)] = 3
    checkpoint: CheckpointBody | None = None
    starts_over: bool = False  # it cannot save itself, and may be ended and begun anew all the same
    tags: dict[str, str] = {}
    reservation: Name = ""  # runs on what is kept there, and while it is
    env: dict[str, str] = {}
    cwd: str = "/"
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""  # "": where stdout goes; "-": a file of its own in the server's home
    append: bool = False
    umask: Annotated[int, Meta(ge=0, le=0o777)] = 0o022
    grace_ms: Millis = 30_000
    notify: str = ""
    key: Annotated[str, Meta(max_length=NAME_MAX)] = ""


class SubmitManyBody(Body):
    jobs: Annotated[list[SubmitBody], Meta(max_length=JOBS_PER_REQUEST_MAX)]


class Problem(Body):
    what: str
    cure: str


class ProblemBody(Body):
    error: Problem


class SubmittedBody(Body):
    id: int
    tasks: int = 1
    known: bool = False  # the key was seen before: this is the job it made


class ResultBody(Body):
    """As SubmittedBody; or, with `error`, no job."""

    id: int = 0
    tasks: int = 1
    known: bool = False
    error: Problem | None = None


class SubmittedManyBody(Body):
    results: list[ResultBody]


class TaskBody(Body):
    """Which task of the job an action is for; left out: all of it."""

    index: int = -1


class NodeActionBody(Body):
    why: str = ""


class DoneBody(Body):
    done: bool  # false: it was so already


class StopBody(Body):
    keeper: bool = False  # the keeper too, unless jobs run


class JobRow(Whole, rename={"klass": "class"}):
    """One job, or one task of an array. An array's tasks that have not started share one row: `tasks` of them."""

    id: int
    state: str  # held, waiting, starting, running, ending, or how it ended
    name: str
    user: str
    queue: str
    klass: str
    pool: str
    submit_ms: int
    index: int | None = None
    tasks: int | None = None
    indices: str | None = None  # of those tasks, as in a submission
    start_ms: int | None = None
    end_ms: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    attempts: int = 0
    nodes: list[str] = []
    reason: str = ""  # why it waits, or why it ended so
    limit_ms: int = 0
    cpus: float = 0
    memory_mib: int = 0
    gpus: int = 0
    node_count: int = 1
    cpu_ms: int | None = None
    peak_kib: int | None = None
    read_kib: int | None = None
    written_kib: int | None = None
    tags: dict[str, str] = {}


class JobsBody(Whole):
    jobs: list[JobRow]
    more: bool = False  # there are more than were asked for


class SavedBody(Whole):
    """Where the checkpoints of a task stand."""

    where: str  # the directory, or the URL
    signal: int
    asked: int  # times, in this attempt
    open_since_ms: int | None  # since when it is asked and has not answered
    next_ms: int | None  # when it is asked next
    saved_ms: int | None  # when the state was taken that this attempt has saved last
    size_mib: int
    kept_ms: int  # so much run time is safe, over all attempts
    restarts: int


class JobBody(JobRow, rename={"klass": "class"}):
    """Everything about one job, with its tasks that have started where it is an array."""

    command: list[str] = []
    script: str = ""
    cwd: str = ""
    stdout: str = ""  # paths, with their patterns filled in
    stderr: str = ""
    begin_ms: int | None = None
    deadline_ms: int | None = None
    after: list[AfterBody] = []
    notify: str = ""
    retry: RetryBody | None = None
    checkpoint: SavedBody | None = None  # of a job that can save itself; not of a whole array
    starts_over: bool = False
    history: list[dict[str, Any]] = []  # attempts, oldest first: attempt, state, start_ms, end_ms, nodes, and so on
    array: list[JobRow] = []


class WaitBody(Whole):
    """Answered when more of the jobs have ended than `ended` said, or time is up."""

    total: int
    ended: int
    running: int
    failed: int
    rows: list[JobRow] = []  # with all of them ended: how


class NodeRow(Whole):
    name: str
    pool: str
    state: str
    capacity: dict[str, int]  # cpus in thousandths, memory in MiB, gpus in thousandths
    free: dict[str, int]
    labels: dict[str, str] = {}
    why: str = ""
    jobs: int = 0


class NodesBody(Whole):
    nodes: list[NodeRow]
    declared: bool = False  # not measured: named on the command line, on this one machine


class ExcessBody(Body):
    """So much more than its limit the queue may hold, until then."""

    until_ms: Annotated[int, Meta(ge=0, le=1 << 53)]
    cpus: Annotated[float, Meta(ge=0, le=1 << 20)] = 0
    memory_mib: Count = 0
    gpus: Annotated[float, Meta(ge=0, le=1 << 20)] = 0
    resources: dict[str, Count] = {}
    note: Name = ""


class RevokeBody(Body):
    pass


class ExcessRow(Whole):
    amounts: dict[str, int]
    until_ms: int
    by: str
    note: str = ""


class ShareRow(Whole):
    """A queue, or with `user` one of its users, among its neighbours. Amounts as in NodeRow."""

    queue: str
    depth: int  # in the tree
    place: int  # 1: its turn is first
    neighbours: int  # itself among them
    weight: int
    share: float  # dominant, of what is held and decayed use, by weight
    filled: float | None  # how much of its guarantee it holds, while it goes first for that
    held: dict[str, int]
    used: dict[str, int]  # decayed
    guarantee: dict[str, int]
    limit: dict[str, int]  # what was approved beyond it included
    waiting: int  # jobs
    why: str  # of its place
    again_ms: int | None = None  # so long from now it would be before the one before it, if nothing else happens
    itself: bool = False  # of a queue with parts: the jobs that name the queue itself
    user: str = ""
    excess: ExcessRow | None = None


class ShareBody(Whole):
    """From the root down, neighbours in the order of their turn. No rows: the policy has no queues."""

    now_ms: int
    half_life_ms: int
    rows: list[ShareRow]


class StatusBody(Whole):
    version: str
    pid: int
    home: str
    user: str
    up_ms: int
    waiting: int
    running: int
    ended: int
    seq: int
    policy: str
    policy_version: int
    engine: str
    kernel: str  # compiled or pure
    promises: dict[str, int] = {}  # since this server began: promised starts made, kept, how late others were, and why
    notes: list[str] = []  # what a person should know: no cgroups, disk full, clock behind


# -- the policy ----------------------------------------------------------------------------------------------


class PolicyChoice(Body):
    """Which policy. Exactly one is said: a policy file's text, the name of a built-in one, or a version that was in
    force."""

    text: Annotated[str, Meta(max_length=POLICY_MAX)] = ""
    source: Name = "policy"  # what errors call the text
    name: Name = ""
    version: Count = 0


class PolicyWish(PolicyChoice):
    note: Annotated[str, Meta(max_length=NOTE_MAX)] = ""
    if_version: Annotated[int, Meta(ge=-1)] = -1  # only over this version; -1: whichever is in force
    dry_run: bool = False  # all checks, and what would change; nothing is changed


class ChangeRow(Whole):
    """One field, in the words of the policy file; null where there is no such section."""

    path: str
    old: str | None
    new: str | None
    why: str = ""  # what the new policy says of it


class EffectRow(Whole, rename={"klass": "class"}):
    """Waiting jobs of one queue and class. Places are those in the line of a pool."""

    queue: str
    klass: str
    waiting: int
    looked_at: int = 0
    forward: int = 0  # come earlier in line
    back: int = 0  # come later
    starts_before: int = 0  # tasks that the next cycle starts under the policy in force,
    starts_after: int = 0  # and under the other
    refused: int = 0  # would be taken if submitted now, and refused under the other policy


class EffectBody(Whole):
    """What another policy means for the jobs that are there: both are tried on the state after event `seq`."""

    seq: int
    running: int
    waiting: int  # jobs that only wait for room or their turn
    looked_at: int
    first: int  # so many of each pool's line were looked at, at most
    cut: bool  # a count of the policy ended the cycle early, under one of them
    promises_kept: int  # promised starts that hold under both
    promises_new: int
    promises_lost: int
    promises_later: int  # kept, but for a later start
    refusals: list[str]  # in words, the first few
    rows: list[EffectRow]
    interrupted: int = -1  # of those that run, by the next cycle under the other one; -1: it may interrupt nobody


class PolicyDiffBody(Whole):
    version: int  # in force
    old: str  # its name
    new: str
    changes: list[ChangeRow]  # none: they are equal
    warnings: list[str]  # allowed, and probably not meant
    effect: EffectBody | None  # null: not asked for, or `trouble` says why
    trouble: str = ""


class PolicySetBody(Whole):
    """The policy in force now. `diff` answers a dry run."""

    changed: bool
    version: int
    name: str
    diff: PolicyDiffBody | None = None


class PolicyBody(Whole):
    version: int
    name: str
    text: str  # as a policy file
    at_ms: int | None  # null: it is not known any more
    by: str
    note: str


class PolicyVersionRow(Whole):
    version: int
    name: str
    at_ms: int | None
    by: str
    note: str
    changed: str  # in one line, against the version before


class PolicyHistoryBody(Body):
    versions: list[PolicyVersionRow]  # newest first
    more: bool = False


class EventBody(Body):
    """One event of the stream: its number, its type and its fields, as the journal has them."""

    seq: int
    type: str
    event: dict[str, Any]


class Route(NamedTuple):
    """One call. Words in braces of the path, and the names in `query`, are its parameters."""

    name: str
    method: str
    path: str
    body: type[Body] | None
    answer: type[msgspec.Struct] | None  # None: not JSON, `doc` says what
    doc: str
    query: tuple[tuple[str, str], ...] = ()


JOB_FILTER = (
    ("all", "1: ended ones too"),
    ("user", "of this user; `me`: of whoever asks"),
    ("queue", "of this queue"),
    ("state", "in one of these states, separated by commas"),
    ("job", "these only: 12 or 12_5, separated by commas"),
    ("limit", "at most so many rows; left out: all"),
)
TEXT_LOOK = (
    ("width", "columns of the screen, for text; left out: 80"),
    ("colour", "1: text may be coloured"),
)

ROUTES = (
    Route("submit", "POST", "/v1/jobs", SubmitBody, SubmittedBody, "Submits a job; answered when it is durable."),
    Route("submit_many", "POST", "/v1/jobs/batch", SubmitManyBody, SubmittedManyBody,
          "Submits many jobs; answered when all are durable. Each has its own answer, in order."),
    Route("jobs", "GET", "/v1/jobs", None, JobsBody,
          "Jobs and array tasks. With `Accept: text/plain` a table for people, and nothing where there are none.",
          JOB_FILTER + TEXT_LOOK),
    Route("job", "GET", "/v1/jobs/{job}", None, JobBody, "Everything about one job, or one task of an array.",
          (("index", "which task of an array"),)),
    Route("log", "GET", "/v1/jobs/{job}/log", None, None, "Output of a task, as octets, as far as it is there.",
          (("index", "which task of an array"), ("stream", "stdout or stderr"), ("offset", "from this octet on"))),
    Route("cancel", "POST", "/v1/jobs/{job}/cancel", TaskBody, DoneBody, "Ends the job, or one task of it."),
    Route("hold", "POST", "/v1/jobs/{job}/hold", TaskBody, DoneBody, "Keeps what waits of the job from starting."),
    Route("release", "POST", "/v1/jobs/{job}/release", TaskBody, DoneBody, "Undoes a hold."),
    Route("requeue", "POST", "/v1/jobs/{job}/requeue", TaskBody, DoneBody,
          "Ends what runs of the job, saved first where it can, and lets it wait again."),
    Route("suspend", "POST", "/v1/jobs/{job}/suspend", TaskBody, DoneBody,
          "Stops what runs of the job where it is: it lends its cpus and keeps all else; its time limit stands still."),
    Route("resume_job", "POST", "/v1/jobs/{job}/resume", TaskBody, DoneBody, "Lets what is suspended of it go on."),
    Route("checkpoint", "POST", "/v1/jobs/{job}/checkpoint", TaskBody, DoneBody, "Asks it to save itself now."),
    Route("wait", "GET", "/v1/wait", None, WaitBody, "Answered when more of the jobs have ended, or time is up.",
          (("job", "12 or 12_5, separated by commas"), ("ended", "how many had ended when last asked"),
           ("timeout_ms", "answer by then in any case"))),
    Route("nodes", "GET", "/v1/nodes", None, NodesBody, "The nodes: what they have, and what of it is free."),
    Route("drain", "POST", "/v1/nodes/{node}/drain", NodeActionBody, DoneBody, "Nothing new starts there."),
    Route("resume", "POST", "/v1/nodes/{node}/resume", NodeActionBody, DoneBody, "Lets the node take work again."),
    Route("share", "GET", "/v1/share", None, ShareBody,
          "How every queue stands against its neighbours: what it holds, has held and may hold, and its turn."),
    Route("tide", "GET", "/v1/tide", None, TidesBody, "How demand stands in every pool, why, and what that changes."),
    Route("approve", "POST", "/v1/queues/{queue}/approve", ExcessBody, DoneBody,
          "Lets a queue hold more than its limit for a time. For its approvers; a path is written with %2F."),
    Route("revoke", "POST", "/v1/queues/{queue}/revoke", RevokeBody, DoneBody,
          "Ends what was approved for a queue. What runs, runs on."),
    Route("reservations", "GET", "/v1/reservations", None, ReservationsBody,
          "What is reserved, now or later, where, and for whom."),
    Route("reserve", "POST", "/v1/reservations", ReserveBody, DoneBody,
          "Keeps capacity from one time to another. For administrators, and for users within the policy's quota."),
    Route("end_reservation", "POST", "/v1/reservations/{reservation}/release", EndReservationBody, DoneBody,
          "Gives back what is reserved. For administrators, and for whoever made it. What runs, runs on."),
    Route("policy", "GET", "/v1/policy", None, PolicyBody, "The policy in force, or an older one.",
          (("version", "which one; left out: the one in force"),)),
    Route("set_policy", "PUT", "/v1/policy", PolicyWish, PolicySetBody,
          "Puts a policy in force, from the next cycle on; what runs, runs on. The one in force already changes "
          "nothing. For those who manage the server."),
    Route("policy_diff", "POST", "/v1/policy/diff", PolicyChoice, PolicyDiffBody,
          "What another policy would change: its fields, and for the jobs that are there. Changes nothing."),
    Route("policy_history", "GET", "/v1/policy/history", None, PolicyHistoryBody,
          "The policies that were in force, newest first.", (("limit", "at most so many; left out: 50"),)),
    Route("events", "GET", "/v1/events", None, None,
          "The events as they happen (server-sent events, each an EventBody); `Last-Event-ID` goes on from there. "
          "A comment at least every 15 s says that the server lives.",
          (("after", "from this event number on; left out: from now on"),)),
    Route("slurm", "POST", "/v1/slurm/{command}", None, None, "What a command of Slurm says; docs/slurm.md."),
    Route("status", "GET", "/v1/status", None, StatusBody, "How the server is."),
    Route("stop", "POST", "/v1/stop", StopBody, DoneBody, "Stops the server. What runs, runs on."),
    Route("openapi", "GET", "/v1/openapi.json", None, None, "This interface, as an OpenAPI document."),
)  # fmt: skip
