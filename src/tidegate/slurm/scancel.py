"""`scancel`: ends jobs, tasks and steps, or sends them a signal."""

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.model import commands as cmd
from tidegate.model.base import ARRAY_BITS, index_of
from tidegate.model.jobs import Job
from tidegate.slurm import getopt
from tidegate.slurm.ask import pool_named
from tidegate.slurm.desk import VERSION, Call, Desk
from tidegate.slurm.squeue import states_of, words
from tidegate.slurm.views import View, live
from tidegate.slurm.words import FaultError, signal_number
from tidegate.wire.arrays import parse_indices
from tidegate.world.arrays import holds, is_waiting

OPTIONS = getopt.table("""
    account=,A batch,b clusters=,M cron ctld full,f help,h hurry,H interactive,i jobname=,n name=,n me nodelist=,w
    partition=,p qos=,q quiet,Q reservation=,R sibling=,S signal=,s state=,t usage user=,u verbose,v version,V
    wckey=
""")  # fmt: skip
USAGE = (
    "Usage: scancel [-A account] [-b] [-n job_name] [-p partition] [-s signal] [-t state] [-u user] [job_id[.step]]\n"
)
FILTERS = ("account", "name", "jobname", "nodelist", "partition", "qos", "state", "user", "me", "reservation", "wckey")
ID = re.compile(r"(\d+)(?:_(\d+|\*|\[[\d,:-]+(?:%\d+)?\]))?(?:\.(\d+|batch|extern))?\Z")
DONE = "Job/step already completing or completed"
TASKS_NAMED_MAX = 100_000


@dataclass(slots=True)
class Target:
    """What one word means: a job, tasks of it, a step of it."""

    job: int
    indices: tuple[int, ...] = ()
    step: str = ""


def scancel(desk: Desk, call: Call) -> None:
    given, rest = getopt.parse("scancel", call.words, OPTIONS, ordered=False)
    told = dict(given)
    if "version" in told or "help" in told or "usage" in told:
        call.answer(f"{VERSION}\n" if "version" in told else USAGE)
        return
    if not rest and not any(name in told for name in FILTERS):
        raise FaultError("scancel: error: No job identification provided\n")
    targets = [target for word in rest for one in split_ids(word) for target in [target_of(desk, one)]]
    number = signal_of(told)
    said: list[str] = []
    wishes: list[cmd.Cancel] = []
    failed = False
    for target in targets or chosen_targets(desk, call, told):
        job = desk.world.jobs.get(target.job)
        verbose = "verbose" in told
        if job is None:
            if verbose:
                said += [
                    f"Terminating job {target.job}",
                    f"error: Kill job error on job id {target.job}: {gone(desk, target)}",
                ]
            continue
        if targets and any(name in told for name in FILTERS) and not is_wanted(desk, call, told, job):
            continue
        if not call.peer.may_touch(job.spec.user):
            said.append(f"error: Kill job error on job id {target.job}: Access/permission denied")
            failed = True
            continue
        if verbose:
            said.append(f"{'Signal ' + str(number) + ' to' if number else 'Terminating'} {words_of(target)}")
        if number or target.step:
            send(desk, job, target, number or signal.SIGKILL, told)
        else:
            wishes += cancels(desk, call, job, target)
    err = "" if "quiet" in told else "".join(f"scancel: {line}\n" for line in said)
    desk.commands_of(call, wishes, lambda _: call.answer(err=err, code=int(failed)))


def gone(desk: Desk, target: Target) -> str:
    return DONE if desk.past.job(target.job) is not None else "Invalid job id specified"


def words_of(target: Target) -> str:
    if target.step:
        return f"step {target.job}.{target.step}"
    return f"job {target.job}" + (f"_{target.indices[0]}" if len(target.indices) == 1 else "")


def split_ids(word: str) -> list[str]:
    """At commas outside brackets."""
    return [one for one in re.split(r",(?![^\[]*\])", word) if one]


