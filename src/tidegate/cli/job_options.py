"""The options that describe a job, for `submit`, `run` and the `#TIDE` lines of a script; and the body made of them."""

import os
import sys

from tidegate.cli.failure import FailureError, UsageError
from tidegate.cli.options import Command, Option, Options, at_most, choice, count, flag, read, whole
from tidegate.cli.values import (
    afters,
    cpus,
    interval,
    labels,
    lasting_place,
    moment,
    name,
    octets_of,
    pair,
    pattern,
    resource,
    retry_rules,
    time_limit,
)
from tidegate.wire.arrays import parse_array
from tidegate.wire.units import parse_duration, parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCRIPT_MAX = 4 << 20
DIRECTIVE = "#TIDE"
ENV_LEFT_OUT = frozenset({
    "_", "PWD", "OLDPWD", "SHLVL",  # of the shell that submitted
    "TIDEGATE_HOME", "TIDEGATE_SERVER", "TIDEGATE_TOKEN",  # a job finds its own server, and secrets are not stored
    "CUDA_VISIBLE_DEVICES",  # the server gives GPUs
    "INVOCATION_ID", "JOURNAL_STREAM", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "NOTIFY_SOCKET",  # of a unit
})  # fmt: skip
ENV_ALWAYS = ("HOME", "LOGNAME", "SHELL", "USER")
PATH_PLAIN = "/usr/local/bin:/usr/bin:/bin"


def array(text: str) -> str:
    parse_array(text)
    return text


CPUS_MAX = 1 << 20
MEMORY_MAX_MIB = 1 << 40
GPUS_MAX = 1 << 30
NODES_MAX = 1 << 24
RETRIES_MAX = 1000
TIME_MAX_MS = 1 << 53
TIME_MAX = "14892855w"
"""What the server takes; a test asks it."""
job_time = at_most(TIME_MAX_MS, time_limit, TIME_MAX)

SHAPE = (
    "what it needs",
    Option("--cpus -c", "N", "processors, on each node; may be a fraction (default 1)", at_most(CPUS_MAX, cpus)),
    Option(
        "--memory -m",
        "SIZE",
        "512M, 4G, 1.5T on each node; more ends the job (default: not limited)",
        at_most(MEMORY_MAX_MIB, parse_size, "1024P"),
    ),
    Option("--gpus -g", "N", "GPUs on each node", at_most(GPUS_MAX, whole)),
    Option("--gpu-model", "MODEL", "only GPUs of this model"),
    Option("--nodes -N", "N", "so many nodes, all at the same time", at_most(NODES_MAX, count)),
    Option("--resource", "NAME=N", "any other resource that nodes count", resource, many=True),
    Option("--where", "LABEL=VALUE[,...]", "only nodes with one of these values", labels, many=True),
    Option("--time -t", "DURATION", "limit: 90s, 2h, 1d12h; then it is ended (default 30d)", job_time),
    Option("--expected", "DURATION", "how long it will probably run; for planning only", job_time),
)
PLACE = (
    "where it stands",
    Option("--name -n", "NAME", "default: made of the command", name),
    Option("--queue -q", "NAME", "default: default", name),
    Option("--class", "NAME", "its class of service, as the policy names them", name),
    Option("--pool", "NAME", "which nodes; default: as the policy says", name),
    Option("--reservation", "NAME", "on what is reserved there, and while it is (tide reserve list)", name),
    Option("--after", "ID[:ok|any|fail]", "only when that job has ended so; several: 12,13:any", afters, many=True),
    Option("--begin", "TIME", "not before: +2h, 14:30, 2026-11-20T08:00", moment),
    Option("--deadline", "TIME", "ended by then, or never started", moment),
    Option("--tag", "NAME=VALUE", "shown and searchable", pair, many=True),
)
AGAIN = (
    "if it ends badly",
    Option("--retries", "N", "try again so often", at_most(RETRIES_MAX, whole)),
    Option("--retry-on", "KINDS", "exit, exit:75, exit:100-110, signal, signal:9, oom, timeout (default exit,signal)",
           retry_rules, many=True),
    Option("--backoff", "DURATION", "wait before the first retry, doubled for each other (default 1s)",
           at_most(TIME_MAX_MS, parse_duration, TIME_MAX)),
    Option("--losses", "N", "attempts lost with their node that are made again (default 3)",
           at_most(RETRIES_MAX, whole)),
    Option("--grace", "DURATION", "between being asked to end and being ended (default 30s)",
           at_most(TIME_MAX_MS, parse_duration, TIME_MAX)),
    Option("--notify", "COMMAND", "a shell command that is run when it has ended"),
)  # fmt: skip
SAVING = (
    "if it is ended before its time (docs/checkpoints.md)",
    Option("--checkpoint", "[=SIGNAL]", "it can save itself when asked: by a file, and by a signal such as USR2"),
    Option("--checkpoint-every", "DURATION", "how often it is asked (default: as the policy says)", interval),
    Option("--checkpoint-dir", "DIR", "where it saves, or s3://bucket/run-%j (default: in the home)", lasting_place),
    Option("--checkpoint-size", "SIZE", "about how much it writes, so that many do not write at once", parse_size),
    flag("--no-checkpoint", "it cannot, and may be begun anew all the same"),
)
SURROUNDINGS = (
    "its surroundings",
    Option("--cwd -d", "DIR", "default: where you are"),
    Option("--env -e", "NAME=VALUE", "set it; NAME alone: as it is here", str, many=True),
    Option("--export", "all|none", "none: a bare environment with what --env says (default all)",
           choice("all", "none"), default="all"),
    Option("--stdin -i", "FILE", "default: empty"),
)  # fmt: skip
OUTPUT = (
    "where output goes (default: a file that tide logs reads)",
    Option("--output -o", "PATTERN", "logs/%j.out; %j job, %a array index, %t attempt, %x name, %u user", pattern),
    Option("--error", "PATTERN", "standard error; default: where output goes; -: a file of its own", pattern),
    flag("--append", "add to the files that are there"),
)
MANY = (
    "many at once, and submitting safely",
    Option("--array -a", "INDICES", "a task an index: 0-999%50 (50 at once), 1,3,5-9:2", array),
    flag("--hold -H", "do not start it before tide release"),
    Option("--key -k", "KEY", "submitting again with the same key gives the same job", name),
)
JOB = SHAPE + PLACE + AGAIN + SAVING + SURROUNDINGS + OUTPUT

