"""What a durable job costs: user and system time of the whole process tree, per /bin/true, two at a time.

Ours is server, keeper, launcher and the jobs, from the first submission until the last exit code is on disk. A
job counts when the history has its code. The rivals are a loop in C that only spawns and waits, and HyperQueue.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.kit import Plan, process
from bench.live import TRUE, Server, cpu_s
from bench.rows import Bound, MissingError, Pair, Row, compare, skipped

AT_ONCE = 2
WARM_UP = 200
BARE = Path(__file__).with_name("bare.c")
HYPERQUEUE = Path(__file__).with_name("hyperqueue_child.py")


def run(plan: Plan) -> list[Row]:
    jobs = plan.pick(2000, 300)
    bare: list[Pair] = []
    array: list[Pair] = []
    theirs: list[Pair] = []
    has_rival = importlib.util.find_spec("hyperqueue") is not None
    with (
        tempfile.TemporaryDirectory() as folder,
        Server("--nodes", "1", "--cpus", str(AT_ONCE), "--memory", "4G") as server,
    ):
        program = compiled(folder)
        singles(server, WARM_UP)
        for number in plan.each_round():
            floor = of_command([program, str(jobs), str(AT_ONCE)]) / jobs
            ours, tasks = singles(server, jobs), one_array(server, jobs)
            bare.append((ours, floor))
            array.append((tasks, floor))
            if has_rival:
                theirs.append((ours, hyperqueue(jobs)))
            said = f", HyperQueue {theirs[-1][1] * 1e6:.0f}" if theirs else ""
            plan.say(f"round {number}: {ours * 1e6:.0f} us a job, {tasks * 1e6:.0f} a task, C {floor * 1e6:.0f}{said}")
    return [
        compare("live/cpu-per-job", "us", micros(bare), "bare C spawn loop", Bound("at most", 3)),
        compare("live/cpu-per-task", "us", micros(array), "bare C spawn loop", note="one array of as many tasks"),
        compare("live/cpu-vs-hyperqueue", "us", micros(theirs), "HyperQueue", Bound("at most", 0.8)) if theirs
        else skipped("live/cpu-vs-hyperqueue", "HyperQueue is not installed: `make bench` installs it"),
    ]  # fmt: skip


def micros(pairs: list[Pair]) -> list[Pair]:
    return [(ours * 1e6, rival * 1e6) for ours, rival in pairs]


def singles(server: Server, jobs: int) -> float:
    """Seconds of CPU time a job, of jobs submitted each as its own."""
    before = cpu_s(server.pids())
    done = server.client.status()["ended"] + jobs
    ids = server.client.submit_many(TRUE, jobs)
    server.client.wait(lambda status: status["ended"] >= done)
    used = cpu_s(server.pids()) - before
    return used / read_back(server, ids[0], ids[-1], jobs)


def one_array(server: Server, tasks: int) -> float:
    before = cpu_s(server.pids())
    done = server.client.status()["ended"] + tasks
    job = server.client.ask("POST", "/v1/jobs", {**TRUE, "array": f"0-{tasks - 1}"})["id"]
    server.client.wait(lambda status: status["ended"] >= done)
    used = cpu_s(server.pids()) - before
    return used / read_back(server, job, job, tasks)


def read_back(server: Server, first: int, last: int, expected: int) -> int:
    """How many of them the history has with their exit code."""
    jobs = server.client.ask("GET", f"/v1/jobs?all=1&job={','.join(map(str, range(first, last + 1)))}")["jobs"]
    done = len([row for row in jobs if row.get("exit_code") == 0])
    assert done == expected, f"{done} of {expected} jobs have their exit code"
    return done


def compiled(folder: str) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        raise MissingError("there is no C compiler: the bare spawn loop cannot be built")
    program = f"{folder}/bare"
    subprocess.run([compiler, "-O2", "-o", program, str(BARE)], check=True)
    return program


def of_command(command: list[str]) -> float:
    """Seconds of CPU time of it and of all it waited for."""
    pid = os.posix_spawn(command[0], command, os.environ)
    _, status, usage = os.wait4(pid, 0)
    assert status == 0, f"{command} failed"
    return usage.ru_utime + usage.ru_stime


def hyperqueue(jobs: int) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        done = process([sys.executable, "-P", str(HYPERQUEUE), str(jobs), str(AT_ONCE)], cwd=scratch)
    cpu: float = json.loads(done.out.splitlines()[-1])["cpu_s"]  # before it, HyperQueue tells of its own
    return cpu / jobs
