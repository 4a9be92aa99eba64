"""What somebody asks of sbatch, srun or salloc: their options, from the command line, `#SBATCH` lines and variables."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tidegate.slurm import getopt
from tidegate.slurm.getopt import Given
from tidegate.slurm.words import OPTION_FAULT, FaultError, fault, limit_ms, memory_mib, moment_ms, signal_number

COMMON = """
    account=,A acctg-freq= bb= bbf= begin=,b chdir=,D cluster-constraint= clusters=,M comment= constraint=,C
    container= contiguous core-spec=,S cores-per-socket= cpu-freq= cpus-per-gpu= cpus-per-task=,c deadline=
    delay-boot= dependency=,d distribution=,m exclude=,x exclusive? extra-node-info=,B get-user-env? gid=
    gpu-bind= gpu-freq= gpus=,G gpus-per-node= gpus-per-socket= gpus-per-task= gres= gres-flags= help,h hint= hold,H
    job-name=,J licenses=,L mail-type= mail-user= mcs-label= mem= mem-bind= mem-per-cpu= mem-per-gpu= mincpus=
    network= nice? nodefile=,F nodelist=,w nodes=,N no-kill?,k ntasks=,n ntasks-per-core= ntasks-per-gpu=
    ntasks-per-node= ntasks-per-socket= overcommit,O oversubscribe,s partition=,p power= prefer= priority= profile=
    quiet,Q reboot reservation= signal= sockets-per-node= spread-job switches= thread-spec= threads-per-core=
    time=,t time-min= tmp= tres-per-task= uid= usage use-min-nodes verbose,v version,V wait-all-nodes= wckey=
"""
BATCH = """
    array=,a batch= error=,e export= export-file= ignore-pbs input=,i kill-on-invalid-dep= no-requeue open-mode=
    output=,o parsable propagate? qos=,q requeue test-only wait,W wrap=
"""
RUN = """
    accel-bind= bcast? bcast-exclude= compress? cpu-bind= cpu_bind= debugger-test disable-status,X epilog= error=,e
    exact export= het-group= immediate?,I input=,i interactive kill-on-bad-exit?,K label,l launch-cmd? mpi=
    msg-timeout= multi-prog no-allocate,Z open-mode= output=,o overlap preserve-env,E prolog= propagate? pty?
    qos= quit-on-interrupt,q relative=,r resv-ports? send-libs? slurmd-debug= task-epilog= task-prolog= test-only
    threads=,T unbuffered,u wait=,W whole x11? jobid= mem_bind=
