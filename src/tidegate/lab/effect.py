"""What another policy means for the jobs that are there: two twins of the world, each under one of the two policies.

The kernel itself says it: how it ranks who waits, whom it starts in the next cycle and promises a start, and what it
would refuse. Looked at are the first of each line; a count bounds all of it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec.structs import replace

from tidegate.core.accept import accept
from tidegate.core.decide import decide
from tidegate.core.memo import Memo
from tidegate.core.preempt import may_preempt
from tidegate.core.turns import Line, Turns
from tidegate.model.base import job_of
from tidegate.model.commands import Refused, Submit
from tidegate.model.events import CUT_BY_STARTS, PolicyChanged, Promise
from tidegate.model.jobs import Job
from tidegate.model.policy import PolicySpec
from tidegate.policy.share import Shares
from tidegate.wire.api import EffectBody, EffectRow
from tidegate.world.apply import apply
from tidegate.world.pool import Pool
from tidegate.world.world import World

FIRST = 1000
"""So many of a pool's line are looked at."""
LOOKED_AT_MAX = 10_000
"""And so many in all, pool after pool by name."""
ROWS_MAX = 50
REFUSALS_MAX = 5
OTHERS = "(others)"
Group = tuple[str, str]
"""(queue, class)"""


def effect(world: World, old: PolicySpec, new: PolicySpec, now: int) -> EffectBody:
    before, after = Tried(world, old, now), Tried(world, new, now)
    rows = _Rows(world)
    left = LOOKED_AT_MAX
    for name in sorted(world.pools):
        at_most = max(0, min(FIRST, left))
        left -= rows.places(before.line(name, at_most), after.line(name, at_most))
    for sign, tried in (("before", before), ("after", after)):
        rows.starts(world, tried.starts, sign)
    refusals = rows.refusals(before, after)
    held = [(was, after.promises.get(task)) for task, was in before.promises.items()]
    kept = [(was, now_is) for was, now_is in held if now_is is not None]
    return EffectBody(
        seq=world.seq, running=len(world.runs), waiting=sum(rows.waiting.values()), looked_at=len(rows.jobs),
        first=FIRST, cut=before.cut or after.cut, promises_kept=len(kept),
        promises_new=len(after.promises) - len(kept), promises_lost=len(held) - len(kept),
        promises_later=sum(now_is.start_by > was.start_by for was, now_is in kept), refusals=refusals, rows=rows.told(),
        interrupted=after.interrupted,
    )  # fmt: skip


class Tried:
    """One policy, tried on a twin of the world: both twins see a change, so that both look at everything anew."""

    def __init__(self, world: World, policy: PolicySpec, now: int) -> None:
        self.now = now
        self.world = twin = world.fork()
        apply(twin, PolicyChanged(now, twin.policy_version + 1, policy))
        self.memo = Memo()  # it ranks a long line once, for the cycle and for the places
        plan = decide(twin, self.memo, now)
        self.cut = plan.cycle.cut.startswith(CUT_BY_STARTS)
        self.interrupted = len(plan.halts) if may_preempt(policy) else -1
        self.starts = [start.task for start in plan.starts]
        self.promises: dict[int, Promise] = dict(twin.promises)
        self.promises.update((promise.task, promise) for promise in plan.cycle.promised)
        for task in (*plan.cycle.withdrawn, *self.starts):
            self.promises.pop(task, None)

    def line(self, pool: str, at_most: int) -> list[Job]:
        return list(islice(in_line(self.memo, self.world, self.world.pools[pool], self.now), at_most))

    def refuses(self, job: Job) -> Refused | None:
        """If it were submitted now; what it depends on has ended, or it would not be in line."""
        answer = accept(self.world, Submit(replace(job.spec, after=())), self.now)
        return answer if isinstance(answer, Refused) else None


def in_line(memo: Memo, world: World, pool: Pool, now: int) -> Iterator[Job]:
    """The waiting jobs of a pool as `decide` would have their turn, if each were refused."""
    policy = world.policy_in(pool.name)
    ranking, _ = memo.ranking(world, policy, pool, now)
    turns = Turns(world, now, pool, ranking, ranking.leaves, Shares(world, now) if policy.queues else None)
    leaf = turns.leaf()
    while leaf is not None:
        lane, known = turns.take(leaf)[5:]
        line = known or Line(world, lane)
        yield line.job
        if line.next_job():
            turns.comes_again(line)
        leaf = turns.leaf()


class _Rows:
    """Counted by queue and class."""

    def __init__(self, world: World) -> None:
        self.waiting: Counter[Group] = Counter()
        for pool in world.pools.values():
            for lane in pool.lanes.values():
                self.waiting[lane.key[0], lane.key[1]] += len(lane.jobs)
        self.rows = {group: EffectRow(*group, waiting) for group, waiting in self.waiting.items()}
        self.jobs: dict[int, Job] = {}

    def places(self, before: list[Job], after: list[Job]) -> int:
        """In the line of one pool; returns how many were looked at. Who is not among the first comes after them."""
        old = {job.id: place for place, job in enumerate(before)}
        new = {job.id: place for place, job in enumerate(after)}
        jobs = {job.id: job for job in (*before, *after)}
        for job in jobs.values():
            row = self.rows[group_of(job)]
            was, is_now = old.get(job.id, len(before)), new.get(job.id, len(after))
            row.looked_at += 1
            row.forward += is_now < was
            row.back += is_now > was
        self.jobs |= jobs
        return len(jobs)

    def starts(self, world: World, tasks: Iterable[int], when: str) -> None:
        for task in tasks:
            row = self.rows[group_of(world.jobs[job_of(task)])]
            if when == "before":
                row.starts_before += 1
            else:
                row.starts_after += 1

    def refusals(self, before: Tried, after: Tried) -> list[str]:
        """Those that only the other policy would refuse; the first few in words."""
        said: dict[str, None] = {}
        for job in self.jobs.values():
            refused = after.refuses(job)
            if refused is None or before.refuses(job) is not None:
                continue
            self.rows[group_of(job)].refused += 1
            if len(said) < REFUSALS_MAX:
                said[f"job {job.id}: {refused.what}; {refused.cure}"] = None
        return list(said)

    def told(self) -> list[EffectRow]:
        """Where most changes first; past a number of rows the others are one."""
        rows = sorted(self.rows.values(), key=lambda row: (-weight(row), row.queue, row.klass))
        if len(rows) <= ROWS_MAX:
            return rows
        others = EffectRow(OTHERS, OTHERS, 0)
        for row in rows[ROWS_MAX - 1 :]:
            for name in EffectRow.__struct_fields__[2:]:
                setattr(others, name, getattr(others, name) + getattr(row, name))
        return [*rows[: ROWS_MAX - 1], others]


def group_of(job: Job) -> Group:
    return job.spec.queue, job.spec.klass


def weight(row: EffectRow) -> int:
    return row.forward + row.back + row.refused + abs(row.starts_after - row.starts_before)
