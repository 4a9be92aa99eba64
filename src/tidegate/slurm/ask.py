"""From a wish to a submission: shapes, queues, dependencies, and what is refused in Slurm's words."""

import posixpath
from collections.abc import Iterator

from msgspec.structs import replace

from tidegate.api.submit import MistakeError, command_of
from tidegate.model import commands as cmd
from tidegate.model.base import ARRAY_BITS
from tidegate.model.commands import Refused
from tidegate.model.jobs import CPUS, GPUS, MEMORY, NODE_LABEL, After, AfterKind, Shape, amounts
from tidegate.model.slurm import Slurm, SlurmKind
from tidegate.policy.admission import default_pool
from tidegate.slurm.desk import Call, Desk
from tidegate.slurm.wish import Wish
from tidegate.slurm.words import MINUTE_MS, FaultError, fault
from tidegate.wire.api import AfterBody, SubmitBody
from tidegate.wire.arrays import parse_array
from tidegate.wire.hostlist import HostlistError, expand
from tidegate.world.ended import satisfied
from tidegate.world.world import World

MILLI = 1000
LOSSES_MAX = 3
STRETCH_PERCENT = 150
NAME_MAX = 200
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
OLD_PARTITION = "debug"
"""Of Slurm's own example; where no pool is called so it is another name of the default one."""
NOT_GIVEN = ("SLURM_", "SLURMD_", "TIDE_", "SBATCH_")
KINDS = {"afterok": AfterKind.OK, "aftercorr": AfterKind.OK, "afterany": AfterKind.ANY, "afternotok": AfterKind.FAIL}
NEVER = "a dependency that can never be met"
"""Who cancels a job that waits for what cannot come."""

CONFIGURATION = "Requested node configuration is not available"
FAILED = {
    "sbatch": "Batch job submission failed: ",
    "srun": "Unable to allocate resources: ",
    "salloc": "Job submit/allocate failed: ",
}


def refuse(wish: Wish, why: str, *details: str) -> FaultError:
    return fault(wish.command, *details, FAILED[wish.command] + why)


def refused(wish: Wish, answer: Refused) -> FaultError:
    """The kernel's no, in the words that clients know; its own before."""
    what = answer.what
    if "can never fit" in what or what.startswith("no node of pool"):
        why = CONFIGURATION
    elif "time limit" in what:
        why = "Requested time limit is invalid (missing or exceeds some limit)"
    elif "queue" in what:
        why = "Invalid account or account/partition combination specified"
    elif "class" in what:
        why = "Invalid qos specification"
    elif "may ever hold" in what or "rule" in what:
        why = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
    else:
        why = "Unspecified error"
    return refuse(wish, why, f"{what}; {answer.cure}")


