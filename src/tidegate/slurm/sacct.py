"""`sacct`: jobs and their steps, ended ones too."""

import re
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tidegate.api.past import History, all_endings
from tidegate.model.history import Ending
from tidegate.slurm import getopt
from tidegate.slurm.acct_fields import BRIEF, FIELDS, LONG_FORMAT, NAMES, SHORT_FORMAT, Column, Row, Sight, rows_of
from tidegate.slurm.ask import pool_named
from tidegate.slurm.desk import VERSION, Answer, Call, Desk
from tidegate.slurm.queue_json import accounted
from tidegate.slurm.squeue import jobs_named, words
from tidegate.slurm.steps import Step, apart, read_steps
from tidegate.slurm.views import LONG, SHORT, View, ended, live
from tidegate.slurm.words import FaultError, fault, local, moment_ms, stamp
from tidegate.wire.hostlist import HostlistError, expand

OPTIONS = getopt.table("""
    accounts=,A allusers,a allclusters,L associations=,x batch-script,B brief,b clusters=,M completion,c
    constraints=,C cpus= delimiter= duplicates,D endtime=,E env-vars federation file=,f flags=,F format=,o fields=
    group=,g gid= helpformat,e help,h jobs=,j json? local long,l name= ncpus=,i nnodes=,I noconvert nodelist=,N
    noheader,n parsable,p parsable2,P partition=,r qos=,q reason=,R starttime=,S state=,s timelimit-min=,k
    timelimit-max=,K truncate,T units= uid= user=,u usage use-local-uid version,V verbose,v wckeys=,W
    whole-hetjob? allocations,X array yaml?
""")  # fmt: skip
USAGE = "Usage: sacct [options]\n"
PAGE = 10_000
ROWS_MAX = 1_000_000
FORMAT = re.compile(r"([A-Za-z_]+)(?:%(-?\d+))?\Z")


@dataclass(frozen=True, slots=True)
class Asked:
    told: dict[str, str]
    jobs: tuple[tuple[int, int], ...]
    steps: frozenset[str]  # `12.batch` asks for that step alone
    since: int
    until: int
    users: frozenset[str]
    states: frozenset[str]
    pools: frozenset[str]
    names: frozenset[str]
    nodes: frozenset[str]
    accounts: frozenset[str]
    now: int

    def wants(self, view: View) -> bool:
        job = view.job
        if (self.users and job.spec.user not in self.users) or (self.pools and job.pool not in self.pools):
            return False
        if (self.names and job.spec.name not in self.names) or (self.accounts and view.account not in self.accounts):
            return False
        if self.nodes and not any(name in self.nodes for name, _ in view.nodes):
            return False
        if self.states and view.state not in self.states:
            return False
        if self.jobs:
            here = [index for known, index in self.jobs if known == job.id]
            if not (-1 in here or view.index in here or any(index in view.indices for index in here)):
                return False
        return job.submit_ms <= self.until and (view.end_ms < 0 or view.end_ms >= self.since)


def sacct(desk: Desk, call: Call) -> None:
    given, rest = getopt.parse("sacct", call.words, OPTIONS, ordered=False)
    told = dict(given)
    told["jobs"] = ",".join([value for name, value in given if name == "jobs"] + rest)
    if "version" in told or "help" in told or "usage" in told:
        call.answer(f"{VERSION}\n" if "version" in told else USAGE)
        return
    if "helpformat" in told:
        call.answer(helpformat())
        return
    asked = asked_of(desk, call, told)
    columns = columns_of(told, call.env)
    views = [view for view in live(desk.world, list(desk.world.jobs.values())) if asked.wants(view)]
    steps_file = desk.steps.file
    sight = Sight(call.now, call.env.get("SLURM_TIME_FORMAT", ""), "noconvert" in told, told.get("units", ""))

    def work() -> Answer:
        history = desk.past.archive.open()
        db = apart(steps_file)
        try:
            seen = {view.task for view in views}
            past = [view for view in ended_views(history, asked) if view.final is False or view.task not in seen]
            return written(asked, [*past, *views], columns, db, sight)
        finally:
            db.close()
            history.close()

    desk.aside(call, work)


def asked_of(desk: Desk, call: Call, told: dict[str, str]) -> Asked:
    texts = words(told["jobs"])
    ids = [text.partition(".")[0] for text in texts]
    try:
        jobs = tuple(jobs_named(desk, ",".join(ids)))
    except FaultError:
        raise FaultError(f"sacct: fatal: Bad job/step specified: {told['jobs']}\n") from None
    users = words(told.get("user", told.get("uid", "")))
    if not users and not call.peer.is_admin and "allusers" not in told and not jobs:
        users = [call.peer.user]
    until = when(call, told.get("endtime", "now"))
    midnight = stamp(local(call.now).replace(hour=0, minute=0, second=0, microsecond=0))
    since = when(call, told["starttime"]) if "starttime" in told else (0 if jobs else midnight)
    try:
        nodes = frozenset(expand(told.get("nodelist", "")))
    except HostlistError as error:
        raise fault("sacct", str(error)) from None
    return Asked(
        told, jobs, frozenset(text for text in texts if "." in text), since, until, frozenset(users),
        states_of(told.get("state", "")),
        frozenset(pool_named(desk.world, name) or name for name in words(told.get("partition", ""))),
        frozenset(words(told.get("name", ""))), nodes, frozenset(words(told.get("accounts", ""))), call.now,
    )  # fmt: skip