PLAIN = (
    ("cpus", "cpus"), ("memory", "memory_mib"), ("gpus", "gpus"), ("gpu_model", "gpu_model"), ("nodes", "nodes"),
    ("time", "time_ms"), ("expected", "expected_ms"), ("name", "name"), ("queue", "queue"), ("class", "class"),
    ("pool", "pool"), ("reservation", "reservation"), ("begin", "begin_ms"), ("deadline", "deadline_ms"),
    ("losses", "losses_max"), ("grace", "grace_ms"), ("notify", "notify"), ("append", "append"), ("array", "array"),
    ("hold", "held"), ("key", "key"), ("no_checkpoint", "starts_over"),
)  # fmt: skip
"""Options that the body has under this name, with the same value."""


def body_of(said: Options, command: list[str], script: str = "") -> "dict[str, Any]":
    """What POST /v1/jobs takes. Only what was said: the rest the server knows."""
    values = vars(said)
    if said.deadline is not None and said.time is None and said.expected is None:
        raise UsageError("--deadline: say with --time how long it may run, so that it is known when it must start")
    body = {field: values[dest] for dest, field in PLAIN if dest in said.given}
    body |= {"command": command, "cwd": folder_of(said), "umask": umask(), "env": environment_of(said)}
    if script:
        body["script"] = script
    if said.after:
        body["after"] = said.after
    for dest, field in (("tag", "tags"), ("where", "where"), ("resource", "resources")):
        if values[dest]:
            body[field] = dict(values[dest])
    if said.retries or said.retry_on or said.backoff is not None:
        body["retry"] = retry_of(said)
    saving = saving_of(said, body["cwd"])
    if saving is not None:
        body["checkpoint"] = saving
    if said.stdin:
        body["stdin"] = os.path.join(body["cwd"], said.stdin)
    if said.output:
        body["stdout"] = os.path.join(body["cwd"], said.output)
    if said.error:
        body["stderr"] = said.error if said.error == "-" else os.path.join(body["cwd"], said.error)
    body.setdefault("key", f"auto-{os.urandom(12).hex()}")  # so that a lost answer can be asked for again
    refuse_octets(body)
    return body


def retry_of(said: Options) -> "dict[str, Any]":
    if not said.retries:
        raise UsageError("--retry-on and --backoff say when and how soon; say how often too: --retries N")
    retry: dict[str, Any] = {"times": said.retries}
    if said.retry_on:
        retry["on"] = said.retry_on
    if said.backoff is not None:
        retry["backoff_ms"] = said.backoff
    return retry


def saving_of(said: Options, cwd: str) -> "dict[str, Any] | None":
    """Any of the options about checkpoints says that it can save itself."""
    words = {
        "signal": said.checkpoint,
        "every_ms": said.checkpoint_every,
        "where": said.checkpoint_dir and place_of(said.checkpoint_dir, cwd),
        "size_mib": said.checkpoint_size,
    }
    found = {field: value for field, value in words.items() if value}
    is_able = "checkpoint" in said.given or bool(found)
    if is_able and said.no_checkpoint:
        raise UsageError("--no-checkpoint says that the job cannot save itself, another option that it can; keep one")
    return found if is_able else None


