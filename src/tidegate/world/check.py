"""`check`: the world against itself. Everything kept for speed is computed again from the records.

It looks at everything and changes nothing. A finding is a sentence; none at all means that the world is sound.
"""

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy

from tidegate.model.base import ARRAY_BITS, index_of, job_of, task_key
from tidegate.model.jobs import Job
from tidegate.model.nodes import NodeState
from tidegate.model.policy import in_tides
from tidegate.world.accounts import path_of
from tidegate.world.digest import MODULUS, RECORD_KINDS, Digest
from tidegate.world.holds import reservation_of
from tidegate.world.kept import kept_rows
from tidegate.world.lanes import LaneKey, alike_key
from tidegate.world.nodes import MARKS_MAX
from tidegate.world.pool import CLOSED, Pool
from tidegate.world.records import NO_USE, Need, Run
from tidegate.world.reservations import reserved_in
from tidegate.world.world import OUTCOMES_KEPT, USERS_KEPT, World


def check(world: World, *, may_be_overfull: bool = False) -> list[str]:
    """`may_be_overfull`: a node's capacity was lowered below what ran there, so it may hold more than it has."""
    parts = (
        _jobs, _runs, _pauses, _arrays, _accounts, _parked, _nodes, _reservations, _environments, _memory, _gauges,
        _digest,
    )  # fmt: skip
    found = [what for part in parts for what in part(world)]
    if found:
        return found  # what follows is derived from records that agree with each other
    for pool in world.pools.values():
        runs = [run for run in world.runs.values() if run.pool == pool.name]
        found.extend(
            f"pool {pool.name!r}: {what}"
            for part in (
                _rows(world, pool),
                _columns(world, pool, runs, may_be_overfull=may_be_overfull),
                _ends(pool, runs),
                _lanes(world, pool),
                _counting(world, pool, runs),
                _changes(world, pool),
            )
            for what in part
        )
    return found


# -- records -----------------------------------------------------------------------------------------------


def _jobs(world: World) -> Iterator[str]:
    for job_id, job in world.jobs.items():
        if job.id != job_id:
            yield f"job {job_id} is filed as {job.id}"
        if job.pool not in world.pools:
            yield f"job {job_id} names no pool of this world"
        if job_id in world.outcomes:
            yield f"job {job_id} is live and has ended"
    if world.jobs and max(world.jobs) >= world.next_job:
        yield f"next job {world.next_job} is not above all live ones"
    for task, tries in world.tries.items():
        run = world.runs.get(task)
        if job_of(task) not in world.jobs or (run is None and not _waits(world, task)):
            yield f"task {task} had {tries} and is not live"
        if min(tries.failed, tries.lost) < 0 or tries.attempt < max(1, tries.failed + tries.lost):
            yield f"the tries of task {task} do not add up: {tries}"
        if run is not None and (run.attempt != tries.attempt + 1 or run.start_ms < tries.until):
            yield f"task {task} had {tries} and runs as {run}"
    for task, run in world.runs.items():
        if run.attempt > 1 and task not in world.tries:
            yield f"task {task} runs attempt {run.attempt} and had none before"
    for task in world.promises:
        if not _waits(world, task):
            yield f"task {task} holds a promise and does not wait"
    if not world.told.keys() <= world.promises.keys():
        yield f"tasks {sorted(world.told.keys() - world.promises.keys())} hold no promise that could slip"
    promised = [task for pool in world.pools.values() for task in pool.promised]
    if sorted(promised) != sorted(world.promises):
        yield "the promises by pool are not the promises"
    for name, pool in world.pools.items():
        for task in pool.promised:
            if job_of(task) in world.jobs and world.jobs[job_of(task)].pool != name:
                yield f"task {task} holds a promise in another pool"


def _waits(world: World, task: int) -> bool:
    job = world.jobs.get(job_of(task))
    if job is None or task in world.runs:
        return False
    array = job.spec.array
    if array is None:
        return index_of(task) == 0
    state = world.arrays.get(job.id)
    if state is None:
        return False
    ahead = set(array.indices[state.started :]) - set(state.skipped)
    return index_of(task) in {*state.returned, *state.resting, *ahead}