class Asking:
    """One submission in the making."""

    def __init__(self, desk: Desk, call: Call, wish: Wish, kind: SlurmKind, name: str) -> None:
        self.world = desk.world
        self.is_declared = desk.is_declared
        self.call = call
        self.wish = wish
        self.kind = kind
        self.name = (wish.text("job-name") or name)[:NAME_MAX]
        self.is_never = False
        self.begun: list[tuple[int, int]] = []  # (job, milliseconds after its start) that it waits for

    def submit(
        self, command: list[str], script: str = "", path: str = "", env: dict[str, str] | None = None
    ) -> cmd.Submit:
        """FaultError for what Slurm refuses before it asks its scheduler. `env` goes along with what is exported."""
        wish, call = self.wish, self.call
        pool = pool_of(self.world, wish)
        self.stretch(pool)
        self.check_nodes(pool)
        array = self.array()
        after = self.dependencies()
        folder = posixpath.join(call.cwd, wish.text("chdir") or ".")
        folder = posixpath.normpath(folder)
        body = SubmitBody(
            command=command, script=script, name=self.name, queue=self.queue(), klass=self.klass(), pool=pool,
            where=self.where(), time_ms=wish.limit_ms, begin_ms=wish.begin_ms, deadline_ms=wish.deadline_ms,
            after=after, array=array, held=wish.has("hold") or self.is_never or bool(self.begun),
            losses_max=LOSSES_MAX if wish.requeue else 0, starts_over=wish.requeue, env=self.env() | (env or {}),
            cwd=folder,
            stdin=self.output("input", folder), stdout=self.stdout(folder, is_array=bool(array)),
            stderr=self.output("error", folder), append=wish.text("open-mode") == "append", umask=call.umask,
            key=call.key,
        )  # fmt: skip
        try:
            submit = command_of(body, call.peer.user)
        except MistakeError as mistake:
            raise refuse(wish, "Unspecified error", f"{mistake.refused.what}; {mistake.refused.cure}") from None
        work = submit.spec.work
        assert work is not None, "there is something to run"
        spec = replace(
            submit.spec, shape=self.shape(pool), own_fault=True, work=replace(work, slurm=self.said(path))
        )  # fmt: skip
        return replace(submit, spec=spec)

    def said(self, path: str) -> Slurm:
        wish = self.wish
        return Slurm(
            kind=self.kind, tasks=self.tasks(), nodes=wish.nodes, cpus_per_task=wish.cpus_per_task,
            tasks_per_node=wish.tasks_per_node, node_memory_mib=self.asked_mib,
            cpu_memory_mib=max(0, wish.cpu_memory_mib), gpus=wish.gpus, gres=gres_text(wish),
            account=wish.text("account"),
            qos=wish.text("qos"), comment=wish.text("comment"), wckey=wish.text("wckey"),
            features=wish.text("constraint"), dependency=wish.text("dependency"), command=path,
            line=" ".join([self.call.name, *self.call.words]), host=self.call.host, export=wish.text("export"),
            reservation=wish.text("reservation"), signal=wish.signal, signal_ms=wish.signal_ms,
            signal_batch=wish.signal_batch, requeue=wish.requeue, exclusive=wish.has("exclusive"),
            timeless=not wish.limit_ms, user_held=wish.has("hold"), after=tuple(self.begun),
        )  # fmt: skip

    # -- what it takes -----------------------------------------------------------------------------------

    def tasks(self) -> int:
        """As said; 0: nothing was said of tasks."""
        wish = self.wish
        if wish.tasks or not wish.tasks_per_node:
            return wish.tasks
        return wish.tasks_per_node * max(1, wish.nodes)

    def shape(self, pool: str) -> Shape:
        wish = self.wish
        per_task = wish.cpus_per_task or 1
        tasks = self.tasks() or wish.nodes or 1
        where = tuple(sorted((label, tuple(values)) for label, values in self.where().items()))
        most = self.largest(pool, CPUS) // MILLI
        on_node = max(1, min(tasks, most // per_task))
        is_whole = wish.node_memory_mib > 0 or self.node_gpus(1, tasks) > 0
        if tasks > 1 and not wish.nodes and not wish.tasks_per_node and (tasks > on_node or not is_whole):
            # Wherever there is room: what is asked of a node is shared by the tasks that fit on one.
            memory = max(0, wish.cpu_memory_mib) * per_task or -(-max(0, wish.node_memory_mib) // on_node)
            gpus = -(-self.node_gpus(1, tasks) // on_node)
            return Shape(amounts(cpus=per_task * MILLI, memory=memory, gpus=gpus * MILLI), tasks, True, where)
        nodes = wish.nodes or max(1, -(-tasks // wish.tasks_per_node) if wish.tasks_per_node else 1)
        cpus = most if wish.has("exclusive") else (wish.tasks_per_node or -(-tasks // nodes)) * per_task
        memory = max(0, wish.cpu_memory_mib) * cpus or max(0, wish.node_memory_mib)
        if wish.node_memory_mib == 0:
            memory = self.largest(pool, MEMORY)
        chunk = amounts(cpus=cpus * MILLI, memory=memory, gpus=self.node_gpus(nodes, tasks) * MILLI)
        return Shape(chunk, nodes, nodes == 1, where)

    def node_gpus(self, nodes: int, tasks: int) -> int:
        wish = self.wish
        return max(wish.gpus_per_node, -(-wish.gpus // nodes), wish.gpus_per_task * -(-tasks // nodes))

    def largest(self, pool: str, resource: str) -> int:
        """Of one node of the pool."""
        nodes = [node for node in self.world.nodes.values() if node.pool == pool]
        return max((dict(node.capacity).get(resource, 0) for node in nodes), default=0)

    def stretch(self, pool: str) -> None:
        """Declared nodes are names on this machine: who asks for somewhat more memory than one has gets all of it."""
        most, asked = self.largest(pool, MEMORY), self.wish.node_memory_mib
        self.asked_mib = max(0, asked)
        if self.is_declared and most < asked <= most * STRETCH_PERCENT // 100:
            self.wish.node_memory_mib = most

    def check_nodes(self, pool: str) -> None:
        """What no node of the pool could ever give."""
        wish = self.wish
        memory = self.largest(pool, MEMORY)
        cpus = (wish.cpus_per_task or 1) * (wish.tasks_per_node or 1)
        if max(wish.node_memory_mib, wish.cpu_memory_mib * cpus) > memory:
            raise refuse(wish, CONFIGURATION, "Memory specification can not be satisfied")
        if self.node_gpus(max(1, wish.nodes), self.tasks() or 1) > self.largest(pool, GPUS) // MILLI:
            raise refuse(wish, CONFIGURATION)
        here = sum(node.pool == pool for node in self.world.nodes.values())
        if wish.nodes > here:
            raise refuse(wish, CONFIGURATION, f"{wish.nodes} nodes are asked for; partition {pool} has {here}")
        if cpus > self.largest(pool, CPUS) // MILLI:
            raise refuse(wish, CONFIGURATION, "CPU count per node can not be satisfied")
        whole = sum(dict(node.capacity).get(CPUS, 0) for node in self.world.nodes.values() if node.pool == pool)
        if (self.tasks() or 1) * (wish.cpus_per_task or 1) * MILLI > whole:
            raise refuse(wish, "More processors requested than permitted")

    def where(self) -> dict[str, list[str]]:
        """Features and names of nodes, as labels."""
        wish, wanted = self.wish, dict[str, list[str]]()
        if wish.gpu_model:
            wanted["gpu"] = [wish.gpu_model]
        for feature in wish.text("constraint").replace("[", "").replace("]", "").split("&"):
            if feature.strip():
                label, values = self.feature(feature.strip())
                wanted[label] = values
        only, never = self.named("nodelist"), self.named("exclude")
        if any(name not in self.world.nodes for name in (*only, *never)):
            raise refuse(wish, "Invalid node name specified")
        if only or never:
            wanted[NODE_LABEL] = [name for name in only or sorted(self.world.nodes) if name not in never]
            wish.nodes = max(wish.nodes, len(only)) if len(only) > 1 else wish.nodes
        return wanted

    def feature(self, text: str) -> tuple[str, list[str]]:
        """A feature is the value of a label, or `label=value`; `a|b`: either."""
        names = text.split("|")
        for node in self.world.nodes.values():
            for label, value in node.labels:
                if value in names or f"{label}={value}" in names:
                    return label, [name.rpartition("=")[2] for name in names]
        raise refuse(self.wish, "Invalid feature specification")

    def named(self, option: str) -> list[str]:
        text = self.wish.text(option)
        if text.isdecimal():
            return []
        try:
            return expand(text)
        except HostlistError:
            raise refuse(self.wish, "Invalid node name specified") from None

    # -- whose, and after whom ---------------------------------------------------------------------------

    def queue(self) -> str:
        """An account is a queue where the policy has one of that name."""
        account, queues = self.wish.text("account"), self.world.policy.queues
        return account if account in queues else "default"

    def klass(self) -> str:
        qos = self.wish.text("qos")
        return qos if qos in self.world.policy.classes else "normal"

    def array(self) -> str:
        text = self.wish.text("array")
        if text:
            try:
                parse_array(text)
            except ValueError:
                raise refuse(self.wish, "Invalid job array specification") from None
        return text

    def dependencies(self) -> list[AfterBody]:
        text = self.wish.text("dependency")
        if not text or text == "(null)":
            return []
        found: list[AfterBody] = []
        for after in self.each_dependency(text):
            if after not in found:
                found.append(after)
        return found

    def each_dependency(self, text: str) -> Iterator[AfterBody]:
        kind: AfterKind | None = None
        if "?" in text:
            raise refuse(self.wish, "Job dependency problem", "`?` (any of them) is not there; see docs/slurm.md")
        for clause in text.split(","):
            word, colon, ids = clause.partition(":")
            if word == "singleton" and not colon:
                yield from self.namesakes()
                continue
            if word == "after" and colon:
                self.begun += [one for text in ids.split(":") for one in self.beginning(text)]
                continue
            if word in KINDS and colon:
                kind = KINDS[word]
            elif kind is not None and not colon:
                ids = clause
            else:
                raise refuse(self.wish, "Job dependency problem")
            for one in ids.split(":"):
                job = self.job_named(one)
                after = After(job, kind)
                if job in self.world.jobs:
                    yield AfterBody(job, str(kind))
                elif job in self.world.outcomes and not satisfied(after, self.world.outcomes[job]):
                    self.is_never = True

    def beginning(self, text: str) -> Iterator[tuple[int, int]]:
        """`ID`, or `ID+MINUTES`; of one that is not there nobody can wait for the start."""
        name, plus, minutes = text.partition("+")
        if plus and not minutes.isdecimal():
            raise refuse(self.wish, "Job dependency problem")
        job = self.job_named(name)
        if job in self.world.jobs:
            yield job, int(minutes or 0) * MINUTE_MS

    def job_named(self, text: str) -> int:
        job, _, index = text.partition("_")
        if not job.isdecimal() or (index and not index.strip("*").isdecimal()):
            raise refuse(self.wish, "Job dependency problem")
        number = int(job)
        whole = number >> ARRAY_BITS
        return whole if number not in self.world.jobs and whole in self.world.arrays else number

    def namesakes(self) -> Iterator[AfterBody]:
        for job in self.world.jobs.values():
            if job.spec.name == self.name and job.spec.user == self.call.peer.user:
                yield AfterBody(job.id, "any")

    # -- where it runs -----------------------------------------------------------------------------------

    def stdout(self, folder: str, *, is_array: bool) -> str:
        if self.wish.text("output") or self.kind is not SlurmKind.BATCH:
            return self.output("output", folder)
        return posixpath.join(folder, "slurm-%A_%a.out" if is_array else "slurm-%j.out")

    def output(self, option: str, folder: str) -> str:
        if self.kind is not SlurmKind.BATCH:
            return "/dev/null" if option == "output" else ""
        path = self.wish.text(option)
        if option == "input" and (not path or path.lower() == "none"):
            return ""
        if path.lower() == "none":
            return "/dev/null"
        return posixpath.join(folder, path) if path else ""

    def env(self) -> dict[str, str]:
        theirs = self.call.env
        found = dict(exported(self.wish.text("export") or "ALL", theirs))
        place = self.call.place
        folders = found.get("PATH", PATH).split(":")
        if place and place not in folders:
            found["PATH"] = ":".join([place, *folders])
        return found


def exported(wanted: str, env: dict[str, str]) -> Iterator[tuple[str, str]]:
    """What `--export` lets through."""
    words = split_commas(wanted)
    if words and words[0].upper() == "ALL":
        yield from ((name, value) for name, value in env.items() if not name.startswith(NOT_GIVEN))
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name:
            yield name, value
        elif name in env and name.upper() not in {"ALL", "NONE", "NIL"}:
            yield name, env[name]


def split_commas(text: str) -> list[str]:
    """At commas that are in no quotes; the quotes go."""
    words, word, quote = [], "", ""
    for letter in text:
        if quote:
            word, quote = (word, "") if letter == quote else (word + letter, quote)
        elif letter in "'\"":
            quote = letter
        elif letter == ",":
            words.append(word)
            word = ""
        else:
            word += letter
    return [*words, word]


def pool_of(world: World, wish: Wish) -> str:
    """The partition, or the first of several that is there."""
    text = wish.text("partition")
    if not text:
        return default_pool(world)
    for name in text.split(","):
        known = pool_named(world, name)
        if known:
            return known
    raise refuse(wish, "Invalid partition name specified", f"invalid partition specified: {text}")


def pool_named(world: World, name: str) -> str:
    if name in world.pools:
        return name
    return default_pool(world) if name == OLD_PARTITION else ""


def gres_text(wish: Wish) -> str:
    """As squeue shows it."""
    model = f":{wish.gpu_model}" if wish.gpu_model else ""
    if wish.gres:
        return ",".join(f"gres:{one}" for one in wish.gres.split(","))
    if wish.gpus_per_node or wish.gpus or wish.gpus_per_task:
        return f"gres:gpu{model}:{wish.gpus_per_node or wish.gpus or wish.gpus_per_task}"
    return ""
