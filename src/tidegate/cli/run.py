"""`tide run`: submits a command, shows its output while it runs, and ends as it ended."""

import os
import signal
import sys
import time

from tidegate.cli.client import GoneError
from tidegate.cli.failure import FailureError
from tidegate.cli.follow import Follower, to
from tidegate.cli.ids import shown
from tidegate.cli.job_options import JOB, body_of
from tidegate.cli.options import Command, Options, flag
from tidegate.cli.outcome import exit_code, told_end
from tidegate.cli.server import HOME, RefusedError, Server
from tidegate.cli.submit import command_of
from tidegate.wire.states import COMPLETED, FAILED, HELD, WAITING

PATIENT_S = 1.5
"""A job that has not started by then: the person is told why."""


class Wishes:
    """What signals ask for. The handlers note it, and the loop acts between two looks at the output."""

    def __init__(self) -> None:
        self.job = 0  # not yet one
        self.interrupts = 0
        self.terminated = False

    def listen(self) -> None:
        signal.signal(signal.SIGINT, self._on_interrupt)
        signal.signal(signal.SIGTERM, self._on_terminate)

    def _on_interrupt(self, *_: object) -> None:
        self.interrupts += 1
        if self.interrupts > 2:  # at once, whatever it stands in
            raise FailureError(f"left; tide show {self.job} says how job {self.job} is" if self.job else "left")

    def _on_terminate(self, *_: object) -> None:
        self.terminated = True


class Watcher:
    """What happens at each tick while the job runs: signals, and a word when it waits."""

    def __init__(self, follower: Follower, wishes: Wishes) -> None:
        self.follower = follower
        self.server = follower.server
        self.job = wishes.job
        self.wishes = wishes
        self.asked = False
        self.cancelled = False
        self.waits_until = time.monotonic() + PATIENT_S if sys.stderr.isatty() else None

    def tick(self) -> None:
        self.say_why_it_waits()
        wishes = self.wishes
        if wishes.interrupts == 1 and not self.asked:
            self.asked = True
            say(f"again to cancel job {self.job} (it goes on otherwise; tide logs -f {self.job} shows it)")
        if (wishes.interrupts > 1 or wishes.terminated) and not self.cancelled:
            self.cancel()

    def cancel(self) -> None:
        try:
            self.server.call_once("POST", f"/v1/jobs/{self.job}/cancel", {})
        except GoneError:
            return  # asked again at the next tick: a server that restarts shall hear of it
        except RefusedError as error:
            say(str(error))
        else:
            say(f"cancelled job {self.job}; waiting for its end")
        self.cancelled = True

    def say_why_it_waits(self) -> None:
        if self.waits_until is None or time.monotonic() < self.waits_until:
            return
        self.waits_until = None
        job = self.follower.job
        if job.get("state") in {HELD, WAITING}:
            reason = f": {job['reason']}" if job.get("reason") else ""
            say(f"job {self.job} waits{reason}")


def say(text: str) -> None:
    print(f"tide: {text}", file=sys.stderr, flush=True)


def run(options: Options) -> int:
    command = command_of(options, "run")
    apart = not options.output and not same_file(1, 2)
    body = body_of(options, command)
    if apart and "stderr" not in body:
        body["stderr"] = "-"
    server = Server(options)
    wishes = Wishes()
    wishes.listen()  # from here on there may be a job: nothing leaves it without a word
    number = wishes.job = server.call("POST", "/v1/jobs", None, body)["id"]
    streams = {"stdout": to(1), "stderr": to(2)} if "stderr" in body else {"stdout": to(1)}
    follower = Follower(server, (number, -1), streams)
    watcher = Watcher(follower, wishes)
    job = follower.run(watcher.tick)
    if options.json:
        from tidegate.cli.quick_json import dumps

        print(dumps(job), file=sys.stderr)
    elif job["state"] != COMPLETED and (job["state"] != FAILED or job.get("signal") or job.get("reason")):
        say(told_end(job, shown(number)))
    if wishes.interrupts > 1:
        return 130
    return exit_code(job)


def same_file(first: int, second: int) -> bool:
    """Whether both go to one place, such as one terminal: then their order is kept by one file."""
    try:
        one, other = os.fstat(first), os.fstat(second)
    except OSError:
        return True
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


RUN = Command(
    "run",
    "Runs a command as a job, here: shows its output as it comes and exits with its code (128 + the signal that "
    "ended it). Ctrl-C asks, and a second one cancels the job; SIGTERM cancels it. What you type is not passed on "
    "(--stdin FILE gives it input).",
    run,
    *JOB,
    "which server, and what is said at the end",
    HOME,
    flag("--json", "its record as JSON, on standard error"),
    words="-- COMMAND...",
    most=-1,
    tail=True,
    examples="""
tide run -- make -j4
tide run --cpus 4 --gpus 1 --time 30m -- python train.py
tide run --memory 2G -- ./memory-hungry > out.txt
""",
)
COMMANDS = {"run": RUN}
