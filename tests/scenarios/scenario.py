"""What a scenario may say. It is data: whatever is not named here is refused, so a typing slip cannot pass a test."""

from pathlib import Path
from typing import Any

import msgspec
import yaml

from tidegate.model.base import FOREVER_MS, task_key
from tidegate.model.commands import (
    ApproveExcess,
    Cancel,
    ChangePolicy,
    Command,
    EndReservation,
    Hold,
    Release,
    Requeue,
    Reserve,
    Resume,
    RevokeExcess,
    SetNode,
    SetNodeState,
    Submit,
    Suspend,
)
from tidegate.model.jobs import (
    ANY_FAILURE,
    After,
    AfterKind,
    Amounts,
    Array,
    Cause,
    Checkpoint,
    JobSpec,
    Labels,
    Retry,
    RetryRule,
    Shape,
    Work,
)
from tidegate.model.nodes import Node, NodeState
from tidegate.model.policy import PolicySpec
from tidegate.model.reservations import ReservationSpec
from tidegate.wire.policy_file import load_builtin, load_policy, read_policy
from tidegate.wire.units import parse_duration, parse_size

ROOT = Path(__file__).parents[2]
Words = str | list[str]


class Data(msgspec.Struct, forbid_unknown_fields=True):
    pass


class NodesData(Data):
    """`count` alike nodes, called name1, name2, …; one alone is called as it is."""

    name: str
    count: int = 0
    pool: str = "main"
    cpus: float = 0
    memory: str = "0"
    gpus: float = 0
    has: dict[str, int] = {}
    labels: dict[str, str] = {}
    state: NodeState = NodeState.UP
    breaks: str = ""  # how every job ends here, until it is
    mended: str = "100h"


class JobData(Data, rename={"klass": "class"}):
    id: int
    submit: str = "0"
    run: str = "10m"
    limit: str = ""  # as long as it runs, if not said
    expected: str = "0"
    cpus: float = 0
    memory: str = "0"
    gpus: float = 0
    has: dict[str, int] = {}
    count: int = 1
    stack: bool = False
    where: dict[str, Words] = {}
    user: str = "ann"
    klass: str = "normal"
    queue: str = "default"
    pool: str = ""
    after: Words = []  # 3, or "any 3"
    begin: str = "0"
    deadline: str = ""
    array: str = ""  # "0-9", "1,3,5"
    at_once_max: int = 0
    held: bool = False
    losses_max: int = 3
    key: str = ""
    fails: bool = False  # its runs end as failed
    ends: Words = []  # how each attempt ends: ok, exit 75, signal 9, oom, timeout, lost, refused; then all complete
    reported_after: str = "0"  # so late the engine tells that it has ended
    retries: int = 0
    retry_on: Words = []  # exit, exit 75, exit 100-110, signal, signal 9, oom, timeout; []: exit and signal
    backoff: str = "1s"
    backoff_max: str = "10m"
    notify: bool = False
    tags: dict[str, str] = {}
    reservation: str = ""
    saves: bool = False  # it can save itself when it is asked to
    env: str = ""  # the name of an environment,
    brings: dict[str, str] = {}  # and what is in it


class ApproveData(Data):
    """How much more than its limit a queue may hold, and for how long."""

    queue: str
    lasts: str
    cpus: float = 0
    memory: str = "0"
    gpus: float = 0
    has: dict[str, int] = {}


class ReserveData(Data):
    """Named nodes, or so many whole ones, or `count` chunks of amounts."""

    name: str
    lasts: str
    start: str = "0"  # 0: at once
    pool: str = ""
    nodes: Words = []
    whole: int = 0
    count: int = 1
    stack: bool = True
    cpus: float = 0
    memory: str = "0"
    gpus: float = 0
    has: dict[str, int] = {}
    users: Words = []
    queues: Words = []
    by_user: str = ""  # a user makes it; "": an operator does
    force: bool = False


class EventData(Data):
    """One thing that happens at a time: exactly one of the first few is said."""

    at: str
    cancel: str = ""  # a job, or a task: 3[1]
    requeue: str = ""
    suspend: str = ""
    resume: str = ""
    hold: int = 0
    release: int = 0
    node: str = ""  # goes to `state`
    approve: ApproveData | None = None
    revoke: str = ""  # of a queue
    reserve: ReserveData | None = None
    end_reservation: str = ""
    add: NodesData | None = None
    policy: str | dict[str, Any] = ""
    if_version: int = -1  # of the policy that it is to replace
    by: str = ""
    state: NodeState = NodeState.UP
    why: str = ""


