"""`scontrol`: shows what there is, and changes it."""

from collections.abc import Callable

from tidegate.api.live import Result
from tidegate.model import commands as cmd
from tidegate.model.commands import Command, Refused
from tidegate.model.nodes import NodeState
from tidegate.slurm import getopt
from tidegate.slurm.change import CHANGES
from tidegate.slurm.desk import VERSION, Answer, Call, Desk
from tidegate.slurm.scancel import Target, target_of
from tidegate.slurm.show import (
    config_text,
    jobs_text,
    nodes_text,
    partitions_text,
    script_of,
    steps_text,
)
from tidegate.slurm.words import FaultError
from tidegate.wire.hostlist import HostlistError, compress, expand

OPTIONS = getopt.table("""
    all,a clusters=,M cluster= details,d federation,F future help,h hide local oneliner,o quiet,Q sibling uid=,u
    verbose,v version,V
""")  # fmt: skip
USAGE = "Usage: scontrol [-Q | -v] [<KEYWORD>]\n"
INVALID = "Invalid job id specified"
OF_WHICH = frozenset({"jobid", "job", "nice"})
DRAINS = frozenset({"drain", "draining", "drained", "down", "fail"})
RESUMES = frozenset({"resume", "idle", "undrain"})


def scontrol(desk: Desk, call: Call) -> None:
    given, rest = getopt.parse("scontrol", call.words, OPTIONS, ordered=True)
    told = dict(given)
    if "version" in told or "help" in told or not rest:
        call.answer(f"{VERSION}\n" if "version" in told else USAGE)
        return
    while rest and rest[-1] in {"-o", "--oneliner", "-d", "--details"}:
        told["oneliner" if rest.pop() in {"-o", "--oneliner"} else "details"] = ""
    word = rest[0].lower()
    for name, act in ACTS.items():
        if name == word or (len(word) > 2 and name.startswith(word)):
            act(desk, call, rest[1:], told)
            return
    raise FaultError(f"invalid keyword: {rest[0]}\n")


Told = dict[str, str]
Act = Callable[[Desk, Call, list[str], Told], None]


# -- show ----------------------------------------------------------------------------------------------------


def show(desk: Desk, call: Call, rest: list[str], told: Told) -> None:
    if not rest:
        raise FaultError("too few arguments for keyword:show\n")
    what, name = rest[0].lower(), rest[1] if len(rest) > 1 else ""
    key, equals, value = what.partition("=")
    if equals:
        what, name = key, rest[0].partition("=")[2]
        del value
    for known, text in SHOWS.items():
        if what == known or (len(what) > 2 and known.startswith(what.rstrip("s"))):
            call.answer(text(desk, call, name, told))
            return
    if what in {"job", "jobs", "jobid"}:
        jobs_text(desk, call, name, told)
        return
    if what.startswith("step"):
        call.say(steps_text(desk, call, name))
        return
    raise FaultError(f"invalid entity:{rest[0]} for keyword:show \n")


def hostnames(_desk: Desk, call: Call, name: str, _told: Told) -> str:
    text = name or call.env.get("SLURM_JOB_NODELIST") or call.env.get("SLURM_NODELIST", "")
    if not text:
        raise FaultError("No hostlist provided\n")
    try:
        return "".join(f"{one}\n" for one in expand(text))
    except HostlistError:
        raise FaultError(f"Invalid hostlist: {text}\n") from None


def hostlist(_desk: Desk, _call: Call, name: str, _told: Told) -> str:
    return compress(expand(name)) + "\n"


def hostlist_sorted(_desk: Desk, _call: Call, name: str, _told: Told) -> str:
    return compress(sorted(set(expand(name)), key=lambda one: (one.rstrip("0123456789"), len(one), one))) + "\n"


def nothing_of(text: str) -> Callable[[Desk, Call, str, Told], str]:
    return lambda _desk, _call, _name, _told: text


def daemons(_desk: Desk, _call: Call, _name: str, _told: Told) -> str:
    return "slurmctld slurmd\n"


