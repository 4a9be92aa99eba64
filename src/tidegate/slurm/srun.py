"""`srun` and `salloc`: what is asked becomes an allocation, or a step of the one it is asked in; the client runs it."""

import posixpath
from typing import Any

from tidegate.api.live import Result
from tidegate.model.base import ARRAY_BITS
from tidegate.model.jobs import Job
from tidegate.model.slurm import SlurmKind
from tidegate.slurm import getopt
from tidegate.slurm.ask import Asking, exported
from tidegate.slurm.desk import VERSION, Call, Desk
from tidegate.slurm.getopt import Given
from tidegate.slurm.sbatch import job_of_result
from tidegate.slurm.squeue import jobs_named
from tidegate.slurm.steps import Step
from tidegate.slurm.wish import TABLES, Wish, from_variables, wish_of
from tidegate.slurm.words import FaultError, fault, uid_of
from tidegate.wire.hostlist import compress
from tidegate.wire.slurm import ALLOC_NAME, Layout, counts, fill, raw_id, shown_id, variables
from tidegate.world.records import Run

MEET_AT = "TIDE_SRUN_AT"
"""In the environment of a job: where its client waits for it."""
USAGE = "Usage: {} [OPTIONS(0)... [executable(0) [args(0)...]]]\n"
RANKS_MAX = 4096
NOT_FOR_STEPS = frozenset(
    {"job-name", "cpus-per-task", "nodes", "mem", "mem-per-cpu", "time", "partition", "qos", "account"}
)
"""Of variables that an allocation sets: what it is, not what a step is to be."""


def srun(desk: Desk, call: Call) -> None:
    given, command = getopt.parse("srun", call.words, TABLES["srun"], ordered=True)
    told = dict(given)
    if {"version", "help", "usage"} & told.keys():
        call.answer(f"{VERSION}\n" if "version" in told else USAGE.format("srun"))
        return
    if not command:
        raise fault("srun", "Must specify executable. (Use --help for more information.)")
    inside = allocation(desk, call, told)
    if inside is None:
        allocate(desk, call, given, SlurmKind.RUN, posixpath.basename(command[0]), command)
    else:
        step(desk, call, given, command, *inside)


def salloc(desk: Desk, call: Call) -> None:
    given, command = getopt.parse("salloc", call.words, TABLES["salloc"], ordered=True)
    told = dict(given)
    if {"version", "help", "usage"} & told.keys():
        call.answer(f"{VERSION}\n" if "version" in told else USAGE.format("salloc"))
        return
    allocate(desk, call, given, SlurmKind.ALLOC, ALLOC_NAME, command)


# -- an allocation -------------------------------------------------------------------------------------------


def allocation(desk: Desk, call: Call, told: dict[str, str]) -> tuple[Job, int, Run] | None:
    """The job in which it is asked, or that is named; FaultError for one that is not there."""
    text = told.get("jobid", "") or call.env.get("SLURM_JOB_ID", "") or call.env.get("SLURM_JOBID", "")
    if not text:
        return None
    job_id, index = jobs_named(desk, text)[0]
    job = desk.world.jobs.get(job_id)
    if index < 0 and job is not None and job.spec.array is not None:
        index = job.spec.array.indices[-1]  # it has the number of the array
    run = desk.world.runs.get(job_id << ARRAY_BITS | max(0, index)) if job is not None else None
    if job is None or run is None:
        raise fault("srun", f"Unable to confirm allocation for job {text}: Invalid job id specified",
                    f"Check SLURM_JOB_ID environment variable. Expired or invalid job {text}")  # fmt: skip
    if not call.peer.may_touch(job.spec.user):
        raise fault("srun", f"Unable to create step for job {text}: Access/permission denied")
    return job, max(0, index), run


def allocate(desk: Desk, call: Call, given: Given, kind: SlurmKind, name: str, command: list[str]) -> None:
    tool = call.name
    meet_at = call.env.get(MEET_AT, "")
    if not meet_at:
        wants_pty = any(option == "pty" for option, _ in given)
        call.answer(then={"do": "meet", "pty": wants_pty, "command": command})
        return
    wish = wish_of(tool, from_variables(tool, outside(call.env)) + given, call.now)
    if wish.has("immediate") and not can_start_now(desk):
        raise fault(tool, "Unable to allocate resources: Requested nodes are busy")
    asking = Asking(desk, call, wish, kind, name)
    inner = [f"{call.place}/{tool}", *(call.words if kind is SlurmKind.RUN else ["--tide-hold"])]
    submit = asking.submit(inner, "", " ".join(command), {MEET_AT: meet_at})
    if wish.has("test-only"):
        from tidegate.slurm.forecast import test_only

        call.say(test_only(desk.world, submit, call.now))
        return

    def submitted(result: Result) -> None:
        job = job_of_result(desk, wish, submit, result)
        call.answer(then={"do": "await", "job": job, "quiet": wish.has("quiet")})

    desk.command(call, submit, submitted)