def _runs(world: World) -> Iterator[str]:
    for task, run in world.runs.items():
        job = world.jobs.get(job_of(task))
        if job is None or run.task != task:
            yield f"run {task} has no job"
            continue
        shape = job.spec.shape
        if run.pool != job.pool or sorted(held_in_full(world, run)) != sorted(world.need_of(shape.chunk) or ()):
            yield f"run {task} holds something else than its job asked for"
        if run.plain and (not shape.stack or shape.where):
            yield f"run {task} is plain, and its shape is {shape}"
        if sum(run.counts) != shape.count or min(run.counts) < 1 or (not shape.stack and max(run.counts) > 1):
            yield f"run {task} holds {run.counts} chunks of {shape.count}, stack {shape.stack}"
        if len(set(run.rows)) != len(run.rows) or len(run.rows) != len(run.counts):
            yield f"run {task} names rows {run.rows} for counts {run.counts}"
        if run.attempt < 1 or run.expected_end <= run.start_ms:
            yield f"run {task} is attempt {run.attempt} from {run.start_ms} to {run.expected_end}"
    for kind, tasks in (("launching", world.launching), ("halting", world.halting)):
        if not tasks.keys() <= world.runs.keys():
            yield f"{kind} {sorted(tasks.keys() - world.runs.keys())}, which do not run"
    for task, halt in world.halting.items():
        if task in world.runs and world.runs[task].attempt != halt.attempt:
            yield f"halting attempt {halt.attempt} of {task}, which runs attempt {world.runs[task].attempt}"
    for task, attempt in world.strays:
        if task in world.runs and world.runs[task].attempt == attempt:
            yield f"attempt {attempt} of task {task} is a stray and wanted"


def held_in_full(world: World, run: Run) -> Need:
    """What it holds, and what it lends while it is suspended."""
    pause = world.pauses.get(run.task)
    return run.need if pause is None else (*run.need, *pause.lent)


def _pauses(world: World) -> Iterator[str]:
    for task, pause in world.pauses.items():
        run = world.runs.get(task)
        if run is None or run.attempt != pause.attempt:
            yield f"attempt {pause.attempt} of task {task} was suspended and does not run"
        if pause.before_ms < 0 or (pause.stopped and pause.left_ms < 1) or (pause.lent and not pause.stopped):
            yield f"task {task} was suspended as {pause}"
    stopped = {task for task, pause in world.pauses.items() if pause.stopped}
    listed = [task for pool in world.pools.values() for task in pool.suspended]
    if sorted(listed) != sorted(stopped):
        yield f"suspended are {sorted(stopped)}, the pools list {sorted(listed)}"


def _arrays(world: World) -> Iterator[str]:
    arrays = {job_id for job_id, job in world.jobs.items() if job.spec.array is not None}
    if world.arrays.keys() != arrays:
        yield f"array states of {sorted(world.arrays)}, arrays {sorted(arrays)}"
        return
    running: Counter[int] = Counter(job_of(task) for task in world.runs)
    for job_id, state in world.arrays.items():
        array = world.jobs[job_id].spec.array
        assert array is not None
        over = array.indices[: state.started]
        if state.running != running[job_id]:
            yield f"array {job_id} counts {state.running} running, {running[job_id]} do"
        if not 0 <= state.ended < len(array.indices) or state.started > len(array.indices):
            yield f"array {job_id} of {len(array.indices)}: {state}"
        again = (*state.returned, *state.resting)
        if state.started + len(state.skipped) != state.ended + state.running + len(again):
            yield f"array {job_id} does not add up: {state}"
        if any(list(some) != sorted(set(some)) for some in (state.returned, state.resting, state.skipped)):
            yield f"array {job_id} has tasks twice or out of order: {state}"
        if len(set(again)) != len(again) or not set(again) <= set(over):
            yield f"array {job_id} has {again} that wait again, started are {over}"
        if not set(state.skipped) <= set(array.indices[state.started + 1 :]):
            yield f"array {job_id} has skipped {state.skipped}, which have had their turn or are next"
        if array.at_once_max and state.running > array.at_once_max:
            yield f"array {job_id} runs {state.running} at once, at most {array.at_once_max}"
        tried = {index_of(task) for task in world.tries if job_of(task) == job_id and task not in world.runs}
        if tried != set(again):
            yield f"array {job_id} has {again} that wait again and attempts noted for {sorted(tried)}"
        timed = {task for _, task in world.timers}
        unheard = [index for index in state.resting if task_key(job_id, index) not in timed]
        if unheard:
            yield f"array {job_id} has {unheard} at rest and nothing will wake them"
        gone = {index_of(task) for task in world.runs if job_of(task) == job_id} - set(over)
        if gone:
            yield f"array {job_id} runs {sorted(gone)}, which have not been started"