"""
ALLOC = "bell no-bell no-shell immediate?,I kill-command?,K qos=,q wait=,W x11? jobid="
TABLES = {
    "sbatch": getopt.table(COMMON + BATCH),
    "srun": getopt.table(COMMON + RUN),
    "salloc": getopt.table(COMMON + ALLOC),
}
VARIABLES = {
    "sbatch": {
        "ACCOUNT": "account", "ARRAY_INX": "array", "CONSTRAINT": "constraint", "CPUS_PER_TASK": "cpus-per-task",
        "EXCLUSIVE": "exclusive", "EXPORT": "export", "GPUS": "gpus", "GPUS_PER_NODE": "gpus-per-node",
        "GPUS_PER_TASK": "gpus-per-task", "GRES": "gres", "JOB_NAME": "job-name", "MEM_PER_CPU": "mem-per-cpu",
        "MEM_PER_NODE": "mem", "NO_REQUEUE": "no-requeue", "OPEN_MODE": "open-mode", "OUTPUT": "output",
        "ERROR": "error", "PARTITION": "partition", "QOS": "qos", "REQUEUE": "requeue",
        "RESERVATION": "reservation", "SIGNAL": "signal", "TIMELIMIT": "time", "WAIT": "wait", "WCKEY": "wckey",
    },
    "srun": {
        "ACCOUNT": "account", "CONSTRAINT": "constraint", "CPUS_PER_TASK": "cpus-per-task", "DEPENDENCY": "dependency",
        "EXCLUSIVE": "exclusive", "GPUS": "gpus", "GPUS_PER_NODE": "gpus-per-node", "GRES": "gres",
        "JOB_NAME": "job-name", "LABELIO": "label", "MEM_PER_CPU": "mem-per-cpu", "MEM_PER_NODE": "mem",
        "NNODES": "nodes", "NTASKS": "ntasks", "NTASKS_PER_NODE": "ntasks-per-node", "PARTITION": "partition",
        "QOS": "qos", "REMOTE_CWD": "chdir", "RESERVATION": "reservation", "STDERRMODE": "error",
        "STDINMODE": "input", "STDOUTMODE": "output", "TIMELIMIT": "time", "UNBUFFEREDIO": "unbuffered",
        "WAIT": "wait", "WCKEY": "wckey", "KILL_BAD_EXIT": "kill-on-bad-exit",
        "OPEN_MODE": "open-mode",
    },
    "salloc": {
        "ACCOUNT": "account", "CONSTRAINT": "constraint", "EXCLUSIVE": "exclusive", "GPUS": "gpus", "GRES": "gres",
        "MEM_PER_CPU": "mem-per-cpu", "MEM_PER_NODE": "mem", "PARTITION": "partition", "QOS": "qos",
        "RESERVATION": "reservation", "TIMELIMIT": "time", "WCKEY": "wckey",
    },
}  # fmt: skip
REFUSED = frozenset((
    "bb", "bbf", "bcast", "bcast-exclude", "container", "cpus-per-gpu", "export-file", "gid", "gpus-per-socket",
    "het-group", "licenses", "mem-per-gpu", "no-allocate", "no-shell", "nodefile", "ntasks-per-gpu", "relative",
    "tres-per-task", "uid", "x11",
))  # fmt: skip
"""To pass over these would run something else than was asked for."""
IGNORED = frozenset((
    "accel-bind", "acctg-freq", "batch", "bell", "cluster-constraint", "compress", "contiguous", "core-spec",
    "cores-per-socket", "cpu-bind", "cpu-freq", "cpu_bind", "debugger-test", "delay-boot", "disable-status",
    "epilog", "exact", "extra-node-info", "get-user-env", "gpu-bind", "gpu-freq", "gres-flags", "hint",
    "ignore-pbs", "interactive", "kill-command", "kill-on-invalid-dep", "launch-cmd", "mail-type", "mail-user",
    "mcs-label", "mem-bind", "mem_bind", "mincpus", "msg-timeout", "network", "nice", "no-bell", "no-kill",
    "ntasks-per-core", "ntasks-per-socket", "oversubscribe", "power", "prefer", "preserve-env", "priority",
    "profile", "prolog", "propagate", "reboot", "resv-ports", "send-libs", "slurmd-debug", "sockets-per-node",
    "spread-job", "switches", "task-epilog", "task-prolog", "thread-spec", "threads", "threads-per-core",
    "time-min", "tmp", "unbuffered", "use-min-nodes", "verbose", "wait-all-nodes", "whole",
))  # fmt: skip
"""Taken, and without an effect here."""
PREFIX = {"sbatch": "SBATCH_", "srun": "SLURM_", "salloc": "SALLOC_"}
DIRECTIVE = "#SBATCH"
SIGNAL = re.compile(r"(?:([RrBb]{1,2}):)?([^@]+)(?:@(\d{1,6}))?\Z")
COUNT = re.compile(r"(\d{1,9})([KkMm]?)\Z")
SIGNAL_BEFORE_S = 60
GPU = re.compile(r"(?:gres[:/])?gpu(?:[:=]([A-Za-z_][\w.-]*))?(?:[:=](\d{1,6}))?(?:\(.*\))?\Z")


@dataclass(slots=True)
class Wish:
    """What was said; an empty text, a 0 or None: nothing."""

    command: str
    texts: dict[str, str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    nodes: int = 0
    nodes_max: int = 0
    tasks: int = 0
    cpus_per_task: int = 0
    tasks_per_node: int = 0
    node_memory_mib: int = -1
    cpu_memory_mib: int = -1
    gpus: int = 0  # in all
    gpus_per_node: int = 0
    gpus_per_task: int = 0
    gpu_model: str = ""
    gres: str = ""
    limit_ms: int = 0
    begin_ms: int = 0
    deadline_ms: int = 0
    signal: int = 0
    signal_ms: int = 0
    signal_batch: bool = False
    requeue: bool = True

    def text(self, name: str) -> str:
        return self.texts.get(name, "")

    def has(self, name: str) -> bool:
        return name in self.flags


Take = Callable[[Wish, str, int], None]


def wish_of(command: str, given: Given, now: int) -> Wish:
    """FaultError, as the command would say it."""
    wish = Wish(command)
    for name, value in given:
        if name in REFUSED:
            raise fault(command, f"--{name} is not there; docs/slurm.md has what is")
        take = TAKES.get(name)
        try:
            if take is not None:
                take(wish, value, now)
            elif name in NUMBERS:
                setattr(wish, NUMBERS[name], count_of(wish, name, value))
            elif TABLES[command].long[name].takes == "=":
                wish.texts[name] = value
            else:
                wish.flags.add(name)
                wish.texts[name] = value
        except ValueError:
            raise fault(command, f"Invalid --{name} specification", code=OPTION_FAULT) from None
    return wish


def from_variables(command: str, env: dict[str, str]) -> Given:
    """Options that variables of the environment give; those of the command line come after, and win."""
    prefix, found = PREFIX[command], Given()
    for word, name in VARIABLES[command].items():
        value = env.get(prefix + word, "")
        if not value:
            continue
        kind = TABLES[command].long[name]
        if kind.takes == "" and value.lower() in {"0", "no", "false"}:
            continue
        found.append((name, value if kind.takes else ""))
    return found


# -- single options ------------------------------------------------------------------------------------------

NUMBERS = {"ntasks": "tasks", "cpus-per-task": "cpus_per_task", "ntasks-per-node": "tasks_per_node"}


def count_of(wish: Wish, name: str, value: str) -> int:
    found = COUNT.match(value.strip())
    if found is None or not int(found[1]):
        raise FaultError(f'{wish.command}: error: Invalid numeric value "{value}" for --{name}.\n', OPTION_FAULT)
    return int(found[1]) * {"": 1, "k": 1000, "m": 1_000_000}[found[2].lower()]


def take_nodes(wish: Wish, value: str, _now: int) -> None:
    least, dash, most = value.strip().partition("-")
    first, last = COUNT.match(least), COUNT.match(most if dash else least)
    if first is None or last is None or not int(first[1]):
        shown = f'"{value}" is not a valid node count'
        raise FaultError(f"{wish.command}: error: {shown}\n{invalid_nodes(wish)}", OPTION_FAULT)
    wish.nodes, wish.nodes_max = int(first[1]), int(last[1])


def invalid_nodes(wish: Wish) -> str:
    return f"{wish.command}: error: invalid number of nodes (-N)\n"


def take_time(wish: Wish, value: str, _now: int) -> None:
    ms = limit_ms(value)
    wish.limit_ms = max(0, ms)  # 0 asks for no limit too


def take_begin(wish: Wish, value: str, now: int) -> None:
    wish.begin_ms = when(wish, "begin", value, now)


def take_deadline(wish: Wish, value: str, now: int) -> None:
    wish.deadline_ms = when(wish, "deadline", value, now)


def when(wish: Wish, name: str, value: str, now: int) -> int:
    try:
        return moment_ms(value, now)
    except (ValueError, OverflowError):
        shown = f"Invalid time specification (pos=0): {value}\n"
        raise FaultError(f"{shown}{wish.command}: error: Invalid --{name} specification\n", OPTION_FAULT) from None


def take_memory(wish: Wish, value: str, _now: int) -> None:
    wish.node_memory_mib, wish.cpu_memory_mib = memory_mib(value), -1


def take_cpu_memory(wish: Wish, value: str, _now: int) -> None:
    wish.cpu_memory_mib, wish.node_memory_mib = memory_mib(value), -1


def take_signal(wish: Wish, value: str, _now: int) -> None:
    found = SIGNAL.match(value.strip())
    if found is None:
        raise ValueError(value)
    wish.signal = signal_number(found[2])
    wish.signal_ms = int(found[3] or SIGNAL_BEFORE_S) * 1000
    wish.signal_batch = "B" in (found[1] or "").upper()


def take_gres(wish: Wish, value: str, _now: int) -> None:
    wish.gres = value
    wish.gpus_per_node = 0
    for one in value.split(","):
        if one in {"", "none", "NONE"}:
            continue
        found = GPU.match(one)
        if found is None:
            raise fault(wish.command, "Invalid generic resource (gres) specification")
        wish.gpu_model = found[1] or wish.gpu_model
        wish.gpus_per_node += int(found[2] or 1)


def gpu_count(wish: Wish, name: str, value: str) -> int:
    model, colon, number = value.rpartition(":")
    found = COUNT.match(number)
    if found is None:
        shown = f"Invalid --{name} specification"
        raise fault(wish.command, shown, code=OPTION_FAULT)
    if colon:
        wish.gpu_model = model
    return int(found[1])


def take_gpus(wish: Wish, value: str, _now: int) -> None:
    wish.gpus = gpu_count(wish, "gpus", value)


def take_gpus_per_node(wish: Wish, value: str, _now: int) -> None:
    wish.gpus_per_node = gpu_count(wish, "gpus-per-node", value)


def take_gpus_per_task(wish: Wish, value: str, _now: int) -> None:
    wish.gpus_per_task = gpu_count(wish, "gpus-per-task", value)


def take_requeue(wish: Wish, _value: str, _now: int) -> None:
    wish.requeue = True


def take_no_requeue(wish: Wish, _value: str, _now: int) -> None:
    wish.requeue = False


def take_open_mode(wish: Wish, value: str, _now: int) -> None:
    if value[:1].lower() not in {"a", "t"}:
        raise ValueError(value)
    wish.texts["open-mode"] = "append" if value[:1].lower() == "a" else "truncate"


TAKES: dict[str, Take] = {
    "nodes": take_nodes, "time": take_time, "begin": take_begin, "deadline": take_deadline, "mem": take_memory,
    "mem-per-cpu": take_cpu_memory, "signal": take_signal, "gres": take_gres, "gpus": take_gpus,
    "gpus-per-node": take_gpus_per_node, "gpus-per-task": take_gpus_per_task, "requeue": take_requeue,
    "no-requeue": take_no_requeue, "open-mode": take_open_mode,
}  # fmt: skip


# -- scripts -------------------------------------------------------------------------------------------------


def directives(script: str) -> list[str]:
    """The words of the `#SBATCH` lines before the first command."""
    words: list[str] = []
    for line in script.split("\n"):
        if line.startswith(DIRECTIVE) and (len(line) == len(DIRECTIVE) or line[len(DIRECTIVE)].isspace()):
            words += split_line(line[len(DIRECTIVE) :])
        elif line.strip() and not line.startswith("#"):
            break
    return words


def split_line(line: str) -> Iterator[str]:
    """Words as the shell would see them; what follows a `#` between blanks is a remark."""
    word, is_open, quote, escaped = "", False, "", False
    for letter in line:
        if escaped:
            word, escaped = word + letter, False
        elif letter == "\\" and quote != "'":
            escaped = is_open = True
        elif quote:
            if letter == quote:
                quote = ""
            else:
                word += letter
        elif letter in "'\"":
            quote, is_open = letter, True
        elif letter.isspace():
            if is_open or word:
                yield word
            word, is_open = "", False
        elif letter == "#" and not word and not is_open:
            return
        else:
            word += letter
    if word or is_open:
        yield word
