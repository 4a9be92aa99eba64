"""What a job leaves behind when it has ended: an outcome for others, a notice, run times, room in the tables."""

from itertools import islice
from typing import Any, assert_never

from tidegate.model.jobs import After, AfterKind, Job, Outcome
from tidegate.world.digest import Notes
from tidegate.world.lanes import alike_key, kin_key
from tidegate.world.records import NO_RUNS, NONE_ALIKE, Alike, AlikeRuns, Notice, Parked, Run
from tidegate.world.world import OUTCOMES_KEPT, USERS_KEPT, World


def job_gone(world: World, job: Job, outcome: Outcome) -> None:
    digest = world.digest
    del world.jobs[job.id]
    digest.jobs.gone(job.id)
    if world.arrays.pop(job.id, None) is not None:
        digest.arrays.gone(job.id)
        world.ripe.pop(job.id, None)
        if world.parked.pop(job.id, None) is not None:
            digest.parked.gone(job.id)
    if world.failed_on.pop(job.id, None) is not None:
        digest.failed_on.gone(job.id)
    work = job.spec.work
    if work is not None:
        if work.notify:
            world.ordered = world.seq
            world.notices[job.id] = Notice(job, outcome, world.seq)
            digest.notices.touched.add(job.id)
        elif work.env:
            leave_environment(world, work.env)
    outcomes = world.outcomes
    outcomes[job.id] = outcome
    digest.outcomes.touched.add(job.id)
    if len(outcomes) >= 2 * OUTCOMES_KEPT:
        _forget(outcomes, digest.outcomes, OUTCOMES_KEPT)
    if world.dependents:
        for dependent in world.dependents.pop(job.id, ()):
            digest.dependents.gone(job.id)
            _resolve(world, dependent, job.id, outcome)


def notice_sent(world: World, job_id: int) -> None:
    work = world.notices.pop(job_id).job.spec.work
    world.digest.notices.gone(job_id)
    if work is not None and work.env:
        leave_environment(world, work.env)


def name_environment(world: World, name: str) -> None:
    world.env_users[name] = world.env_users.get(name, 0) + 1


def leave_environment(world: World, name: str) -> None:
    """It goes with the last who names it."""
    users = world.env_users[name] - 1
    if users:
        world.env_users[name] = users
    else:
        del world.env_users[name], world.environments[name]
        world.digest.environments.gone(name)


def _resolve(world: World, dependent: int, ended: int, outcome: Outcome) -> None:
    parked = world.parked.get(dependent)
    if parked is None:
        return
    failed = parked.failed
    left = []
    for after in parked.after:
        if after.job != ended:
            left.append(after)
        elif not satisfied(after, outcome):
            failed = True
    world.parked[dependent] = Parked(tuple(left), failed, parked.held, parked.begin_ms)
    world.digest.parked.touched.add(dependent)
    world.ripe[dependent] = None


def satisfied(after: After, outcome: Outcome) -> bool:
    match after.kind:
        case AfterKind.ANY:
            return True
        case AfterKind.OK:
            return outcome is Outcome.COMPLETED
        case AfterKind.FAIL:
            return outcome is not Outcome.COMPLETED
        case _:
            assert_never(after.kind)


def remember_run(world: World, job: Job, at: int, run: Run, stopped_ms: int) -> None:
    known, user, ran_ms = world.last_runs, job.spec.user, at - run.start_ms - stopped_ms
    known[user] = known.get(user, NO_RUNS).ending(at, run.seq, ran_ms)
    if job.compared:
        for key in (alike_key(job), kin_key(job)):
            _remember_alike(world, key, at, run.seq, ran_ms)
    world.digest.last_runs.touched.add(user)
    if len(known) >= 2 * USERS_KEPT:
        _forget(known, world.digest.last_runs, USERS_KEPT)


def _remember_alike(world: World, key: Alike, at: int, started: int, ran_ms: int) -> None:
    known = world.alike
    alike = known.get(key, NONE_ALIKE)
    known[key] = AlikeRuns(alike.running, alike.last.ending(at, started, ran_ms))
    world.digest.alike.touched.add(key)
    if len(known) >= 2 * USERS_KEPT:
        _forget(known, world.digest.alike, USERS_KEPT)


def _forget(records: dict[Any, Any], notes: Notes, kept: int) -> None:
    """The oldest, many at once: taking the first of a dict one by one gets slower with every one taken."""
    for key in list(islice(records, len(records) - kept)):
        del records[key]
        notes.gone(key)