def _accounts(world: World) -> Iterator[str]:
    """What the queues hold is what runs in them."""
    held: dict[str, Counter[int]] = {}
    for task, run in world.runs.items() if world.policy.queues else ():
        if job_of(task) not in world.jobs:
            continue  # told of already
        spec = world.jobs[job_of(task)].spec
        for name in path_of(world.policy, spec.queue, spec.user):
            amounts = held.setdefault(name, Counter())
            for column, amount in run.need:
                amounts[column] += amount * sum(run.counts)
    for name in sorted(world.accounts.keys() | held.keys()):
        account = world.accounts.get(name, NO_USE)
        said = {column: amount for column, amount in enumerate(account.held) if amount}
        if said != held.get(name, {}):
            yield f"{name!r} is said to hold {said}, and its runs hold {dict(held.get(name, {}))}"
        if min(account.used, default=0) < 0 or (account is not NO_USE and not any((*account.held, *account.used))):
            yield f"{name!r} has the account {account}, which is none"
    for queue, excess in world.excesses.items():
        if not excess.amounts or min(amount for _, amount in excess.amounts) <= 0:
            yield f"queue {queue!r} may exceed its limit by {excess.amounts}"
    for (queue, user), path in world.paths.items():
        if path != path_of(world.policy, queue, user):
            yield f"the accounts of {user!r} in {queue!r} are said to be {path}"


def _parked(world: World) -> Iterator[str]:
    timed = {job_of(task) for _, task in world.timers}
    for job_id, parked in world.parked.items():
        job = world.jobs.get(job_id)
        if job is None:
            yield f"job {job_id} is parked and gone"
            continue
        if job.spec.array is None and job_id << ARRAY_BITS in world.runs:
            yield f"job {job_id} is parked and runs"
        for after in parked.after:
            if after.job not in world.jobs or job_id not in world.dependents.get(after.job, ()):
                yield f"job {job_id} waits for {after.job}, which will not tell it"
        stuck = parked.failed or not (parked.held or parked.after)
        if stuck and job_id not in world.ripe and job_id not in timed:
            yield f"job {job_id} is parked as {parked} and nothing will look at it again"
    if not world.dependents.keys() <= world.jobs.keys():
        yield f"ended jobs have dependents: {sorted(world.dependents.keys() - world.jobs.keys())}"
    if world.timers != sorted(world.timers):
        yield "timers are not in order"


def _nodes(world: World) -> Iterator[str]:
    for name, suspect in world.suspects.items():
        node = world.nodes.get(name)
        if node is None or suspect.strikes < 1:
            yield f"{name!r} is suspected as {suspect} and not known"
        elif not suspect.tried and node.state is NodeState.UP:
            yield f"node {name} is up and suspected"
    for name, row in world.marks.items():
        if name not in world.nodes or not 0 < len(set(row)) == len(row) <= MARKS_MAX:
            yield f"against {name!r} is held {row}"
        elif any(world.failed_on.get(job, name) != name for job in row if job in world.jobs):
            yield f"against {name!r} is held {row}, of which one failed elsewhere"
    if not world.failed_on.keys() <= world.jobs.keys():
        yield f"ended jobs failed somewhere: {sorted(world.failed_on.keys() - world.jobs.keys())}"