class FallData(Data):
    """By how much of a hundred at least the mean completion is below that under another policy."""

    against: str
    percent: int


class Expected(Data):
    """Only what is said is compared."""

    starts: dict[str, Words] = {}  # task -> "10m", or "10m on n1,n2x3"; a list where it starts again
    ends: dict[str, str] = {}
    outcomes: dict[str, str] = {}
    not_started: list[str] = []
    order: list[str] = []  # all starts, in this order
    suspended: dict[str, Words] = {}  # task -> "10m-20m", from when until when, each time; "10m-" to its end
    promises: dict[str, Words] = {}  # task -> the start it was promised, and each new one
    estimates: dict[str, Words] = {}  # task -> the end that planning assumed, and each raised one
    refused: dict[str, str] = {}  # what -> part of the refusal
    cuts: list[str] | None = None  # the counts that ran out, one a cycle
    backfilled: list[str] | None = None
    nodes: dict[str, Words] = {}  # node -> "10m drained", and each later change of its state
    tides: dict[str, Words] = {}  # pool -> "10m rising", and each later turn
    tide_whys: dict[str, Words] = {}  # pool -> parts of the reasons
    node_why: dict[str, str] = {}  # node -> part of the last reason that was given for its state
    notices: dict[str, Words] = {}  # job -> the outcome its notify command was told, each time
    reservations: dict[str, Words] = {}  # name -> "0s on n1,n2x3", "5m on n4" where it moved, "1h over: part of why"
    completion_falls: FallData | None = None
    policies: list[str] | None = None  # "0s 1 fcfs", "10m 2 easy by ann: why": when, version, name, by whom, note


class Scenario(Data):
    why: str
    nodes: list[NodesData]
    expect: Expected
    policy: str | dict[str, Any] = "easy"  # built in; or a path of the repository
    cadence: str = "batched"
    jobs: list[JobData] = []
    events: list[EventData] = []


class _Strict(yaml.BaseLoader):
    """All values are text, and no key is given twice: YAML would take the last of two without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise ValueError(f"line {node.start_mark.line + 1}: given twice: {twice}")
        return super().construct_mapping(node, deep)


class _Plain(yaml.SafeDumper):
    """Writes text as it stands, without quotes: an inline policy goes through the reader of policy files."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as PyYAML declares it


def read_scenario(path: Path) -> Scenario:
    data = yaml.load(path.read_text(), Loader=_Strict)
    return msgspec.convert(data, Scenario, strict=False)


# -- data to commands ------------------------------------------------------------------------------------


def policy_of(said: str | dict[str, Any]) -> PolicySpec:
    if isinstance(said, str):
        return read_policy(ROOT / said) if "/" in said else load_builtin(said)
    return load_policy(yaml.dump({"name": "inline"} | said, Dumper=_Plain), "inline")


def nodes_of(said: NodesData) -> list[Node]:
    names = [f"{said.name}{n}" for n in range(1, said.count + 1)] if said.count else [said.name]
    capacity = _amounts(said)
    labels = tuple(sorted(said.labels.items()))
    return [Node(name, said.pool, capacity, labels, said.state) for name in names]


def _amounts(said: NodesData | JobData | ApproveData | ReserveData) -> Amounts:
    named = {"cpus": round(said.cpus * 1000), "gpus": round(said.gpus * 1000), "memory": parse_size(said.memory)}
    return tuple(sorted((name, amount) for name, amount in (named | said.has).items() if amount))


def submit_of(said: JobData) -> Submit:
    spec = JobSpec(
        user=said.user,
        shape=Shape(_amounts(said), said.count, said.stack, _labels(said.where)),
        limit_ms=parse_duration(said.limit or said.run),
        pool=said.pool,
        queue=said.queue,
        klass=said.klass,
        expected_ms=parse_duration(said.expected),
        begin_ms=parse_duration(said.begin),
        deadline_ms=parse_duration(said.deadline) if said.deadline else FOREVER_MS,
        after=tuple(_after(one) for one in listed(said.after)),
        array=Array(_indices(said.array), said.at_once_max) if said.array else None,
        held=said.held,
        losses_max=said.losses_max,
        retry=_retry(said),
        tags=tuple(sorted(said.tags.items())),
        reservation=said.reservation,
        checkpoint=Checkpoint() if said.saves else None,
        work=Work(("true",), env=said.env, notify="mail" if said.notify else "") if said.notify or said.env else None,
    )
    return Submit(spec, said.id, said.key, tuple(sorted(said.brings.items())))


