"""`squeue`: what waits and runs, and on demand what has just ended."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from tidegate.api.past import History, final_endings
from tidegate.model.base import ARRAY_BITS, FOREVER_MS
from tidegate.model.jobs import Job
from tidegate.slurm import getopt
from tidegate.slurm.ask import pool_named
from tidegate.slurm.desk import VERSION, Answer, Call, Desk
from tidegate.slurm.queue_fields import FIELDS, LETTERS, Field, Sight
from tidegate.slurm.queue_json import document
from tidegate.slurm.steps import read_steps
from tidegate.slurm.views import LONG, ORDER, OVER, SHORT, View, ended, live
from tidegate.slurm.words import FaultError, fault, lasting, moment, uid_of
from tidegate.wire.hostlist import HostlistError, expand
from tidegate.wire.slurm import shown_id

OPTIONS = getopt.table("""
    account=,A all,a array,r array-unique clusters=,M federation format=,o Format=,O help help-long hide iterate=,i
    jobs?,j json? licenses=,L local long,l me name=,n node=,w nodelist=,w noconvert noheader,h nohelp partition=,p
    priority,P qos=,q reservation=,R sibling sort=,S start state=,t states=,t steps?,s usage user=,u verbose,v
    version,V yaml? only-job-state
""")  # fmt: skip
USAGE = "Usage: squeue [-A account] [--array] [-t states] [-u user_name] [-o format] [-j jobs]\n"
MIN_AGE_MS = 300_000
"""An ended job stays visible so long."""
ENDED_MAX = 100_000
SHORT_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG_FORMAT = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
STEPS_FORMAT = "%.15i %.8j %.9P %.8u %.9M %N"
INVALID_ID = "slurm_load_jobs error: Invalid job id specified\n"
PIECE = re.compile(r"%(\.?)(\d*)(.)", re.DOTALL)
LONG_WIDTH = 20
NAMES = re.compile(r"([A-Za-z_-]+)(?::(\.?)(\d*)([^,]*))?\Z")
LINES_KEPT = 100_000
VARIABLES = {
    "FORMAT": "format", "FORMAT2": "Format", "STATES": "states", "USERS": "user", "PARTITION": "partition",
    "SORT": "sort", "NAMES": "name",
}  # fmt: skip
FORMATS_KEPT = 8


@dataclass(slots=True)
class Asked:
    """What is to be shown."""

    given: dict[str, str]
    now: int
    zone: str  # SLURM_TIME_FORMAT
    jobs: list[tuple[int, int]]  # (job, task index or -1)
    states: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    qos: frozenset[str] = frozenset()
    complaint: str = ""

    def wants_job(self, job: Job) -> bool:
        spec = job.spec
        return (
            (not self.users or spec.user in self.users)
            and (not self.pools or job.pool in self.pools)
            and (not self.names or spec.name in self.names)
        )

    def wants(self, view: View) -> bool:
        if self.states and view.state not in self.states:
            return False
        if self.nodes and not any(name in self.nodes for name, _ in view.nodes):
            return False
        if self.accounts and view.account not in self.accounts:
            return False
        if self.qos and view.qos not in self.qos:
            return False
        if not self.jobs:
            return True
        here = [index for job, index in self.jobs if job == view.job.id]
        return -1 in here or view.index in here or any(index in view.indices for index in here)

    @property
    def wants_ended(self) -> bool:
        return bool(self.states & OVER)


def squeue(desk: Desk, call: Call) -> None:
    given, rest = getopt.parse("squeue", call.words, OPTIONS, ordered=False)
    told = dict(given)
    if "version" in told or "help" in told or "usage" in told:
        call.answer(f"{VERSION}\n" if "version" in told else USAGE)
        return
    asked = asked_of(desk, call, told, rest)
    world = desk.world
    if asked.jobs:
        jobs = [world.jobs[job] for job in dict.fromkeys(job for job, _ in asked.jobs) if job in world.jobs]
    else:
        jobs = list(world.jobs.values())
    jobs = [job for job in jobs if asked.wants_job(job)]
    unknown = [job for job, _ in asked.jobs if job not in world.jobs]
    if len(asked.jobs) == 1 and unknown and not lately(desk.past.history, unknown[0], call.now):
        raise FaultError(INVALID_ID)
    if "steps" in told:
        call.say(steps_table(desk, asked, jobs))
        return
    plan = plan_of(asked)
    if plan.is_simple and not asked.wants_ended and "sort" not in told:
        call.answer(kept_lines(desk, asked, plan, jobs), asked.complaint + plan.complaint)
        return
    views = [view for view in live(world, jobs) if asked.wants(view)]
    if not asked.wants_ended:
        call.say(table(asked, plan, views, desk))
        return

    def work() -> Answer:
        history = desk.past.archive.open()
        try:
            found = [view for view in recently(history, asked) if asked.wants_job(view.job) and asked.wants(view)]
        finally:
            history.close()
        return table(asked, plan, [*found, *views], desk)

    desk.aside(call, work)


def lately(history: History, job: int, now: int) -> bool:
    endings = history.endings(job)
    return bool(endings) and endings[-1].end_ms > now - MIN_AGE_MS


def recently(history: History, asked: Asked) -> Iterable[View]:
    """Ended within the last minutes, oldest first."""
    since = asked.now - MIN_AGE_MS
    if asked.jobs:
        endings = [one for job in dict.fromkeys(job for job, _ in asked.jobs) for one in final_endings(history, job)]
    else:
        endings = list(takewhile(lambda one: one.end_ms > since, history.recent(ENDED_MAX)))
    for ending in reversed(endings):
        if ending.end_ms > since:
            yield from ended(ending)


# -- what is asked -------------------------------------------------------------------------------------------


def asked_of(desk: Desk, call: Call, told: dict[str, str], rest: list[str]) -> Asked:
    env = call.env
    for variable, option in VARIABLES.items():
        if env.get(f"SQUEUE_{variable}") and option not in told:
            told[option] = env[f"SQUEUE_{variable}"]
    asked = Asked(told, call.now, env.get("SLURM_TIME_FORMAT", ""), jobs_named(desk, told.get("jobs", ""), rest))
    for name in words(told.get("user", "")) + ([call.peer.user] if "me" in told else []):
        if uid_of(name) == 65534 and name != "nobody":
            asked.complaint += f"squeue: error: Invalid user: {name}\n\n"
        asked.users |= {name}
    asked.states = states_of(told.get("states", told.get("state", "")))
    asked.pools = frozenset(pool_named(desk.world, name) or name for name in words(told.get("partition", "")))
    asked.names = frozenset(words(told.get("name", "")))
    asked.accounts = frozenset(words(told.get("account", "")))
    asked.qos = frozenset(words(told.get("qos", "")))
    try:
        asked.nodes = frozenset(expand(told.get("nodelist", told.get("node", ""))))
    except HostlistError as error:
        raise fault("squeue", str(error)) from None
    return asked


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def states_of(text: str) -> frozenset[str]:
    """Nothing: what is not over."""
    names = [word.upper() for word in words(text)]
    if not names:
        return frozenset(ORDER)
    if "ALL" in names:
        return frozenset(ORDER) | OVER
    found = set()
    for name in names:
        state = LONG.get(name, name)
        if state not in SHORT:
            valid = ",".join(SHORT)
            raise FaultError(
                f"squeue: error: Invalid job state specified: {name}\n"
                f"squeue: error: Valid job states include: {valid}\n"
            )
        found.add(state)
    return frozenset(found)


def jobs_named(desk: Desk, text: str, rest: Sequence[str] = ()) -> list[tuple[int, int]]:
    found = []
    for word in [*words(text), *(one for more in rest for one in words(more))]:
        job, _, index = word.partition("_")
        if not job.isdecimal() or (index and not index.isdecimal()):
            raise FaultError(f"squeue: error: Invalid job id: {word}\n")
        number = int(job)
        whole = number >> ARRAY_BITS
        if number not in desk.world.jobs and (whole in desk.world.arrays or is_array(desk, whole)):
            found.append((whole, number & ((1 << ARRAY_BITS) - 1)))
        else:
            found.append((number, int(index) if index else -1))
    return found


def is_array(desk: Desk, job: int) -> bool:
    known = desk.past.job(job) if job else None
    return known is not None and known.spec.array is not None


# -- formats -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Plan:
    """A format, read: literal text and fields in turn."""

    key: str
    parts: list[tuple[str, Field | None, int, bool, str]]  # literal before, field, width, to the right, what follows
    complaint: str = ""
    is_simple: bool = False  # each job has one line, and that of one that waits changes with its reason only

    def header(self) -> str:
        return "".join(
            literal + (fitted(field.header, width, right) + tail if field is not None else "")
            for literal, field, width, right, tail in self.parts
        )

    def line(self, view: View, sight: Sight) -> str:
        return "".join(
            [
                literal + (fitted(field.value(view, sight), width, right) + tail if field is not None else "")
                for literal, field, width, right, tail in self.parts
            ]
        )


def fitted(text: str, width: int, right: bool) -> str:
    if not width:
        return text
    return text[:width].rjust(width) if right else text[:width].ljust(width)


def plan_of(asked: Asked) -> Plan:
    told = asked.given
    if "Format" in told:
        plan = by_names(told["Format"])
    elif "format" in told:
        plan = by_letters(told["format"])
    elif "start" in told:
        plan = by_letters(START_FORMAT)
    else:
        plan = by_letters(LONG_FORMAT if "long" in told else SHORT_FORMAT)
    letters = {field.letter for _, field, _, _, _ in plan.parts if field is not None}
    plan.is_simple = not letters & {"L", "S", "e"} and not {"start", "json", "long"} & told.keys()
    return plan


def by_letters(text: str) -> Plan:
    plan, at = Plan(text, []), 0
    for found in PIECE.finditer(text):
        literal = text[at : found.start()]
        at = found.end()
        field = LETTERS.get(found[3])
        if field is None:
            plan.complaint = plan.complaint or f"squeue: error: Invalid job format specification: {found[3]}\n"
            plan.parts.append((literal + found[0], None, 0, False, ""))
        else:
            plan.parts.append((literal, field, int(found[2] or 0), bool(found[1]), ""))
    plan.parts.append((text[at:], None, 0, False, ""))
    return plan


def by_names(text: str) -> Plan:
    plan = Plan(f"O {text}", [])
    for word in text.split(","):
        found = NAMES.match(word.strip())
        field = FIELDS.get(found[1].lower()) if found is not None else None
        if found is None or field is None:
            raise FaultError(f"squeue: error: Invalid job format specification: {word.strip()}\n")
        width = int(found[3]) if found[3] else (0 if found[4] else LONG_WIDTH)
        plan.parts.append(("", field, width, bool(found[2]), found[4] or ""))
    return plan


# -- tables --------------------------------------------------------------------------------------------------


def table(asked: Asked, plan: Plan, views: list[View], desk: Desk) -> Answer:
    told = asked.given
    if "json" in told:
        return Answer(document(views, asked.now), asked.complaint)
    if "start" in told:
        views = [view for view in views if view.state == "PENDING"]
    if "array" in told or "array-unique" in told:
        views = [one for view in views for one in each(view)]
    sight = Sight(asked.now, asked.zone, desk.world)
    ordered(views, told.get("sort", ""), sight, by_start="start" in told)
    lines = [] if "noheader" in told else [plan.header()]
    if "long" in told and "noheader" not in told:
        lines.insert(0, moment(asked.now, "%a %b %d %H:%M:%S %Y"))
    lines += [plan.line(view, sight) for view in views]
    return Answer("\n".join([*lines, ""]) if lines else "", asked.complaint + plan.complaint)


def each(view: View) -> Iterable[View]:
    if not view.indices:
        yield view
    for index in view.indices:
        one = View(view.job, view.state, index)
        one.reason = view.reason
        yield one


def ordered(views: list[View], sort: str, sight: Sight, *, by_start: bool = False) -> None:
    views.sort(key=lambda view: (view.job.pool, ORDER.get(view.state, 9), not view.priority, view.task))
    if by_start:
        views.sort(key=lambda view: sight.start_ms(view) or FOREVER_MS)
    for word in reversed(words(sort)):
        letter = word.lstrip("+-")[:1]
        if letter not in LETTERS:
            raise FaultError(f"squeue: error: Invalid sort specification: {word}\n")
        views.sort(key=sort_key(LETTERS[letter].value, sight, letter), reverse=word.startswith("-"))


def sort_key(value: Callable[[View, Sight], str], sight: Sight, letter: str) -> Callable[[View], tuple[int, str]]:
    def key(view: View) -> tuple[int, str]:
        text = str(view.elapsed_ms(sight.now)) if letter == "M" else value(view, sight)
        return (int(text), "") if text.isdecimal() else (0, text)

    return key


def kept_lines(desk: Desk, asked: Asked, plan: Plan, jobs: list[Job]) -> str:
    """As `table`; lines of jobs that wait and did not change are kept, so that a long queue costs little."""
    world = desk.world
    kept = desk.lines.setdefault(plan.key, {})
    if len(desk.lines) > FORMATS_KEPT:
        desk.lines.pop(next(iter(desk.lines)))
    if len(kept) > LINES_KEPT:
        kept.clear()
    sight = Sight(asked.now, asked.zone, world)
    expands = "array" in asked.given
    pending: list[str] = []
    last: list[str] = []  # those without a priority
    others: list[View] = []
    pools = {job.pool for job in jobs}
    wants_pending = "PENDING" in asked.states and not (asked.nodes or asked.accounts or asked.qos)
    is_plain = wants_pending and len(pools) < 2 and not any(index >= 0 for _, index in asked.jobs)
    for job in jobs:
        if not is_plain or job.spec.array is not None or job.id << ARRAY_BITS in world.runs:
            others += live(world, [job])
            continue
        reason = sight.reason(job)
        known = kept.get(job.id)
        if known is None or known[0] is not job or known[1] != reason:
            view = next(iter(live(world, [job])))
            known = kept[job.id] = (job, reason, plan.line(view, sight))
        (last if reason == "JobHeldUser" else pending).append(known[2])
    others = [one for view in others if asked.wants(view) for one in (each(view) if expands else (view,))]
    lines = [] if "noheader" in asked.given else [plan.header()]
    if others and (is_plain and not any(view.state == "PENDING" for view in others)):
        ordered(others, "", sight)
        lines += [*pending, *last, *[plan.line(view, sight) for view in others]]
    elif others:
        views = [view for view in live(world, jobs) if asked.wants(view)]
        views = [one for view in views for one in (each(view) if expands else (view,))]
        ordered(views, "", sight)
        lines += [plan.line(view, sight) for view in views]
    else:
        lines += [*pending, *last]
    return "\n".join([*lines, ""]) if lines else ""


def steps_table(desk: Desk, asked: Asked, jobs: list[Job]) -> Answer:
    """Steps that run: the batch script's, and those of srun."""
    views = [view for view in live(desk.world, jobs) if view.start_ms >= 0 and asked.wants(view)]
    of_jobs = read_steps(desk.steps.db, {view.job.id for view in views})
    lines = [] if "noheader" in asked.given else ["         STEPID     NAME PARTITION     USER      TIME NODELIST"]
    for view in sorted(views, key=lambda one: one.task):
        known = shown_id(view.job, view.index or 0)
        rows = []
        if view.said.kind == "batch":
            rows.append(("batch", "batch", view.elapsed_ms(asked.now), view.nodes[0][0] if view.nodes else ""))
        rows += [
            (str(step.number), step.name, asked.now - step.start_ms, step.nodes)
            for step in of_jobs.get(view.task, [])
            if step.attempt == view.attempt and not step.end_ms
        ]
        lines += [
            f"{f'{known}.{number}':>15.15} {name:>8.8} {view.job.pool:>9.9} {view.job.spec.user:>8.8} "
            f"{lasting(took):>9.9} {nodes}"
            for number, name, took, nodes in rows
        ]
    return Answer("\n".join([*lines, ""]) if lines else "", asked.complaint)