def _reservations(world: World) -> Iterator[str]:
    runs = Counter(reservation_of(world, run) for run in world.runs.values() if job_of(run.task) in world.jobs)
    for name, known in world.reservations.items():
        spec = known.spec
        pool = world.pools.get(known.pool)
        if name != spec.name or pool is None or not spec.start_ms < spec.end_ms:
            yield f"reservation {name!r} is {known}"
        elif not known.nodes or any(node not in pool.row_of or count < 1 for node, count in known.nodes):
            yield f"reservation {name!r} is on {known.nodes} of pool {known.pool!r}"
        elif len(dict(known.nodes)) != len(known.nodes):
            yield f"reservation {name!r} names a node twice: {known.nodes}"
        if known.runs != runs[name]:
            yield f"reservation {name!r} counts {known.runs} runs, there are {runs[name]}"
    for pool in world.pools.values():
        if pool.kept != kept_rows(world.policy, pool):
            yield f"pool {pool.name!r} is said to keep the rows {pool.kept}"
        if pool.reserved != reserved_in(world, pool.name):
            yield f"pool {pool.name!r} is said to have the reservations {pool.reserved}"


def _environments(world: World) -> Iterator[str]:
    live = [*world.jobs.values(), *(notice.job for notice in world.notices.values())]
    named = Counter(job.spec.work.env for job in live if job.spec.work is not None and job.spec.work.env)
    if world.env_users != named:
        yield f"environments are named {dict(named)} times, counted {world.env_users}"
    if world.environments.keys() != named.keys():
        yield f"environments {sorted(world.environments)} are kept, {sorted(named)} named"
    for job_id, notice in world.notices.items():
        if notice.job.id != job_id or job_id in world.jobs:
            yield f"a notice for {job_id} is kept, which has not ended"


def _memory(world: World) -> Iterator[str]:
    if len(world.outcomes) > OUTCOMES_KEPT or len(world.last_runs) > USERS_KEPT:
        yield f"{len(world.outcomes)} outcomes and the runs of {len(world.last_runs)} users are kept"
    jobs = [world.jobs[job_of(task)] for task in world.runs if job_of(task) in world.jobs]
    running = Counter(alike_key(job) for job in jobs if job.compared)
    if {key: alike.running for key, alike in world.alike.items() if alike.running} != running:
        yield f"alike runs are counted otherwise than {dict(running)}"
    expiries = [expiry for _, expiry in world.keys.values()]
    if expiries != sorted(expiries):
        yield "keys are not in order of expiry"
    if any(world.pools.get(name) is not pool for name, pool in world.stirred.items()):
        yield "a pool is stirred that is not of this world"
    for pool in world.pools.values():
        unknown = [node.name for node in pool.nodes if world.nodes.get(node.name) != node]
        if unknown:
            yield f"pool {pool.name!r} has nodes {unknown} that the world knows otherwise"
    if sum(len(pool.nodes) for pool in world.pools.values()) != len(world.nodes):
        yield "a node is in no pool, or in two"


def _gauges(world: World) -> Iterator[str]:
    """One for every pool, while the policy has a tide, and what each state changes in force."""
    wanted = set(world.pools) if world.policy.tide is not None else set()
    if set(world.gauges) != wanted:
        yield f"gauges of {sorted(world.gauges)}, should be of {sorted(wanted)}"
    states = in_tides(world.policy)
    for pool in world.pools:
        gauge = world.gauges.get(pool)
        now = states.get(gauge.state, world.policy) if gauge is not None else world.policy
        if world.policy_in(pool) != now:
            yield f"pool {pool!r} is under another policy than its tide says"
        if gauge is not None and min(gauge.recent, gauge.usual, gauge.started, gauge.waited) < 0:
            yield f"pool {pool!r} counts less than nothing: {gauge}"


