"""Suspension: a run that is stopped in place. It lends its cpus, keeps all else, and its clock stands still."""

from msgspec.structs import replace

from tidegate.model import events as ev
from tidegate.model.base import ARRAY_BITS
from tidegate.model.jobs import CPUS
from tidegate.world.accounts import charge
from tidegate.world.records import Need, Pause, Run
from tidegate.world.saves import ask_again, ask_no_more
from tidegate.world.world import World


def lent_by(world: World, run: Run) -> Need:
    """Of each chunk: cpus. Memory and what is in the memory of devices stay where they are (docs/decisions/0021)."""
    column = world.columns.get(CPUS, -1)
    return tuple([(at, amount) for at, amount in run.need if at == column])


def is_suspended(world: World, task: int) -> bool:
    pause = world.pauses.get(task)
    return pause is not None and pause.stopped


def ran_since(world: World, run: Run) -> int:
    """Since when it has run without a break."""
    pause = world.pauses.get(run.task)
    return run.start_ms if pause is None else pause.at


def stopped_ms(world: World, task: int, now: int) -> int:
    """How long the attempt was suspended, all in all."""
    pause = world.pauses.get(task)
    if pause is None:
        return 0
    return pause.before_ms + (now - pause.at if pause.stopped else 0)


def limit_left(world: World, run: Run) -> int:
    """Of its time limit, when it was last stopped or went on."""
    limit_ms = world.jobs[run.task >> ARRAY_BITS].spec.limit_ms
    pause = world.pauses.get(run.task)
    return limit_ms if pause is None else limit_ms - (pause.at - run.start_ms - pause.before_ms)


def ends_latest(world: World, run: Run) -> int:
    """By its time limit. Of one that is suspended: if it goes on when it is expected to."""
    pause = world.pauses.get(run.task)
    on = run.expected_end - pause.left_ms if pause is not None and pause.stopped else ran_since(world, run)
    return on + limit_left(world, run)


def without_pauses(world: World, run: Run, now: int) -> Run:
    """As if it had begun so much later and run ever since."""
    stopped = stopped_ms(world, run.task, now)
    return replace(run, start_ms=run.start_ms + stopped) if stopped else run


def suspended(world: World, event: ev.JobSuspended) -> None:
    run, known = world.runs[event.task], world.pauses.get(event.task)
    lent = lent_by(world, run)
    left_ms, before_ms = max(1, run.expected_end - event.at), 0 if known is None else known.before_ms
    need = tuple([part for part in run.need if part not in lent])
    _change(world, replace(run, need=need, plain=False, expected_end=event.until))
    _charge(world, run, lent, -1, event.at)
    _keep(world, event.task, Pause(event.attempt, world.seq, True, event.at, before_ms, left_ms, lent,
                                   event.held, event.room_for, event.by))  # fmt: skip
    world.pools[run.pool].suspended[event.task] = None
    ask_no_more(world, event.task)


def resumed(world: World, event: ev.JobResumed) -> None:
    run, pause = world.runs[event.task], world.pauses[event.task]
    job = world.jobs[event.task >> ARRAY_BITS]
    shape = job.spec.shape
    need = world.need_of(shape.chunk)
    assert need is not None, "it ran with it"
    plain = shape.stack and not shape.where
    _change(world, replace(run, need=need, plain=plain, expected_end=event.expected_end))
    _charge(world, run, pause.lent, 1, event.at)
    before_ms = stopped_ms(world, event.task, event.at)
    _keep(world, event.task, Pause(event.attempt, world.seq, False, event.at, before_ms, 0, ()))
    del world.pools[run.pool].suspended[event.task]
    ask_again(world, job, event.task, event.at)


def suspension_changed(world: World, event: ev.SuspensionChanged) -> None:
    pause = world.pauses[event.task]
    _keep(world, event.task, replace(pause, held=event.held, by=event.by))
    pool = world.pools[world.runs[event.task].pool]
    world.stirred[pool.name] = pool


def pause_over(world: World, run: Run) -> None:
    """The attempt is."""
    if world.pauses.pop(run.task, None) is not None:
        world.digest.pauses.gone(run.task)
        world.pools[run.pool].suspended.pop(run.task, None)


def _change(world: World, run: Run) -> None:
    """What it holds, and until when."""
    pool = world.pools[run.pool]
    pool.vacate(world.runs[run.task])
    world.runs[run.task] = run
    pool.occupy(run)
    pool.recount()  # it may go on where nothing new may start
    world.digest.runs.touched.add(run.task)
    world.stirred[pool.name] = pool


def _charge(world: World, run: Run, lent: Need, sign: int, at: int) -> None:
    if world.has_queues and lent:
        spec = world.jobs[run.task >> ARRAY_BITS].spec
        charge(world, spec.queue, spec.user, lent, sign * sum(run.counts), at)
        for pool in world.pools.values():  # a limit of its queues may have kept somebody waiting anywhere
            if pool.lanes:
                world.stirred[pool.name] = pool


def _keep(world: World, task: int, pause: Pause) -> None:
    world.pauses[task] = pause
    world.ordered = world.seq
    world.digest.pauses.touched.add(task)