SHOWS: dict[str, Callable[[Desk, Call, str, Told], str]] = {
    "hostnames": hostnames,
    "hostlist": hostlist,
    "hostlistsorted": hostlist_sorted,
    "nodes": nodes_text,
    "partitions": partitions_text,
    "config": config_text,
    "reservations": nothing_of("No reservations in the system\n"),
    "licenses": nothing_of("No licenses configured in Slurm.\n"),
    "topology": nothing_of(""),
    "federation": nothing_of("No federation\n"),
    "assoc_mgr": nothing_of(""),
    "daemons": daemons,
}


def ping(desk: Desk, call: Call, _rest: list[str], _told: Told) -> None:
    call.answer(f"Slurmctld(primary) at {desk.host} is UP\n")


def version(_desk: Desk, call: Call, _rest: list[str], _told: Told) -> None:
    call.answer(f"{VERSION}\n")


# -- jobs ----------------------------------------------------------------------------------------------------


def targets(desk: Desk, rest: list[str]) -> list[Target]:
    """Of `ID`, `ID_K`, `jobid=ID` and lists of them; a name by `name=`."""
    found = []
    for word in rest:
        key, equals, value = word.partition("=")
        if equals and key.lower() in {"name", "jobname"}:
            found += [Target(job.id) for job in list(desk.world.jobs.values()) if job.spec.name == value]
            continue
        for one in (value if equals else word).split(","):
            try:
                found.append(target_of(desk, one))
            except FaultError:
                raise FaultError(f"{INVALID} for job {one}\n") from None
    return found


def wishes(
    desk: Desk, call: Call, rest: list[str], make: Callable[[Target, int], Command], *, errors: str = ""
) -> None:
    """A command for each, and what is wrong with some of them; the exit code says whether all went."""
    commands: list[Command] = []
    for target in targets(desk, rest):
        job = desk.world.jobs.get(target.job)
        if job is None:
            known = desk.past.job(target.job) is not None
            shown = "Job/step already completing or completed" if known else INVALID
            errors += f"{shown} for job {target.job}\n"
        elif not call.peer.may_touch(job.spec.user):
            errors += f"Access/permission denied for job {target.job}\n"
        else:
            commands += [make(target, index) for index in target.indices or (-1,)]

    def done(results: list[Result]) -> None:
        text = errors
        for command, result in zip(commands, results, strict=True):
            if isinstance(result, Refused):
                text += f"{result.what}; {result.cure} for job {getattr(command, 'job', '')}\n"
        call.answer(err=text, code=int(bool(text)))

    desk.commands_of(call, commands, done)


def hold(desk: Desk, call: Call, rest: list[str], _told: Told) -> None:
    wishes(desk, call, rest, lambda target, _: cmd.Hold(target.job, call.peer.user))


def release(desk: Desk, call: Call, rest: list[str], _told: Told) -> None:
    wishes(desk, call, rest, lambda target, _: cmd.Release(target.job, call.peer.user))


def requeue(desk: Desk, call: Call, rest: list[str], _told: Told) -> None:
    words = [word for word in rest if word.lower() != "incomplete"]
    wishes(desk, call, words, lambda target, index: cmd.Requeue(target.job, index, call.peer.user))


def requeue_hold(desk: Desk, call: Call, rest: list[str], told: Told) -> None:
    del told
    for target in targets(desk, rest):
        if target.job in desk.world.jobs and call.peer.may_touch(desk.world.jobs[target.job].spec.user):
            desk.command(call, cmd.Requeue(target.job, -1, call.peer.user), lambda _: None)
    wishes(desk, call, rest, lambda target, _: cmd.Hold(target.job, call.peer.user))


def suspend(desk: Desk, call: Call, rest: list[str], _told: Told) -> None:
    wishes(desk, call, rest, lambda target, index: cmd.Suspend(target.job, index, call.peer.user))


def resume(desk: Desk, call: Call, rest: list[str], _told: Told) -> None:
    wishes(desk, call, rest, lambda target, index: cmd.Resume(target.job, index, call.peer.user))