def _digest(world: World) -> Iterator[str]:
    fresh = Digest()
    for kind in RECORD_KINDS:
        getattr(fresh, kind).touched.update(getattr(world, kind))
    full = fresh.read(world)
    kept = deepcopy(world.digest)  # reading it would bring the original up to date
    if kept.read(world) == full:
        return
    for kind in RECORD_KINDS:
        if getattr(kept, kind).hashes != getattr(fresh, kind).hashes:
            yield f"the digest missed a change of {kind}"
    if sum(sum(getattr(kept, kind).hashes.values()) for kind in RECORD_KINDS) % MODULUS != kept.total:
        yield "the digest's total is not the sum of its parts"


# -- what is kept for speed --------------------------------------------------------------------------------


def _rows(world: World, pool: Pool) -> Iterator[str]:
    if pool.row_of != {name: row for row, name in enumerate(pool.names)}:
        yield "rows are not where they are said to be"
    if [node.name for node in pool.nodes] != pool.names:
        yield "nodes are not in the order of their names"
    runs = Counter(row for run in world.runs.values() if run.pool == pool.name for row in run.rows)
    tried = {row: runs[row] for row, name in enumerate(pool.names) if _is_tried(world, name)}
    if pool.tried != tried:
        yield f"nodes are tried with {pool.tried} runs, should be {tried}"
    closed = {row for row, node in enumerate(pool.nodes) if node.state is not NodeState.UP or tried.get(row)}
    if pool.closed != closed:
        yield f"closed rows {sorted(pool.closed)}, should be {sorted(closed)}"
    for run in world.runs.values():
        down = [row for row in run.rows if run.pool == pool.name and pool.nodes[row].state is NodeState.DOWN]
        if down:
            yield f"run {run.task} is on nodes that are down, rows {down}"


def _is_tried(world: World, name: str) -> bool:
    return name in world.suspects and world.suspects[name].tried


def _columns(world: World, pool: Pool, runs: list[Run], *, may_be_overfull: bool) -> Iterator[str]:
    columns = pool.total.shape[0]
    totals = [[0] * len(pool.names) for _ in range(columns)]
    for row, node in enumerate(pool.nodes):
        for name, amount in node.capacity:
            totals[world.columns[name]][row] = amount
    if pool.total.tolist() != totals or pool.capacity != [sum(column) for column in totals]:
        yield "the totals are not what the nodes have"
        return
    room = [column.copy() for column in totals]
    for run in runs:
        for column, amount in run.need:
            for row, count in zip(run.rows, run.counts, strict=True):
                room[column][row] -= amount * count
    if not may_be_overfull and any(amount < 0 for column in room for amount in column):
        yield f"more is taken than there is: {room}"
    for amounts in room:
        for row in pool.closed:
            amounts[row] -= CLOSED
    if pool.free.tolist() != room:
        yield f"free is {pool.free.tolist()}, should be {room}"
    if [list(cells) for cells in pool.cells] != pool.buffer.tolist():
        yield "the cells are another buffer's"


def _ends(pool: Pool, runs: list[Run]) -> Iterator[str]:
    by_end: dict[int, list[Run]] = {}
    for run in runs:
        by_end.setdefault(run.expected_end, []).append(run)
    if pool.end_times != sorted(by_end):
        yield f"ends at {pool.end_times}, should be {sorted(by_end)}"
    if {end: sorted(run.task for run in at) for end, at in by_end.items()} != {
        end: sorted(at) for end, at in pool.runs_at.items()
    }:
        yield "runs are filed under other ends than their own"
    elif any(set(at.values()) != set(by_end[end]) for end, at in pool.runs_at.items()):
        yield "a run is filed that is not the one the world has"
    if pool.units_at != {end: sum(sum(run.counts) for run in at) for end, at in by_end.items()}:
        yield "chunks by end do not add up"