def target_of(desk: Desk, text: str) -> Target:
    found = ID.match(text)
    if found is None:
        raise FaultError(f"scancel: error: Invalid job id {text}\n")
    job, tasks, step = int(found[1]), found[2] or "", found[3] or ""
    whole = job >> ARRAY_BITS
    if not tasks and job not in desk.world.jobs and whole in desk.world.arrays:
        return Target(whole, (index_of(job),), step)
    if tasks in {"", "*"}:
        return Target(job, (), step)
    try:
        indices = parse_indices(tasks.strip("[]").partition("%")[0])
    except ValueError:
        raise FaultError(f"scancel: error: Invalid job id {text}\n") from None
    if len(indices) > TASKS_NAMED_MAX:
        raise FaultError(f"scancel: error: Invalid job id {text}\n")
    return Target(job, indices, step)


def signal_of(told: dict[str, str]) -> int:
    """0: to end it."""
    if "signal" not in told:
        return 0
    try:
        number = signal_number(told["signal"])
    except ValueError:
        raise FaultError(f"scancel: error: Unknown job signal: {told['signal']}\n") from None
    return 0 if number == signal.SIGKILL and not {"batch", "full"} & told.keys() else number


def cancels(desk: Desk, call: Call, job: Job, target: Target) -> Iterator[cmd.Cancel]:
    by = call.peer.user
    if not target.indices or job.spec.array is None:
        yield cmd.Cancel(job.id, by=by)
        return
    state, indices = desk.world.arrays[job.id], job.spec.array.indices
    for index in target.indices:
        is_live = job.id << ARRAY_BITS | index in desk.world.runs
        if is_live or (holds(indices, index) and is_waiting(state, indices, index)):
            yield cmd.Cancel(job.id, index, by)


def send(desk: Desk, job: Job, target: Target, number: int, told: dict[str, str]) -> None:
    """To steps; with --batch to the batch script, with --full to both. What waits hears nothing."""
    to = "all" if "full" in told else ("batch" if "batch" in told or target.step == "batch" else "steps")
    if target.step.isdecimal():
        to = target.step
    for run in desk.world.runs_of(job.id):
        if not target.indices or index_of(run.task) in target.indices:
            desk.send_signal(run.task, run.attempt, number, to)


def chosen_targets(desk: Desk, call: Call, told: dict[str, str]) -> list[Target]:
    found = []
    for job in list(desk.world.jobs.values()):
        if not (call.peer.is_admin or job.spec.user == call.peer.user) or not is_wanted(desk, call, told, job):
            continue
        if "state" not in told and "nodelist" not in told:
            found.append(Target(job.id))
            continue
        found += [
            Target(job.id, view.indices or (() if view.index is None else (view.index,)))
            for view in live(desk.world, [job])
            if fits(view, told)
        ]
    return found


def fits(view: View, told: dict[str, str]) -> bool:
    if "state" in told and view.state not in states_of(told["state"]):
        return False
    nodes = words(told.get("nodelist", ""))
    return not nodes or any(name in nodes for name, _ in view.nodes)


def is_wanted(desk: Desk, call: Call, told: dict[str, str], job: Job) -> bool:
    view = View(job, "PENDING", None)
    users = words(told.get("user", "")) + ([call.peer.user] if "me" in told else [])
    pools = [pool_named(desk.world, name) or name for name in words(told.get("partition", ""))]
    names = words(told.get("name", "") + "," + told.get("jobname", ""))
    return (
        (not users or job.spec.user in users)
        and (not pools or job.pool in pools)
        and (not names or job.spec.name in names)
        and ("account" not in told or view.account in words(told["account"]))
        and ("qos" not in told or view.qos in words(told["qos"]))
        and ("wckey" not in told or view.said.wckey in words(told["wckey"]))
        and ("reservation" not in told or view.said.reservation in words(told["reservation"]))
    )