def write(desk: Desk, call: Call, rest: list[str], _told: Told) -> None:
    if len(rest) < 2 or rest[0].lower() != "batch_script":
        raise FaultError("invalid entity for keyword:write\n")
    job, script = script_of(desk, call, rest[1])
    if len(rest) > 2 and rest[2] == "-":
        call.answer(script)
        return
    path = rest[2] if len(rest) > 2 else f"slurm-{job}.sh"
    call.answer(f"batch script for job {job} written to {path}\n", then={"do": "write", "path": path, "text": script})


# -- update --------------------------------------------------------------------------------------------------


def update(desk: Desk, call: Call, rest: list[str], told: Told) -> None:
    pairs = {word.partition("=")[0].lower(): word.partition("=")[2] for word in rest}
    if "nodename" in pairs:
        update_node(desk, call, pairs)
    elif "jobid" in pairs or "job" in pairs or "jobname" in pairs:
        update_job(desk, call, pairs, told)
    else:
        raise FaultError("No valid entity in update command\n")


def update_node(desk: Desk, call: Call, pairs: dict[str, str]) -> None:
    if not call.peer.is_admin:
        raise FaultError("slurm_update error: Access/permission denied\n")
    state = pairs.get("state", "").lower()
    try:
        names = expand(pairs["nodename"])
    except HostlistError:
        names = [pairs["nodename"]]
    if any(name not in desk.world.nodes for name in names):
        raise FaultError("slurm_update error: Invalid node name specified\n")
    if state in DRAINS:
        if not pairs.get("reason"):
            raise FaultError("You must specify a reason when DOWNING a node. Request denied\n")
        to, why = NodeState.DRAINING, pairs["reason"].strip("'\"")
    elif state in RESUMES:
        to, why = NodeState.UP, ""
    elif not state:
        call.answer()
        return
    else:
        raise FaultError(f"Invalid input: state={state}\nRequest aborted\n")
    commands: list[Command] = [cmd.SetNodeState(name, to, why) for name in names]
    desk.commands_of(call, commands, lambda results: call.say(first_refusal(results)))


def first_refusal(results: list[Result]) -> Answer:
    for result in results:
        if isinstance(result, Refused):
            return Answer(err=f"slurm_update error: {result.what}; {result.cure}\n", code=1)
    return Answer()


def update_job(desk: Desk, call: Call, pairs: dict[str, str], _told: Told) -> None:
    """Of a job that waits; and whether it is held."""
    named = pairs.get("jobid", pairs.get("job", ""))
    words = [named] if named else [f"name={pairs['jobname']}"]
    for target in targets(desk, words):
        if target.job not in desk.world.jobs:
            raise FaultError(f"{INVALID} for job {target.job}\n")
    other = {name: value for name, value in pairs.items() if name not in OF_WHICH}
    if pairs.get("priority") == "0":
        hold(desk, call, words, {})
    elif "priority" in pairs or not other:
        release(desk, call, words, {})
    else:
        wishes(desk, call, words, lambda target, _: changed(desk, call, target.job, other))


def changed(desk: Desk, call: Call, job: int, pairs: dict[str, str]) -> Command:
    spec = desk.world.jobs[job].spec
    for name, value in pairs.items():
        change = CHANGES.get(name)
        if change is None:
            text = f"{name} of a job that is there cannot be changed; cancel it and submit it anew"
            raise FaultError(f"slurm_update error: {text}\n")
        try:
            spec = change(desk, spec, value)
        except ValueError:
            raise FaultError(f"Invalid input: {name}={value}\nRequest aborted\n") from None
    return cmd.Change(job, spec, call.peer.user)


def nothing(_desk: Desk, call: Call, _rest: list[str], _told: Told) -> None:
    call.answer()


def not_there(_desk: Desk, _call: Call, _rest: list[str], _told: Told) -> None:
    raise FaultError("slurm_error: this is not there; see docs/slurm.md\n")


ACTS: dict[str, Act] = {
    "show": show,
    "hold": hold,
    "uhold": hold,
    "release": release,
    "requeue": requeue,
    "requeuehold": requeue_hold,
    "suspend": suspend,
    "resume": resume,
    "update": update,
    "ping": ping,
    "version": version,
    "write": write,
    "reconfigure": nothing,
    "notify": not_there,
    "create": not_there,
    "delete": not_there,
    "top": not_there,
    "shutdown": not_there,
    "reboot": not_there,
}
