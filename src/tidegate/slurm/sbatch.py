"""`sbatch`: a script and its `#SBATCH` lines become a job."""

import os
import posixpath

from tidegate.api.live import Result
from tidegate.model import commands as cmd
from tidegate.model.commands import Refused
from tidegate.model.events import JobSubmitted
from tidegate.model.jobs import Work
from tidegate.model.slurm import SlurmKind
from tidegate.slurm import getopt
from tidegate.slurm.ask import NEVER, Asking, refused
from tidegate.slurm.desk import VERSION, Answer, Call, Desk
from tidegate.slurm.forecast import test_only
from tidegate.slurm.wish import TABLES, Wish, directives, from_variables, wish_of
from tidegate.slurm.words import FaultError, fault

USAGE = "Usage: sbatch [OPTIONS(0)...] [ : [OPTIONS(N)...]] script(0) [args(0)...]\n"
WRAP = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{}\n"
NO_SCRIPT = (
    "This does not look like a batch script.  The first",
    "line must start with #! followed by the path to an interpreter.",
    "For instance: #!/bin/sh",
)
DOS = ("Batch script contains DOS line breaks (\\r\\n)", "instead of expected UNIX line breaks (\\n).")


def sbatch(desk: Desk, call: Call) -> None:
    given, rest = getopt.parse("sbatch", call.words, TABLES["sbatch"], ordered=True)
    told = dict(given)
    if "version" in told or "help" in told or "usage" in told:
        call.answer(f"{VERSION}\n" if "version" in told else USAGE)
        return
    script, path, name = "", "", "wrap"
    if "wrap" in told:
        if rest:
            raise fault("sbatch", "Script arguments not permitted with --wrap option", code=1)
        script = WRAP.format(told["wrap"])
    else:
        file = rest[0] if rest else ""
        if not call.is_fed:
            call.answer(then={"do": "read", "path": file})
            return
        script = text_of(call.given)
        name = posixpath.basename(file) if file and file != "/dev/stdin" else "sbatch"
        path = posixpath.join(call.cwd, file) if file else ""
    in_script, _ = getopt.parse("sbatch", directives(script), TABLES["sbatch"], ordered=False)
    wish = wish_of("sbatch", in_script + from_variables("sbatch", call.env) + given, call.now)
    asking = Asking(desk, call, wish, SlurmKind.BATCH, name)
    submit = asking.submit(rest[1:], script, path)
    missing = missing_folders(submit.spec.work)
    if missing and not call.has_made:
        call.answer(then={"do": "make", "folders": missing})
        return
    if wish.has("test-only"):
        call.say(test_only(desk.world, submit, call.now))
        return
    desk.command(call, submit, lambda result: submitted(desk, call, asking, submit, result))


def text_of(octets: bytes) -> str:
    """FaultError for what is no script."""
    if not octets:
        raise fault("sbatch", "Batch script is empty!")
    if not octets.strip():
        raise fault("sbatch", "Batch script contains only whitespace!")
    if not octets.startswith(b"#!"):
        raise fault("sbatch", *NO_SCRIPT)
    if b"\0" in octets:
        text = "The Slurm controller does not allow scripts that contain a NULL character '\\0'."
        raise fault("sbatch", text)
    if b"\r\n" in octets:
        raise fault("sbatch", *DOS)
    return octets.decode("utf-8", "replace")


def missing_folders(work: Work | None) -> list[str]:
    """Of the outputs, as far as their names are known before the job starts."""
    if work is None:
        return []
    folders = {posixpath.dirname(path) for path in (work.stdout, work.stderr) if path}
    return sorted(folder for folder in folders if folder and "%" not in folder and not os.path.isdir(folder))  # noqa: PTH112 (a text, as it came)


def submitted(desk: Desk, call: Call, asking: Asking, submit: cmd.Submit, result: Result) -> None:
    wish = asking.wish
    job = job_of_result(desk, wish, submit, result)
    if not asking.is_never:
        call.say(told(wish, job))
        return
    desk.command(call, cmd.Cancel(job, by=NEVER), lambda _: call.say(told(wish, job)))


def job_of_result(desk: Desk, wish: Wish, submit: cmd.Submit, result: Result) -> int:
    if isinstance(result, Refused):
        raise refused(wish, result)
    if not result:
        return desk.world.keys[submit.key][0]
    event = result[-1]
    assert isinstance(event, JobSubmitted), "a submission ends with its job"
    return event.job.id


def told(wish: Wish, job: int) -> Answer:
    clusters = wish.text("clusters")
    if wish.has("parsable"):
        out = f"{job};{clusters}\n" if clusters else f"{job}\n"
    elif wish.has("quiet"):
        out = ""
    else:
        out = f"Submitted batch job {job}" + (f" on cluster {clusters}" if clusters else "") + "\n"
    return Answer(out, then={"do": "wait", "job": job} if wish.has("wait") else None)


def wait(desk: Desk, call: Call) -> None:
    """For `--wait`: answered with the highest exit code of its tasks when the job is over, or to be asked again."""
    if len(call.words) != 1 or not call.words[0].isdecimal():
        raise FaultError("sbatch: error: which job is waited for is not said\n")
    job = int(call.words[0])

    def look() -> bool:
        if job in desk.world.jobs:
            return False
        endings = [ending for ending in desk.past.history.endings(job) if ending.final]
        codes = [ending.signal + 128 if ending.signal else ending.code for ending in endings]
        bad = any(ending.outcome != "completed" for ending in endings)
        call.answer(code=max([*codes, int(bad)], default=0) & 255)
        return True

    desk.wait_for(call, job, look)