def when(call: Call, text: str) -> int:
    try:
        return moment_ms(text, call.now)
    except (ValueError, OverflowError):
        raise FaultError(f"sacct: error: Invalid time specification (pos=0): {text}\n") from None


def states_of(text: str) -> frozenset[str]:
    found = set()
    for word in words(text):
        state = LONG.get(word.upper(), word.upper())
        if state not in SHORT:
            near = [known for known in SHORT if known.startswith(state)]
            if len(near) != 1:
                raise FaultError(f"sacct: error: Unrecognized state: {word}\n")
            state = near[0]
        found.add(state)
    return frozenset(found)


def columns_of(told: dict[str, str], env: dict[str, str]) -> list[tuple[Column, int]]:
    """Each with its width; below 0: to the left."""
    text = told.get("format", told.get("fields", env.get("SACCT_FORMAT", SHORT_FORMAT)))
    if "brief" in told:
        text = BRIEF
    if "long" in told:
        text = LONG_FORMAT
    found = []
    for word in words(text):
        if word.upper() in {"ALL", "%ALL"}:
            found += [(column, column.width) for column in FIELDS.values()]
            continue
        read = FORMAT.match(word)
        column = column_named(read[1].lower()) if read is not None else None
        if read is None or column is None:
            raise FaultError(f'sacct: error: Invalid field requested: "{word.partition("%")[0]}"\n')
        found.append((column, int(read[2]) if read[2] else column.width))
    return found


def column_named(name: str) -> Column | None:
    """In full, or as it begins, as Slurm takes it."""
    if name in FIELDS:
        return FIELDS[name]
    return next((column for known, column in FIELDS.items() if known.startswith(name)), None)


def helpformat() -> str:
    lines = [" ".join([f"{name:<19}" for name in NAMES[at : at + 4]]) for at in range(0, len(NAMES), 4)]
    return "\n".join([*lines, ""])


# -- reading -------------------------------------------------------------------------------------------------


def ended_views(history: History, asked: Asked) -> Iterator[View]:
    """Oldest first; those that waited again only where every attempt is wanted."""
    every = "duplicates" in asked.told
    if asked.jobs:
        endings = [one for job in dict.fromkeys(job for job, _ in asked.jobs) for one in all_endings(history, job)]
    else:
        endings = recent(history, asked)
        if every:
            jobs = dict.fromkeys(one.job.id for one in endings)
            endings = [one for job in jobs for one in all_endings(history, job)]
    for ending in endings:
        if ending.final or every:
            yield from (view for view in ended(ending) if asked.wants(view))


def recent(history: History, asked: Asked) -> list[Ending]:
    """Final ends since then, oldest first."""
    found: list[Ending] = []
    before: int | None = None
    below: int | None = None
    user = next(iter(asked.users)) if len(asked.users) == 1 else None
    while len(found) < ROWS_MAX:
        page = history.recent(PAGE, user=user, before=before, below=below)
        inside = [ending for ending in page if ending.end_ms >= asked.since]
        found += inside
        if len(page) < PAGE or len(inside) < len(page):
            break
        before, below = page[-1].end_ms + 1, page[-1].row
    return found[::-1]


# -- writing -------------------------------------------------------------------------------------------------


def written(
    asked: Asked, views: list[View], columns: list[tuple[Column, int]], db: sqlite3.Connection, sight: Sight
) -> Answer:
    views.sort(key=lambda view: (view.task, view.attempt))
    of_tasks = read_steps(db, {view.job.id for view in views})
    if "json" in asked.told:
        return Answer(accounted(views, of_tasks, asked.now))
    rows = [row for view in views for row in chosen(asked, view, of_tasks.get(view.task, []))]
    told = asked.told
    if "parsable" in told or "parsable2" in told:
        return Answer(parsable(rows, columns, sight, told))
    lines = [] if "noheader" in told else [header(columns), rule(columns)]
    lines += ["".join(fitted(column.value(row, sight), width) + " " for column, width in columns) for row in rows]
    return Answer("\n".join([*lines, ""]) if lines else "")


def chosen(asked: Asked, view: View, steps: Iterable[Step]) -> Iterator[Row]:
    """The job's row and those of its steps."""
    for row in rows_of(view, steps):
        if row.step and "allocations" in asked.told:
            continue
        if asked.steps and f"{view.id_text}{row.step}" not in asked.steps:
            continue
        yield row


def parsable(rows: list[Row], columns: list[tuple[Column, int]], sight: Sight, told: dict[str, str]) -> str:
    mark = told.get("delimiter", "|")
    tail = mark if "parsable" in told and "parsable2" not in told else ""
    wide = replace(sight, is_whole=True)
    lines = [] if "noheader" in told else [mark.join(column.name for column, _ in columns) + tail]
    lines += [mark.join([column.value(row, wide) for column, _ in columns]) + tail for row in rows]
    return "\n".join([*lines, ""]) if lines else ""


def header(columns: list[tuple[Column, int]]) -> str:
    return "".join(fitted(column.name, width) + " " for column, width in columns)


def rule(columns: list[tuple[Column, int]]) -> str:
    return "".join("-" * abs(width) + " " for _, width in columns)


def fitted(text: str, width: int) -> str:
    """Cut with a plus sign where it is too long."""
    room = abs(width)
    if len(text) > room:
        text = text[: room - 1] + "+"
    return text.ljust(room) if width < 0 else text.rjust(room)