def outside(env: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not name.startswith("SLURM_JOB")}


def can_start_now(desk: Desk) -> bool:
    """Nobody waits: what fits starts at once."""
    world = desk.world
    return len(world.jobs) == len(world.runs) or any(not pool.promised for pool in world.pools.values())


# -- a step --------------------------------------------------------------------------------------------------


class Ranks:
    """Which task is on which node."""

    def __init__(self, layout: Layout, wish: Wish, job: Job) -> None:
        here = len(layout.names)
        wanted = wish.tasks or wish.tasks_per_node * min(here, wish.nodes or here)
        self.nodes = min(here, wish.nodes or here)
        total = wanted or (sum(layout.tasks) if not wish.nodes or wish.nodes == here else self.nodes)
        if not layout.said.tasks and not wanted and not wish.nodes:
            total = here
        self.nodes = min(self.nodes, total)
        self.on_node = self._spread(layout, total, wish)
        self.names = layout.names[: self.nodes]
        self.cpus = layout.cpus[: self.nodes]
        self.per_task = wish.cpus_per_task or 1
        self.total = total
        need = total * self.per_task
        if total > RANKS_MAX or (need > sum(layout.cpus) and not (wish.has("overcommit") or wish.has("overlap"))):
            raise fault("srun", f"Unable to create step for job {job.id}: More processors requested than permitted")

    def _spread(self, layout: Layout, total: int, wish: Wish) -> list[int]:
        """In blocks: as the allocation has its tasks, else evenly as far as processors go."""
        if wish.tasks_per_node:
            left, found = total, []
            for _ in range(self.nodes):
                found.append(min(left, wish.tasks_per_node))
                left -= found[-1]
            return found
        if total == sum(layout.tasks) and self.nodes == len(layout.names):
            return layout.tasks
        each, rest = divmod(total, self.nodes)
        return [each + (place < rest) for place in range(self.nodes)]

    def places(self, *, cyclic: bool) -> list[tuple[int, int]]:
        """(node, place on it) by rank."""
        places = [(node, local) for node, tasks in enumerate(self.on_node) for local in range(tasks)]
        return sorted(places, key=lambda place: place[::-1]) if cyclic else places


def step(desk: Desk, call: Call, given: Given, command: list[str], job: Job, index: int, run: Run) -> None:
    settings = [one for one in from_variables("srun", call.env) if one[0] not in NOT_FOR_STEPS]
    wish = wish_of("srun", settings + given, call.now)
    layout = Layout(job, run.nodes)
    ranks = Ranks(layout, wish, job)
    name = dict(given).get("job-name") or posixpath.basename(command[0])
    begun = desk.steps.begin(
        Step(
            job.id, run.task, run.attempt, 0, name, ranks.total, ranks.total * ranks.per_task,
            compress(ranks.names), call.now,
        )
    )  # fmt: skip
    ids = (uid_of(job.spec.user), uid_of(job.spec.user))
    told = variables(job, index, run.attempt, run.nodes, ids, str(desk.past.home))
    told |= step_variables(begun, ranks, call, wish)
    folder = posixpath.normpath(posixpath.join(call.cwd, wish.text("chdir") or "."))
    call.answer(then={
        "do": "step", "task": run.task, "attempt": run.attempt, "step": begun.number, "argv": command, "cwd": folder,
        "shown": f"{shown_id(job, index)}.{begun.number}", "set": told, "env": environment_of(wish, call),
        "ranks": [rank_of(place, rank, ranks, wish, folder, job, index, run, begun)
                  for rank, place in enumerate(ranks.places(cyclic=wish.text("distribution").startswith("cyclic")))],
        "label": wish.has("label"), "kill": wish.has("kill-on-bad-exit") and wish.text("kill-on-bad-exit") != "0",
        "wait_s": int(wish.text("wait")) if wish.text("wait").isdecimal() else 0, "input": input_of(wish, folder),
        "pty": wish.has("pty"), "append": wish.text("open-mode") == "append", "quiet": wish.has("quiet"),
        "pmi": wish.text("mpi") not in {"none", "pmix"}, "on_node": ranks.on_node,
        "multi": wish.has("multi-prog"), "quit": wish.has("quit-on-interrupt"),
    })  # fmt: skip