def _lanes(world: World, pool: Pool) -> Iterator[str]:
    wanted: dict[LaneKey, list[Job]] = {}
    for job in world.jobs.values():
        if job.pool == pool.name and job.id not in world.parked and _startable(world, job):
            wanted.setdefault(world.lane_key(job), []).append(job)
    if pool.lanes.keys() != wanted.keys():
        strange = [lane.jobs for key, lane in pool.lanes.items() if key not in wanted]
        missing = [jobs for key, jobs in wanted.items() if key not in pool.lanes]
        yield f"lanes with nobody to start: {strange}; jobs with no lane: {missing}"
        return
    for key, jobs in wanted.items():
        lane = pool.lanes[key]
        if list(lane.jobs) != sorted(jobs, key=lambda job: (job.submit_ms, job.id)):
            yield f"lane {key} holds {[job.id for job in lane.jobs]}, should hold {[job.id for job in jobs]}"
        said = (lane.key, lane.shape, lane.estimate_ms, lane.units, lane.need)
        if said != (key, key[2], key[3], key[2].count, world.need_of(key[2].chunk)):
            yield f"lane {key} says otherwise of itself: {said}"
    by_user: dict[str, set[LaneKey]] = {}
    for key, lane in pool.lanes.items():
        if lane.user:
            by_user.setdefault(lane.user, set()).add(key)
    if {user: set(keys) for user, keys in pool.lanes_of.items()} != by_user:
        yield f"the lanes of users are said to be {pool.lanes_of}"
    serials = [lane.serial for lane in pool.lanes.values()]
    if len(set(serials)) != len(serials):
        yield f"lanes share a serial: {serials}"


def _startable(world: World, job: Job) -> bool:
    array = job.spec.array
    if array is None:
        return job.id << ARRAY_BITS not in world.runs
    state = world.arrays[job.id]
    waiting = len(array.indices) - state.started - len(state.skipped) + len(state.returned)
    return waiting > 0 and (not array.at_once_max or state.running < array.at_once_max)


def _counting(world: World, pool: Pool, runs: list[Run]) -> Iterator[str]:
    alive = [(lane.need, lane.shape.stack and not lane.shape.where) for lane in pool.lanes.values()]
    alive += [(run.need, run.plain) for run in runs]
    kinds = Counter(need for need, plain in alive if plain)
    odd = sum(not plain for _, plain in alive)
    if pool.kinds != kinds or pool.odd != odd:
        yield f"{pool.kinds} and {pool.odd} odd ones are counted, {dict(kinds)} and {odd} there are"
    unit = next(iter(kinds)) if len(kinds) == 1 and not odd else None
    if pool.unit != unit:
        yield f"counted in {pool.unit}, should be {unit}"
    strained = bool(pool.closed) or any(amount < 0 for column in pool.free.tolist() for amount in column)
    if pool.strained != strained:
        yield f"strained is {pool.strained}, should be {strained}"
    if unit is None:
        return
    by_row = [max(0, min(int(pool.free[column, row]) // amount for column, amount in unit))
              for row in range(len(pool.names))]  # fmt: skip
    if pool.units_free != by_row or pool.free_units != sum(by_row):
        yield f"{pool.free_units} chunks are said to be free, by row {pool.units_free}; {by_row} are"
    if pool.open_rows != sum(1 << row for row, chunks in enumerate(by_row) if chunks > 0):
        yield f"rows {pool.open_rows:b} are said to be open, {by_row} chunks are free"


def _changes(world: World, pool: Pool) -> Iterator[str]:
    changes = (
        pool.changed
        or pool.fresh
        or pool.grown
        or pool.freed is None
        or (pool.freed and (pool.lanes or pool.suspended))
    )
    if changes and pool.name not in world.stirred:
        yield "it has changes that no cycle will look at"
    for serial, lane in pool.fresh.items():
        if lane.serial != serial or pool.lanes.get(lane.key) is not lane:
            yield f"fresh lane {lane.key} is not the one that waits"