def _retry(said: JobData) -> Retry:
    rules = tuple(_rule(one) for one in listed(said.retry_on)) or ANY_FAILURE
    return Retry(said.retries, rules, parse_duration(said.backoff), parse_duration(said.backoff_max))


CAUSES = {"exit": Cause.EXIT, "signal": Cause.SIGNAL, "oom": Cause.OUT_OF_MEMORY, "timeout": Cause.TIMED_OUT}


def _rule(said: str) -> RetryRule:
    word, _, codes = said.partition(" ")
    low, _, high = codes.partition("-")
    return RetryRule(CAUSES[word], int(low), int(high or low)) if codes else RetryRule(CAUSES[word])


def _labels(where: dict[str, Words]) -> Labels:
    return tuple(sorted((label, tuple(sorted(listed(values)))) for label, values in where.items()))


def listed(said: Words) -> list[str]:
    return said if isinstance(said, list) else [said]


def _after(said: str) -> After:
    kind, _, job = said.rpartition(" ")
    return After(int(job), AfterKind(kind or "ok"))


def _indices(said: str) -> tuple[int, ...]:
    indices: list[int] = []
    for part in said.split(","):
        first, _, last = part.partition("-")
        indices.extend(range(int(first), int(last or first) + 1))
    return tuple(indices)


def commands_of(said: EventData) -> list[tuple[str, Command]]:
    """What is sent, each with the name a refusal of it goes by."""
    if said.cancel:
        job, _, index = said.cancel.rstrip("]").partition("[")
        return [(f"cancel {said.cancel}", Cancel(int(job), int(index) if index else -1, said.why))]
    if said.requeue:
        job, _, index = said.requeue.rstrip("]").partition("[")
        return [(f"requeue {said.requeue}", Requeue(int(job), int(index) if index else -1, said.why))]
    if said.suspend or said.resume:
        verb, command = ("suspend", Suspend) if said.suspend else ("resume", Resume)
        job, _, index = (said.suspend or said.resume).rstrip("]").partition("[")
        return [(f"{verb} {job}", command(int(job), int(index) if index else -1, said.why))]
    if said.hold:
        return [(f"hold {said.hold}", Hold(said.hold, said.why))]
    if said.release:
        return [(f"release {said.release}", Release(said.release, said.why))]
    if said.node:
        return [(f"node {said.node}", SetNodeState(said.node, said.state, said.why))]
    if said.add is not None:
        return [(f"add {node.name}", SetNode(node)) for node in nodes_of(said.add)]
    if said.approve is not None:
        queue, until = said.approve.queue, parse_duration(said.at) + parse_duration(said.approve.lasts)
        return [(f"approve {queue}", ApproveExcess(queue, _amounts(said.approve), until, said.why))]
    if said.reserve is not None:
        return [(f"reserve {said.reserve.name}", reserve_of(said.reserve, parse_duration(said.at)))]
    if said.end_reservation:
        return [(f"end {said.end_reservation}", EndReservation(said.end_reservation, said.by))]
    if said.revoke:
        return [(f"revoke {said.revoke}", RevokeExcess(said.revoke, said.why))]
    assert said.policy, f"the event at {said.at} says nothing"
    change = ChangePolicy(policy_of(said.policy), said.by, said.why, said.if_version)
    return [(f"policy at {said.at}", change)]


def reserve_of(said: ReserveData, at: int) -> Reserve:
    start, chunk = parse_duration(said.start), _amounts(said)
    shape = Shape(chunk, said.count, said.stack) if chunk else Shape((), said.whole) if said.whole else None
    spec = ReservationSpec(
        said.name, (start or at) + parse_duration(said.lasts), start, said.pool, tuple(listed(said.nodes)), shape,
        tuple(listed(said.users)), tuple(listed(said.queues)), said.by_user,
    )  # fmt: skip
    return Reserve(spec, not said.by_user, said.force)


def task_of(said: str) -> int:
    job, _, index = said.rstrip("]").partition("[")
    return task_key(int(job), int(index or 0))
