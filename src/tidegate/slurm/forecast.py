"""`--test-only`: what the next cycle would do with the job, tried on a twin of the state."""

from tidegate.core.accept import accept
from tidegate.core.decide import decide
from tidegate.core.memo import Memo
from tidegate.model import commands as cmd
from tidegate.model.base import ARRAY_BITS
from tidegate.model.commands import Refused
from tidegate.model.events import JobSubmitted
from tidegate.model.jobs import CPUS
from tidegate.slurm.desk import Answer
from tidegate.slurm.words import moment
from tidegate.wire.hostlist import compress
from tidegate.world.apply import apply
from tidegate.world.world import World

MILLI = 1000


def test_only(world: World, submit: cmd.Submit, now: int) -> Answer:
    twin = world.fork()
    found = accept(twin, submit, now)
    if isinstance(found, Refused):
        return Answer(err=f"allocation failure: {found.what}; {found.cure}\n", code=1)
    for event in found:
        apply(twin, event)
    last = found[-1]
    assert isinstance(last, JobSubmitted), "a submission ends with its job"
    job = last.job
    task = job.id << ARRAY_BITS | (job.spec.array.indices[0] if job.spec.array is not None else 0)
    plan = decide(twin, Memo(), now)
    nodes, start = next(((one.nodes, now) for one in plan.starts if one.task == task), ((), 0))
    for promise in plan.cycle.promised:
        if promise.task == task and not start:
            nodes, start = promise.nodes, promise.start_by
    shape = job.spec.shape
    cpus = dict(shape.chunk).get(CPUS, MILLI) * shape.count // MILLI
    where = compress([name for name, _ in nodes]) or compress(list(world.nodes)[: 1 if shape.stack else shape.count])
    when = moment(start or max(now, job.spec.begin_ms))
    text = f"sbatch: Job {job.id} to start at {when} using {cpus} processors on nodes {where} in partition {job.pool}\n"
    return Answer(err=text)
