"""`directives`: what the engine is to do, derived from state alone, so a crash between two turns loses nothing.

`after` is a cursor that only saves work: what was derived up to that event number has been delivered. With 0
everything unconfirmed is derived again, and engines ignore what they have.
"""

from tidegate.model.base import ARRAY_BITS
from tidegate.model.engine import Ask, Directive, Halt, Launch, Notify, Resume, Suspend
from tidegate.model.jobs import Job, Outcome, Pairs
from tidegate.world.world import World


def directives(world: World, after: int = 0) -> list[Directive]:
    wanted: list[Directive] = []
    for task, seq in reversed(world.launching.items()):  # newest last: stop at the first that was delivered
        if seq <= after:
            break
        run = world.runs[task]
        job = world.jobs[task >> ARRAY_BITS]
        env = () if job.spec.work is None else environment_of(world, job)
        tries = world.tries.get(task)
        wanted.append(Launch(task, run.attempt, job, run.nodes, env, 0 if tries is None else tries.kept_ms))
    wanted.reverse()
    for task, halt in world.halting.items():
        if halt.seq > after:
            work = world.jobs[task >> ARRAY_BITS].spec.work
            grace_ms = work.grace_ms if work is not None else 0
            if halt.room_for:  # somebody waits for it to be gone, and plans with that
                grace_ms = world.policy_in(world.runs[task].pool).preemption.grace_ms
            wanted.append(Halt(task, halt.attempt, halt.outcome, grace_ms, halt.save))
    for task, pause in world.pauses.items():
        if pause.seq > after and task not in world.halting:  # what is being ended goes on to its end
            wanted.append(Suspend(task, pause.attempt) if pause.stopped else Resume(task, pause.attempt))
    for (task, attempt), seq in world.strays.items():
        if seq > after:  # without grace: the task may run somewhere else
            wanted.append(Halt(task, attempt, Outcome.LOST))
    wanted.extend(
        Ask(task, save.attempt, save.number) for task, save in world.saves.items() if save.is_open and save.seq > after
    )
    wanted.extend(
        Notify(notice.job, notice.outcome, environment_of(world, notice.job))
        for notice in world.notices.values()
        if notice.seq > after
    )
    return wanted


def environment_of(world: World, job: Job) -> Pairs:
    work = job.spec.work
    return world.environments[work.env] if work is not None and work.env else ()
