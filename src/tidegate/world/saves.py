"""Checkpoints: who is asked when, who has answered, and how much of a task's work is safe."""

from bisect import bisect_left, insort

from msgspec.structs import replace

from tidegate.model import events as ev
from tidegate.model.jobs import Job
from tidegate.model.policy import PolicySpec, Preempt
from tidegate.world.records import Run, Save
from tidegate.world.world import World


def ask_every(policy: PolicySpec, job: Job) -> int:
    """0: only when it is preempted."""
    said = job.spec.checkpoint
    assert said is not None
    if said.every_ms:
        return said.every_ms
    known = policy.classes.get(job.spec.klass)
    return policy.checkpoints.every_ms if known is not None and known.preempt is not Preempt.NEVER else 0


def writes_for(policy: PolicySpec, job: Job) -> int:
    """Milliseconds that one checkpoint of the job takes of what all may write."""
    rules, said = policy.checkpoints, job.spec.checkpoint
    assert said is not None
    return (said.size_mib or rules.size_mib) * 1000 // rules.write_mib_s if rules.write_mib_s else 0


def begin_saving(world: World, job: Job, run: Run) -> None:
    if job.spec.checkpoint is None:
        return
    every = ask_every(world.policy, job)
    _keep(world, run.task, Save(run.attempt, run.start_ms + every if every else 0))


def stop_saving(world: World, task: int) -> int:
    """How much of the attempt's own work is safe."""
    save = world.saves.pop(task, None)
    if save is None:
        return 0
    _forget_ask(world, save.next_ms, task)
    world.digest.saves.gone(task)
    return save.kept_ms


def asked(world: World, event: ev.CheckpointAsked, job: Job) -> None:
    save = world.saves[event.task]
    world.ordered = world.seq
    world.writes_until = max(world.writes_until, event.at) + writes_for(world.policy, job)
    _keep(
        world,
        event.task,
        Save(save.attempt, event.next_at, event.number, event.at, True, world.seq, save.kept_ms, save.size_mib),
    )


def ask_no_more(world: World, task: int) -> None:
    """It is being ended."""
    save = world.saves.get(task)
    if save is not None:
        _keep(world, task, replace(save, next_ms=0, is_open=False))


def ask_again(world: World, job: Job, task: int, now: int) -> None:
    """It was suspended and goes on: what was asked before is answered by now, or never."""
    save = world.saves.get(task)
    if save is not None:
        every = ask_every(world.policy, job)
        _keep(world, task, replace(save, next_ms=now + every if every else 0))


def kept(world: World, event: ev.CheckpointKept) -> None:
    save = world.saves[event.task]
    is_open = save.is_open and event.number != save.number
    _keep(world, event.task, replace(save, is_open=is_open, kept_ms=event.kept_ms, size_mib=event.size_mib))


def _keep(world: World, task: int, save: Save) -> None:
    known = world.saves.get(task)
    if known is None or known.next_ms != save.next_ms:
        if known is not None:
            _forget_ask(world, known.next_ms, task)
        if save.next_ms:
            insort(world.asks, (save.next_ms, task))
    world.saves[task] = save
    world.digest.saves.touched.add(task)


def _forget_ask(world: World, at: int, task: int) -> None:
    if at:
        del world.asks[bisect_left(world.asks, (at, task))]
