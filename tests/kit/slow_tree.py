"""The queue tree, once more, from the documentation: every question is answered from the records, in fractions."""

from collections.abc import Callable
from fractions import Fraction

from tidegate.model.base import ARRAY_BITS
from tidegate.model.jobs import Job
from tidegate.model.policy import Bounds, OrderBy, PolicySpec, Preempt, Queue, Users
from tidegate.world.decay import USE_BITS, halved
from tidegate.world.records import NO_TRIES, NO_USE, Tries
from tidegate.world.world import World

FIRST_OF_ALL = -(1 << 62)
Task = tuple[Job, int]
Place = tuple[int, int, int]
"""(0, since when it waits, job) of one past the bound; (1, …) if it sinks; first of all those who hold room."""
BEHIND_ALL: Place = (1 << 62, 0, 0)


class SlowTree:
    def __init__(self, world: World, now: int) -> None:
        self.world, self.policy, self.now = world, world.policy, now
        self.held: dict[str, dict[str, int]] = {}  # by queue or user: amounts
        self.kept: dict[Place, Job] = {}  # past the bound: those behind do without what they need under their limits
        self.shut: dict[str, Place] = {}  # for the first job past the bound that finds no room
        self.total: dict[str, int] = {}
        for node in world.nodes.values():
            for name, amount in node.capacity:
                self.total[name] = self.total.get(name, 0) + amount
        for run in world.runs.values():
            self.hold(world.jobs[run.task >> ARRAY_BITS])

    def hold(self, job: Job) -> None:
        self.kept.pop(self._place(job), None)
        for name in self.names(job):
            held = self.held.setdefault(name, {})
            for resource, amount in job.spec.shape.chunk:
                held[resource] = held.get(resource, 0) + amount * job.spec.shape.count

    def keep(self, job: Job, *, promised: bool) -> None:
        self.kept.pop(self._place(job), None)
        if promised:
            self.kept[self._place(job)] = job

    def _place(self, job: Job) -> Place:
        return int(sinks(self.policy, job)), since(self.world, job), job.id

    def keep_for_held(self) -> None:
        for promise in self.world.promises.values():
            if promise.held_until > self.now:
                self.kept[-1, 0, promise.task] = self.world.jobs[promise.task >> ARRAY_BITS]

    def has_room_held(self, job: Job, task: int) -> bool:
        return all(self._has_room(name, job, (-1, 0, task)) for name in self.names(job) if self.policy.queues)

    def keep_for_aged(self, jobs: list[Job]) -> None:
        for job in sorted(jobs, key=self._place):
            if self.has_room(job, aged=True):
                self.keep(job, promised=True)

    def names(self, job: Job) -> list[str]:
        """From the lowest up to just below the root."""
        queues, queue = self.policy.queues, job.spec.queue
        if queue not in queues:
            return [f"{queue}/."]
        words = queue.split("/")
        names = ["/".join(words[:upto]) for upto in range(len(words), 0, -1)]
        if any(other != queue and other.startswith(f"{queue}/") for other in queues):
            names.insert(0, f"{queue}/.")
        if queues[queue].users is Users.FAIR or queues[queue].user_limit:
            names.insert(0, f"{names[0]}/@{job.spec.user}")
        return names

    # -- limits ------------------------------------------------------------------------------------------

    def has_room(self, job: Job, *, aged: bool) -> bool:
        place = self._place(job) if aged else BEHIND_ALL
        full = [name for name in self.names(job) if self.policy.queues and not self._has_room(name, job, place)]
        if aged and self.may_ever_hold(job):
            self.shut.update((name, min(place, self.shut.get(name, place))) for name in full)
        return not full

    def _has_room(self, name: str, job: Job, place: Place) -> bool:
        if place > self.shut.get(name, BEHIND_ALL):
            return False
        before = [other for at, other in self.kept.items() if at < place and name in self.names(other)]
        held = self.held.get(name, {})
        for resource, most in self._limits(name, job).items():
            asked = sum(dict(one.spec.shape.chunk).get(resource, 0) * one.spec.shape.count for one in (job, *before))
            if held.get(resource, 0) + asked > most:
                return False
        return True

    def may_ever_hold(self, job: Job) -> bool:
        asked = {resource: amount * job.spec.shape.count for resource, amount in job.spec.shape.chunk}
        limits = [self._limits(name, job) for name in self.names(job)] if self.policy.queues else []
        return all(asked.get(resource, 0) <= most for limit in limits for resource, most in limit.items())

    def _limits(self, name: str, job: Job) -> dict[str, int]:
        excess = self.world.excesses.get(name)
        more = dict(excess.amounts) if excess else {}
        return {
            resource: most + more.get(resource, 0) for resource, most in self._amounts(self._limit(name, job)).items()
        }

    def _limit(self, name: str, job: Job) -> Bounds:
        if "/@" in name:
            return self.policy.queues[job.spec.queue].user_limit
        return self.policy.queues.get(name, Queue()).limit

    def _amounts(self, bounds: Bounds) -> dict[str, int]:
        return {
            bound.resource: bound.amount or self.total[bound.resource] * bound.part >> USE_BITS
            for bound in bounds
            if bound.resource in self.total
        }

    # -- turns -------------------------------------------------------------------------------------------

    def next(self, tasks: list[Task], rank: Callable[[Job], int]) -> Task:
        """The first of the queue whose turn it is; `tasks` are in order within every queue."""
        aged = [found for found in tasks if rank(found[0]) in (FIRST_OF_ALL, FIRST_OF_ALL + 1)]
        if aged:
            return aged[0]
        level = max(self._level(job) for job, _ in tasks)
        left = [found for found in tasks if self._level(found[0]) == level]
        if not self.policy.queues:
            return left[0]
        paths = {found[0].id: self._turns(found[0]) for found in left}
        at = -1
        while len({tuple(path) for path in paths.values()}) > 1:
            children = {paths[job.id][at] for job, _ in left}
            best = min(children, key=self._key)
            left = [found for found in left if paths[found[0].id][at] == best]
            paths = {found[0].id: paths[found[0].id] for found in left}
            at -= 1
        return left[0]

    def _level(self, job: Job) -> int:
        known = self.policy.classes.get(job.spec.klass)
        return known.level if known else 0

    def _turns(self, job: Job) -> list[str]:
        names = self.names(job)
        apart = "/@" in names[0]
        return names if not apart or self.policy.queues[job.spec.queue].users is Users.FAIR else names[1:]

    def _key(self, name: str) -> tuple[int, Fraction, str]:
        queue, held = self.policy.queues.get(name, Queue()), self.held.get(name, {})
        guarantee = {name: amount for name, amount in self._amounts(queue.guarantee).items() if amount}
        if guarantee and all(held.get(resource, 0) < amount for resource, amount in guarantee.items()):
            return (0, max(Fraction(held.get(r, 0) * 2**20 // a) for r, a in guarantee.items()), name)
        used = self._used(name)
        shares = [
            Fraction(((held.get(r, 0) << 20) + used.get(r, 0) << 12) // (total * queue.weight))
            for r, total in self.total.items()
            if total
        ]
        return (1, max(shares), name)

    def _used(self, name: str) -> dict[str, int]:
        account, half_life = self.world.accounts.get(name, NO_USE), self.policy.share.half_life_ms
        if not half_life:
            return {}
        found = {}
        for resource, column in self.world.columns.items():
            held = account.held[column] << 20 if column < len(account.held) else 0
            used = account.used[column] if column < len(account.used) else 0
            found[resource] = held + halved(used - held, self.now - account.at, half_life)
        return found


def sinks(policy: PolicySpec, job: Job) -> bool:
    known = policy.classes.get(job.spec.klass)
    if policy.order.by is not OrderBy.FEEDBACK or known is None or known.preempt in (Preempt.NEVER, Preempt.SUSPEND):
        return False
    return known.preempt in (Preempt.REQUEUE, Preempt.CANCEL) or job.spec.checkpoint is not None


def tried(world: World, job: Job) -> Tries:
    """Of an array, by the task whose turn is next."""
    returned = world.arrays[job.id].returned if job.spec.array is not None else (0,)
    return world.tries.get(job.id << ARRAY_BITS | returned[0], NO_TRIES) if returned else NO_TRIES


def since(world: World, job: Job) -> int:
    """When it began to wait, as far as orders ask."""
    return max(job.submit_ms, tried(world, job).until) if sinks(world.policy, job) else job.submit_ms
