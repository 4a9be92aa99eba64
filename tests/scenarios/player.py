"""Plays a scenario through the real loop and tells what happened, in the words of `Expected`."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tests.scenarios.engine import Engine
from tests.scenarios.scenario import FallData, Scenario, commands_of, listed, nodes_of, policy_of, submit_of, task_of
from tidegate.core.accept import accept
from tidegate.core.memo import Memo
from tidegate.journals.memory import MemoryJournal
from tidegate.lab.ports import VirtualClock
from tidegate.loop.loop import Cadence, Loop
from tidegate.loop.recovery import recover
from tidegate.model import events as ev
from tidegate.model.base import index_of, job_of
from tidegate.model.commands import ChangePolicy, Command, Refused, SetNode
from tidegate.model.nodes import Node
from tidegate.wire.units import format_duration, parse_duration
from tidegate.world.check import check
from tidegate.world.snapshot import dump, load
from tidegate.world.world import World

TURNS_MAX = 10_000
EVENTS_MAX = 10_000
"""A scenario that goes on for ever is stopped, within a turn too."""


class Script:
    """The inbox: what the scenario sends, when its time has come."""

    def __init__(self, scenario: Scenario) -> None:
        sent: list[tuple[int, str, Command]] = [
            (parse_duration(job.submit), str(job.id), submit_of(job)) for job in scenario.jobs
        ]
        for event in scenario.events:
            sent += [(parse_duration(event.at), name, command) for name, command in commands_of(event)]
        self.coming = sorted(sent, key=lambda item: item[0])
        self.names: dict[int, str] = {}
        self.refused: dict[str, str] = {}

    def take(self, now: int, at_most: int) -> Sequence[Command]:
        due = [item for item in self.coming if item[0] <= now][:at_most]
        self.coming = self.coming[len(due) :]
        self.names.update((id(command), name) for _, name, command in due)
        return [command for _, _, command in due]

    def answer(self, command: Command, result: Refused | tuple[ev.Event, ...]) -> None:
        if isinstance(result, Refused):
            self.refused[self.names[id(command)]] = f"{result.what}; {result.cure}"

    def next_at(self) -> int | None:
        return self.coming[0][0] if self.coming else None


class Journal:
    """A journal in memory that does not grow for ever."""

    def __init__(self) -> None:
        self.memory = MemoryJournal()
        self.events = self.memory.events
        self.flush, self.close, self.read = self.memory.flush, self.memory.close, self.memory.read
        self.record, self.keep_snapshot = self.memory.record, self.memory.keep_snapshot
        self.snapshots = self.memory.snapshots
        self.keeps_history, self.recorded = False, 0

    @property
    def seq(self) -> int:
        return self.memory.seq

    def append(self, events: Sequence[ev.Event]) -> None:
        self.memory.append(events)
        if len(self.events) > EVENTS_MAX:
            raise AssertionError(f"no end after {EVENTS_MAX} events; the last: {events[-1]}")


class Played:
    """All that happened, from the journal alone."""

    def __init__(self, scenario: Scenario, *, cold: bool = False) -> None:
        self.journal = Journal()
        self.world = World()
        script = Script(scenario)
        engine = Engine(scenario)
        loop = Loop(self.world, VirtualClock(), self.journal, engine, script, Cadence(scenario.cadence))
        nodes: list[Command] = [SetNode(node) for said in scenario.nodes for node in nodes_of(said)]
        for command in (*nodes, ChangePolicy(policy_of(scenario.policy))):
            answer = accept(self.world, command, 0)
            assert not isinstance(answer, Refused), answer
            loop.commit(answer)
        for _ in range(TURNS_MAX):
            if cold:
                loop.memo = Memo()
            going_on = loop.turn()
            unsound = check(self.world, may_be_overfull=True)
            assert not unsound, f"at {format_duration(loop.clock.now())}: {unsound[0]}"
            if not going_on:
                break
        else:
            raise AssertionError(f"no end after {TURNS_MAX} turns, at {format_duration(loop.clock.now())}")
        self.refused = script.refused
        self.notices = engine.notices
        self.arrays = {job.id for job in scenario.jobs if job.array}

    # -- reading the journal -----------------------------------------------------------------------------

    def task(self, task: int) -> str:
        job = job_of(task)
        return f"{job}[{index_of(task)}]" if job in self.arrays else str(job)

    def started(self) -> Iterator[ev.JobStarted]:
        return (event for event in self.journal.events if isinstance(event, ev.JobStarted))

    def starts(self) -> dict[str, list[tuple[str, str]]]:
        """task -> (when, where) of each attempt"""
        found = defaultdict(list)
        for event in self.started():
            where = ",".join(name if count == 1 else f"{name}x{count}" for name, count in event.nodes)
            found[self.task(event.task)].append((format_duration(event.at), where))
        return found

    def suspended(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for event in self.journal.events:
            if isinstance(event, ev.JobSuspended):
                found[self.task(event.task)].append(f"{format_duration(event.at)}-")
            elif isinstance(event, ev.JobResumed):
                found[self.task(event.task)][-1] += format_duration(event.at)
        return found

    def promises(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for event in self.journal.events:
            for promise in event.promised if isinstance(event, ev.CycleRan) else ():
                known, when = found[self.task(promise.task)], format_duration(promise.start_by)
                if known[-1:] != [when]:
                    known.append(when)
        return found

    def estimates(self) -> dict[str, list[str]]:
        found = defaultdict(list)
        for event in self.journal.events:
            if isinstance(event, ev.JobStarted | ev.EstimateRaised):
                found[self.task(event.task)].append(format_duration(event.expected_end))
        return found

    def nodes(self) -> dict[str, list[tuple[str, str, str]]]:
        """node -> (when, state, why) of each change, without the first"""
        known: dict[str, Node] = {}
        found = defaultdict(list)
        for event in self.journal.events:
            match event:
                case ev.NodeChanged(node=node) | ev.NodeSuspected(node=node) | ev.NodeTried(node=node):
                    after = node
                case ev.NodeCleared(name=name):
                    after = replace(known[name], why="")
                case _:
                    continue
            before = known.get(after.name)
            known[after.name] = after
            if before is not None and (before.state, before.why) != (after.state, after.why):
                found[after.name].append((format_duration(event.at), after.state.value, after.why))
        return found

    def reservations(self) -> dict[str, list[str]]:
        """When it was made or moved, and where to; when it was over, and why."""
        found: dict[str, list[str]] = defaultdict(list)
        for event in self.journal.events:
            match event:
                case ev.ReservationMade(nodes=nodes) | ev.ReservationMoved(nodes=nodes):
                    name = event.spec.name if isinstance(event, ev.ReservationMade) else event.name
                    where = ",".join(node if count == 1 else f"{node}x{count}" for node, count in nodes)
                    found[name].append(f"{format_duration(event.at)} on {where}")
                case ev.ReservationOver(name=name, why=why):
                    found[name].append(f"{format_duration(event.at)} over: {why}")
                case _:
                    continue
        return found

    def policies(self) -> list[str]:
        """When, version, name, by whom and with what note, of each change."""
        return [
            f"{format_duration(event.at)} {event.version} {event.policy.name}"
            + (f" by {event.by}" if event.by else "")
            + (f": {event.note}" if event.note else "")
            for event in self.journal.events
            if isinstance(event, ev.PolicyChanged)
        ]

    def tides(self) -> dict[str, list[tuple[str, str, str]]]:
        """pool -> (when, what it turned to, why) of each turn"""
        found = defaultdict(list)
        for event in self.journal.events:
            if isinstance(event, ev.TideTurned):
                found[event.pool].append((format_duration(event.at), event.after.value, event.why))
        return found

    def mean_completion_ms(self) -> int:
        """Of all tasks, from when their job was submitted."""
        submits, took = {}, []
        for event in self.journal.events:
            if isinstance(event, ev.JobSubmitted):
                submits[event.job.id] = event.at
            elif isinstance(event, ev.JobEnded):
                took.append(event.at - submits[job_of(event.task)])
        return sum(took) // len(took)

    def ends(self) -> dict[str, tuple[str, str]]:
        """task, or job where what was left of it was dropped -> (when, outcome)"""
        found = {}
        for event in self.journal.events:
            if isinstance(event, ev.JobEnded):
                found[self.task(event.task)] = (format_duration(event.at), event.outcome.value)
            elif isinstance(event, ev.JobDropped):
                found[str(event.job)] = (format_duration(event.at), event.outcome.value)
        for job in self.arrays:
            if job in self.world.outcomes:
                found.setdefault(str(job), ("", self.world.outcomes[job].value))
        return found


def differences(scenario: Scenario, played: Played) -> list[str]:
    """A line for everything that came out otherwise than expected."""
    expect = scenario.expect
    found = list(_starts(scenario, played))
    ends = played.ends()
    for task, when in expect.ends.items():
        found += _differ(f"{task} ends", _time(when), ends.get(task, ("never", ""))[0])
    for task, outcome in expect.outcomes.items():
        found += _differ(f"{task} ends as", outcome, ends.get(task, ("", "nothing yet"))[1])
    for what, wanted, got in (
        ("promised", expect.promises, played.promises()),
        ("expected to end", expect.estimates, played.estimates()),
    ):
        for task, times in wanted.items():
            found += _differ(f"{task} {what}", [_time(one) for one in listed(times)], got.get(task, []))
    suspended = played.suspended()
    for task in {*expect.suspended, *suspended}:
        found += _differ(f"{task} suspended", listed(expect.suspended.get(task, [])), suspended.get(task, []))
    found += _nodes(scenario, played)
    for pool, turns in expect.tides.items():
        pairs = [(_time(when), state) for when, _, state in (one.partition(" ") for one in listed(turns))]
        found += _differ(f"tide of {pool}", pairs, [(when, state) for when, state, _ in played.tides()[pool]])
    for pool, reasons in expect.tide_whys.items():
        given = " / ".join(why for _, _, why in played.tides()[pool])
        found += [
            f"why of the tide of {pool}: wanted {part!r}, got {given!r}"
            for part in listed(reasons)
            if part not in given
        ]
    for job, outcomes in expect.notices.items():
        told = [outcome.value for told, outcome in played.notices if told == int(job)]
        found += _differ(f"notices of {job}", listed(outcomes), told)
    for name in {*expect.refused, *played.refused}:
        part, refusal = expect.refused.get(name), played.refused.get(name, "nothing")
        if part is None or part not in refusal:
            found.append(f"refusal of {name}: wanted {part!r}, got {refusal!r}")
    for name, said in expect.reservations.items():
        found += _differ(f"reservation {name}", listed(said), played.reservations().get(name, []))
    if expect.completion_falls is not None:
        found += _falls(expect.completion_falls, scenario, played)
    if expect.policies is not None:
        found += _differ("policies", expect.policies, played.policies())
    cuts = [event.cut for event in played.journal.events if isinstance(event, ev.CycleRan) and event.cut]
    return found + (_differ("cycles cut by", expect.cuts, cuts) if expect.cuts is not None else [])


def _nodes(scenario: Scenario, played: Played) -> Iterator[str]:
    changes = played.nodes()
    for name, wanted in scenario.expect.nodes.items():
        pairs = [(_time(when), state) for when, _, state in (one.partition(" ") for one in listed(wanted))]
        states = [(when, state) for when, state, _ in changes[name]]
        new = [one for one, before in zip(states, [("", ""), *states], strict=False) if one[1] != before[1]]
        yield from _differ(f"{name} is", pairs, new)
    for name, part in scenario.expect.node_why.items():
        given = [why for _, _, why in changes[name] if why][-1:]
        if not given or part not in given[0]:
            yield f"why of {name}: wanted {part!r}, got {given}"


def _starts(scenario: Scenario, played: Played) -> Iterator[str]:
    expect, starts = scenario.expect, played.starts()
    order = [task for task, _ in ((played.task(event.task), event) for event in played.started())]
    for task, wanted in expect.starts.items():
        pairs = [(_time(when), where) for when, _, where in (one.partition(" on ") for one in listed(wanted))]
        got = starts.get(task, [])
        shown = [(when, where if said else "") for (when, where), (_, said) in zip(got, pairs, strict=False)]
        yield from _differ(f"{task} starts", pairs, [*shown, *got[len(pairs) :]])
    for task in expect.not_started:
        yield from _differ(f"{task} starts", [], starts.get(task, []))
    unnamed = set(order) - {*expect.starts, *expect.order, *expect.not_started}
    if (expect.starts or expect.order) and unnamed:
        yield f"started and not expected to: {', '.join(sorted(unnamed, key=task_of))}"
    if expect.order:
        yield from _differ("order of starts", expect.order, order)
    if expect.backfilled is not None:
        ahead = [played.task(event.task) for event in played.started() if event.backfilled]
        yield from _differ("backfilled", expect.backfilled, ahead)


def _falls(wanted: FallData, scenario: Scenario, played: Played) -> Iterator[str]:
    mine, other = (one.mean_completion_ms() for one in (played, Played(replace(scenario, policy=wanted.against))))
    if mine * 100 > other * (100 - wanted.percent):
        yield f"mean completion {format_duration(mine)}, under {wanted.against} {format_duration(other)}"


def _time(said: str) -> str:
    return format_duration(parse_duration(said))


def _differ(what: str, wanted: object, got: object) -> list[str]:
    return [] if wanted == got else [f"{what}: wanted {wanted}, got {got}"]


def check_replay(scenario: Scenario, played: Played) -> list[str]:
    """What must hold for every scenario: cold caches decide the same, and the journal alone gives the state."""
    found = []
    cold = Played(scenario, cold=True)
    pairs = zip(played.journal.events, cold.journal.events, strict=False)
    other = next((f"warm {warm}, cold {chilled}" for warm, chilled in pairs if warm != chilled), "")
    if other or len(played.journal.events) != len(cold.journal.events):
        found.append(f"cold caches decide otherwise: {other or 'one went on longer'}")
    loaded = load(dump(played.world))
    digests = (
        played.world.full_digest(), played.world.read_digest(), recover(played.journal).full_digest(),
        loaded.full_digest(),
    )  # fmt: skip
    if len(set(digests)) > 1:
        found.append(f"digests differ: live in full, live as kept, recovered, from a snapshot: {digests}")
    unsound = check(loaded, may_be_overfull=True)
    if unsound:
        found.append(f"the snapshot is unsound: {unsound[0]}")
    return found