def place_of(where: str, cwd: str) -> str:
    return where if "://" in where else os.path.join(cwd, where)


def folder_of(said: Options) -> str:
    try:
        here = os.getcwd()
    except OSError:
        raise FailureError("the folder you are in is gone; cd to one that is there, or give --cwd DIR") from None
    return os.path.normpath(os.path.join(here, said.cwd or ""))


def umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


def environment_of(said: Options) -> dict[str, str]:
    """What the job finds: this environment, less what belongs to this place, and what --env says."""
    if said.export == "none":
        env = {key: os.environ[key] for key in ENV_ALWAYS if key in os.environ} | {"PATH": PATH_PLAIN}
    else:
        env = {key: os.environ[key] for key in os.environ if key not in ENV_LEFT_OUT and not key.startswith("TIDE_")}
    for word in said.env:
        key, equals, value = word.partition("=")
        if not key:
            raise UsageError(f"--env: {word[:40]!r} has no name; write NAME=VALUE")
        if not equals and key not in os.environ:
            raise UsageError(f"--env: {word[:40]!r} is not set here; write NAME=VALUE, or NAME of one that is")
        env[key] = value if equals else os.environ[key]
    odd = sorted(key for key, value in env.items() if not is_text(key + value))
    if odd:
        print(f"tide: left out of the job's environment, being no UTF-8: {', '.join(map(ascii, odd))}", file=sys.stderr)
    return {key: value for key, value in env.items() if key not in odd}


def is_text(text: str) -> bool:
    """Whether it came from octets that are UTF-8; JSON can say no others."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def refuse_octets(body: "dict[str, Any]") -> None:
    for field, value in body.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and (not is_text(text) or "\0" in text):
                raise UsageError(f"{field}: {ascii(text)[:60]} is no UTF-8 text; rename it, or put it in a script")


def read_script(path: str, said: Options) -> str:
    """The text of a script; options on its `#TIDE` lines count where the command line says nothing."""
    try:
        octets = octets_of(path, SCRIPT_MAX + 1)
    except FileNotFoundError:
        raise FailureError(
            f"there is no file {path!r}; to submit a command write it after --: tide submit -- {path} ..."
        ) from None
    except OSError as error:
        raise FailureError(f"{path} cannot be read: {error.strerror}; give a script that can") from None
    if len(octets) > SCRIPT_MAX:
        raise FailureError(f"{path} is larger than {SCRIPT_MAX >> 20} MiB; put data into a file of its own")
    if b"\0" in octets:
        raise FailureError(f"{path} is no script; to run a program write it after --: tide submit -- {path} ...")
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        raise FailureError(f"{path} is not UTF-8; convert it, or run it after --: tide submit -- {path} ...") from None
    if not text.startswith("#!"):
        raise FailureError(f"{path} does not say what runs it; write #!/bin/sh, or another, as its first line")
    merge(said, directives_of(path, text))
    return text


def directives_of(path: str, text: str) -> Options:
    """What the `#TIDE` lines at the head of a script say: those before its first command."""
    said = Options()
    entries = tuple(entry for entry in JOB + MANY if isinstance(entry, Option))
    for option in entries:
        said.__dict__[option.dest] = [] if option.many else option.default
    known = Command("submit", "", lambda _: 0, *entries)
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            break
        if line.partition(" ")[0].rstrip() != DIRECTIVE:
            continue
        try:
            read(known, split(line[len(DIRECTIVE) :]), said)
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: {error}; close the quotes") from None
        except UsageError as error:
            raise UsageError(f"{path}, line {number}: {str(error).removeprefix('tide submit: ')}") from None
        if said.words:
            raise UsageError(
                f"{path}, line {number}: {said.words[0]!r} is no option; write such as {DIRECTIVE} --cpus 4"
            )
    return said


def split(line: str) -> list[str]:
    if "'" in line or '"' in line or "\\" in line:
        from shlex import split as shell_split  # late: it takes `re`

        return shell_split(line, comments=True)
    words = line.split()
    return words[: next((at for at, word in enumerate(words) if word.startswith("#")), len(words))]


def merge(said: Options, script: Options) -> None:
    """The command line wins; what may be repeated is said by both, the script first."""
    for dest in script.given:
        values = vars(said)
        if isinstance(values[dest], list):
            values[dest][:0] = vars(script)[dest]
        elif dest not in said.given:
            values[dest] = vars(script)[dest]
    said.given |= script.given