def step_variables(begun: Step, ranks: Ranks, call: Call, wish: Wish) -> dict[str, str]:
    nodes, number, total = compress(ranks.names), str(begun.number), str(ranks.total)
    told = {
        "SLURM_DISTRIBUTION": wish.text("distribution") or "block",
        "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
        "SLURM_NNODES": str(ranks.nodes),
        "SLURM_NPROCS": total,
        "SLURM_NTASKS": total,
        "SLURM_SRUN_COMM_HOST": "127.0.0.1",
        "SLURM_SRUN_COMM_PORT": "0",
        "SLURM_STEPID": number,
        "SLURM_STEP_ID": number,
        "SLURM_STEP_LAUNCHER_PORT": "0",
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_NUM_NODES": str(ranks.nodes),
        "SLURM_STEP_NUM_TASKS": total,
        "SLURM_STEP_TASKS_PER_NODE": counts(ranks.on_node),
        "SLURM_TASKS_PER_NODE": counts(ranks.on_node),
        "SLURM_UMASK": f"{call.umask:04o}",
    }
    if "SLURM_JOB_CPUS_PER_NODE" in call.env:
        told["SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0"] = call.env["SLURM_JOB_CPUS_PER_NODE"]
    if wish.cpus_per_task:
        told["SLURM_CPUS_PER_TASK"] = str(wish.cpus_per_task)
    if wish.tasks_per_node:
        told["SLURM_NTASKS_PER_NODE"] = str(wish.tasks_per_node)
    return told


def rank_of(
    place: tuple[int, int],
    rank: int,
    ranks: Ranks,
    wish: Wish,
    folder: str,
    job: Job,
    index: int,
    run: Run,
    begun: Step,
) -> dict[str, Any]:
    node, local = place
    first = sum(ranks.on_node[:node])
    name = ranks.names[node]
    gtids = range(first, first + ranks.on_node[node])

    def path(option: str) -> str:
        text = wish.text(option)
        if not text or text in {"all", "-"} or text.isdecimal():
            return ""
        if text == "none":
            return "/dev/null"
        text = fill(text, job, index, run.nodes, str(begun.number), str(rank), node)
        return posixpath.join(folder, text)

    only = wish.text("output")
    out = "/dev/null" if only.isdecimal() and int(only) != rank else path("output")
    return {
        "node": name, "out": out, "err": path("error"),
        "set": {
            "SLURMD_NODENAME": name, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local),
            "SLURM_NODEID": str(node), "SLURM_GTIDS": ",".join(map(str, gtids)), "SLURM_TOPOLOGY_ADDR": name,
            "SLURM_CPUS_ON_NODE": str(ranks.cpus[node]),
        },
    }  # fmt: skip


def input_of(wish: Wish, folder: str) -> str:
    """`all`, `none`, a rank, or a path."""
    text = wish.text("input")
    if text in {"", "all", "-"}:
        return "all"
    return text if text == "none" or text.isdecimal() else posixpath.join(folder, text)


def environment_of(wish: Wish, call: Call) -> dict[str, str] | None:
    """None: all of the client's, which it has; else what `--export` lets through of it."""
    wanted = wish.text("export")
    words = wanted.split(",")
    if not wanted or wanted.upper() == "ALL":
        return None
    found = (
        dict(call.env)
        if words[0].upper() == "ALL"
        else {name: value for name, value in call.env.items() if name in {"PATH", "HOME", "USER", "LOGNAME", "SHELL"}}
    )
    found.update(exported(",".join(words[1:]) if words[0].upper() == "ALL" else wanted, call.env))
    return found


def step_end(desk: Desk, call: Call) -> None:
    """Told by the client: task, attempt, step, exit code, signal, processor time and peak of memory."""
    try:
        task, attempt, number, code, signal, cpu_ms, peak_kib = [int(word) for word in call.words]
    except ValueError:
        raise FaultError("srun: error: what ended is not said\n") from None
    job = desk.world.jobs.get(task >> ARRAY_BITS)
    if job is not None and call.peer.may_touch(job.spec.user):
        desk.steps.end(task, attempt, number, call.now, (code, signal, cpu_ms, peak_kib))
    call.answer()


def job_state(desk: Desk, call: Call) -> None:
    """For a client that waits for its allocation: its state, or how it ended; answered when it is over, or later."""
    job_id = int(call.words[0]) if call.words and call.words[0].isdecimal() else 0
    job = desk.world.jobs.get(job_id) or desk.past.job(job_id)
    if job is None or not call.peer.may_touch(job.spec.user):
        raise FaultError("Invalid job id specified\n")

    def look() -> bool:
        if job_id in desk.world.jobs:
            return False
        endings = [ending for ending in desk.past.history.endings(job_id) if ending.final]
        outcome = str(endings[-1].outcome) if endings else "lost"
        why = endings[-1].why if endings else ""
        call.answer(then={"do": "over", "outcome": outcome, "why": why, "raw": raw_id(job, 0)})
        return True

    desk.wait_for(call, job_id, look)
