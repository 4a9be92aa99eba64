"""The answers: one method a route. Reads are answered at once; wishes when the turn that took them is safe."""

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from tidegate.api.access import Access
from tidegate.api.follow import EVENTS_KIND, SUBSCRIBERS_MAX, Stream, Streams, Waits
from tidegate.api.http import TEXT, Request
from tidegate.api.live import LiveInbox, Result, ToldJournal, Wish
from tidegate.api.openapi import document
from tidegate.api.past import Past, PastRows
from tidegate.api.policies import HISTORY_LIMIT, Judge, Policies
from tidegate.api.poll import Poll
from tidegate.api.promised import PromisesKept
from tidegate.api.reservations import reservations_body, reserve_of
from tidegate.api.rows import live_rows, node_rows
from tidegate.api.shares import excess_of, share_body
from tidegate.api.submit import MistakeError, command_of
from tidegate.api.table import Look, QueueTable, text_of
from tidegate.api.tides import tides_body
from tidegate.api.words import RefusedError, Tasks, number, problem, states_of, task_of
from tidegate.model import commands as cmd
from tidegate.model.commands import Command, Refused
from tidegate.model.events import JobSubmitted
from tidegate.model.jobs import Job
from tidegate.model.nodes import NodeState
from tidegate.policy.share import approvers_of
from tidegate.ports import JournalError
from tidegate.wire import api
from tidegate.wire.api import ROUTES, Route
from tidegate.wire.reservations import EndReservationBody, ReserveBody
from tidegate.world.world import World

ROWS_MAX = 1_000_000
WAIT_MAX_MS = 60_000
KINDS = {
    "jobs": "{job}", "nodes": "{node}", "queues": "{queue}", "reservations": "{reservation}", "slurm": "{command}",
}  # fmt: skip
"""What the third part of a path names."""

encode = msgspec.json.encode


def unexpected(error: Exception) -> str:
    """The field first, as whoever wrote it knows it."""
    expected, at, field = str(error).partition(" - at `$.")
    return f"{field.rstrip('`')}: {expected[:1].lower()}{expected[1:]}" if at else f"the body is wrong: {error}"


def not_taken(refused: Refused) -> api.ResultBody:
    return api.ResultBody(error=api.Problem(refused.what, refused.cure))


@dataclass(frozen=True, slots=True)
class Facts:
    """What the server knows of itself, for `status`."""

    about: Callable[[], dict[str, Any]]
    now: Callable[[], int]
    stop: Callable[[bool], None]  # True: the keeper too
    trouble: Callable[[], Refused | None]  # why no command can be taken just now


class Service:
    """Everything a request can reach."""

    def __init__(
        self, world: World, inbox: LiveInbox, journal: ToldJournal, past: Past, access: Access, facts: Facts,
        judge: Judge,
    ) -> None:  # fmt: skip
        self.world = world
        self.inbox = inbox
        self.journal = journal
        self.past = past
        self.access = access
        self.facts = facts
        self.policies = Policies(world, inbox, past, judge, facts.now)
        self.table = QueueTable(world)
        self.promised = PromisesKept(world)
        self.waits = Waits()
        self.streams = Streams()
        self.dialect: Callable[[Request, str], None] | None = None  # answers another scheduler's commands
        self.routes: dict[tuple[str, str], tuple[Route, Any, Any]] = {}
        for route in ROUTES:
            decoder = msgspec.json.Decoder(route.body) if route.body is not None else None
            self.routes[route.method, route.path] = (route, getattr(self, f"_{route.name}"), decoder)

    # -- dispatch ----------------------------------------------------------------------------------------

    def handle(self, request: Request) -> None:
        try:
            self._answer(request)
        except RefusedError as refused:
            request.answer(refused.status, problem(refused.what, refused.cure))
        except MistakeError as mistake:
            request.answer(400, problem(mistake.refused.what, mistake.refused.cure))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            request.answer(400, problem(unexpected(error), "correct it; /v1/openapi.json says what may be sent"))
        except JournalError as error:
            request.answer(503, problem(f"the journal cannot be used: {error}", "try again when that is mended"))
        except Exception:  # noqa: BLE001  a bug must end one answer, not the server; the log has it whole
            traceback.print_exc()
            request.answer(500, problem("a mistake in tidegate itself", "please report it, with the server's log"))

    def _answer(self, request: Request) -> None:
        (_, method, decoder), word = self._find(request)
        if decoder is None:
            method(request, word) if word else method(request)
        else:
            body = decoder.decode(request.body or b"{}")
            method(request, body, word) if word else method(request, body)

    def _find(self, request: Request) -> tuple[tuple[Route, Any, Any], str]:
        path = request.target.decode("latin-1")
        method = request.method
        known = self.routes.get((method, path))
        if known is not None:
            return known, ""
        parts = path.split("/")
        general = path
        if len(parts) in {4, 5} and parts[1] == "v1" and parts[3]:
            kind = KINDS.get(parts[2], "")
            general = "/".join([*parts[:3], kind, *parts[4:]])
            known = self.routes.get((method, general))
            if known is not None:
                return known, unquote(parts[3])
        if any(other in {path, general} for _, other in self.routes):
            raise RefusedError(405, f"{method} does not go with {path}", "see /v1/openapi.json")
        raise RefusedError(404, f"there is nothing at {path}", "see /v1/openapi.json")

    # -- submitting --------------------------------------------------------------------------------------

    def _submit(self, request: Request, body: api.SubmitBody) -> None:
        self._may_command(request, 1)
        command = command_of(body, request.peer.user)
        self.inbox.put(command, partial(self._submitted, request, command))

    def _submitted(self, request: Request, command: cmd.Submit, result: Result) -> None:
        answer = self._submission(command, result)
        request.answer(200 if answer.error is None else 409, encode(answer))

    def _submission(self, command: cmd.Submit, result: Result) -> api.ResultBody:
        if isinstance(result, Refused):
            return not_taken(result)
        tasks = 1 if command.spec.array is None else len(command.spec.array.indices)
        if not result:
            return api.ResultBody(self.world.keys[command.key][0], tasks, True)
        submitted = result[-1]
        assert isinstance(submitted, JobSubmitted), "a submission ends with its job"
        return api.ResultBody(submitted.job.id, tasks)

    def _submit_many(self, request: Request, body: api.SubmitManyBody) -> None:
        self._may_command(request, len(body.jobs))
        answers: list[api.ResultBody | None] = [None] * len(body.jobs)
        open_answers = len(answers)

        def answered(at: int, answer: api.ResultBody) -> None:
            nonlocal open_answers
            answers[at] = answer
            open_answers -= 1
            if not open_answers:
                request.answer(200, encode({"results": answers}))

        def reply(at: int, command: cmd.Submit, result: Result) -> None:
            answered(at, self._submission(command, result))

        def wishes() -> Iterator[Wish]:
            for at, job in enumerate(body.jobs):
                try:
                    command = command_of(job, request.peer.user)
                except MistakeError as mistake:
                    answered(at, not_taken(mistake.refused))
                else:
                    yield command, partial(reply, at, command)

        if answers:
            self.inbox.put_many(wishes())
        else:
            request.answer(200, encode({"results": []}))

    def _may_command(self, request: Request, commands: int) -> None:
        trouble = self.facts.trouble()
        if trouble is not None:
            raise RefusedError(503, trouble.what, trouble.cure)
        if self.inbox.is_full:
            raise RefusedError(503, "too many commands are waiting", "try again in a second")
        wait_s = self.access.spend(request.peer.user, commands, time.monotonic())
        if wait_s:
            raise RefusedError(429, "too many commands at once", f"try again in {wait_s:.1f} s, or submit an array")

    # -- one job -----------------------------------------------------------------------------------------

    def _known(self, job_id: int) -> Job:
        job = self.world.jobs.get(job_id) or self.past.job(job_id)
        if job is None:
            raise RefusedError(404, f"there is no job {job_id}", "`tide queue --all` lists the known ones")
        return job

    def _owned(self, request: Request, word: str) -> Job:
        """If the one who asks may touch the job."""
        job = self._known(number(word, "a job id"))
        if not request.peer.may_touch(job.spec.user):
            raise RefusedError(403, f"job {job.id} belongs to {job.spec.user}", "ask them, or an administrator")
        return job

    def _job(self, request: Request, word: str) -> None:
        job = self._owned(request, word)
        index = task_of(job, self._query(request, "job").get("index", ""))
        request.answer(200, encode(self.past.whole(self.world, job.id, index)))

    def _cancel(self, request: Request, body: api.TaskBody, word: str) -> None:
        self._act(request, word, lambda job: cmd.Cancel(job, body.index, request.peer.user))

    def _hold(self, request: Request, body: api.TaskBody, word: str) -> None:
        self._whole(body)
        self._act(request, word, lambda job: cmd.Hold(job, request.peer.user))

    def _release(self, request: Request, body: api.TaskBody, word: str) -> None:
        self._whole(body)
        self._act(request, word, lambda job: cmd.Release(job, request.peer.user))

    def _requeue(self, request: Request, body: api.TaskBody, word: str) -> None:
        self._act(request, word, lambda job: cmd.Requeue(job, body.index, request.peer.user))

    def _suspend(self, request: Request, body: api.TaskBody, word: str) -> None:
        self._act(request, word, lambda job: cmd.Suspend(job, body.index, request.peer.user))

    def _resume_job(self, request: Request, body: api.TaskBody, word: str) -> None:
        self._act(request, word, lambda job: cmd.Resume(job, body.index, request.peer.user))

    def _checkpoint(self, request: Request, body: api.TaskBody, word: str) -> None:
        self._act(request, word, lambda job: cmd.AskCheckpoint(job, body.index, request.peer.user))

    def _whole(self, body: api.TaskBody) -> None:
        if body.index >= 0:
            raise RefusedError(409, "one task of an array cannot be held or released", "hold the whole job")

    def _act(self, request: Request, word: str, command: Callable[[int], Command]) -> None:
        job_id = self._owned(request, word).id
        if job_id not in self.world.jobs:
            ended = self.past.state_of(job_id)
            raise RefusedError(409, f"job {job_id} has ended: {ended}", "there is nothing left to do about it")
        self._command(request, command(job_id))

    def _command(self, request: Request, command: Command) -> None:
        self._may_command(request, 1)

        def reply(result: Result) -> None:
            if isinstance(result, Refused):
                request.answer(409, problem(result.what, result.cure))
            else:
                request.answer(200, encode(api.DoneBody(done=bool(result))))

        self.inbox.put(command, reply)

    def _log(self, request: Request, word: str) -> None:
        job = self._owned(request, word)
        asked = self._query(request, "log")
        stream = asked.get("stream", "stdout")
        if stream not in {"stdout", "stderr"}:
            raise RefusedError(400, f"there is no stream {stream!r}", "ask for stdout or stderr")
        index = task_of(job, asked.get("index", ""))
        if index < 0 and job.spec.array is not None:
            raise RefusedError(400, f"job {job.id} is an array", "say which of its tasks: index=N")
        offset = number(asked.get("offset", "0"), "an offset")
        request.answer(200, self.past.log(job, max(0, index), stream, offset), b"application/octet-stream")

    # -- many jobs ---------------------------------------------------------------------------------------

    def _jobs(self, request: Request) -> None:
        asked = self._query(request, "jobs")
        wanted = states_of(asked.get("state", ""))
        if asked.get("user") == "me":
            asked["user"] = request.peer.user
        limit = number(asked.get("limit", str(ROWS_MAX)), "a limit")
        tasks = Tasks(asked["job"]) if "job" in asked else None
        jobs = self._chosen(asked, tasks)
        is_text = b"text/plain" in request.headers.get(b"accept", b"")
        is_all = asked.get("all", "0") not in {"", "0"}
        look = Look(
            now=self.facts.now(), width=number(asked.get("width", "80"), "a width"), states=wanted,
            rows_max=limit, is_coloured=asked.get("colour") == "1",
        )  # fmt: skip
        if is_text and not is_all and (tasks is None or not tasks.indices):
            request.answer(200, self.table.text(jobs, look), TEXT)
            return
        rows = list(live_rows(self.world, jobs))
        if wanted:
            rows = [row for row in rows if row.state in wanted]
        if tasks is not None:
            rows = [row for row in rows if tasks.wants(row)]

        def send(found: list[api.JobRow], *, more: bool) -> None:
            if is_text:
                request.answer(200, text_of(found, look), TEXT)
            else:
                request.answer(200, encode(api.JobsBody(found, more)))

        more = len(rows) > limit
        rows = rows[:limit]
        if not is_all:
            send(rows, more=more)
            return
        wish = PastRows(
            user=asked.get("user", ""), queue=asked.get("queue", ""), states=wanted,
            tasks=tasks, limit=limit - len(rows),
        )  # fmt: skip
        self.past.rows(request, wish, lambda past, older: send([*past, *rows], more=more or older))

    def _chosen(self, asked: dict[str, str], tasks: Tasks | None) -> list[Job]:
        world = self.world
        if tasks is not None:
            jobs = [world.jobs[job] for job in tasks.jobs if job in world.jobs]
        else:
            jobs = list(world.jobs.values())
        user, queue = asked.get("user"), asked.get("queue")
        if user is not None:
            jobs = [job for job in jobs if job.spec.user == user]
        if queue is not None:
            jobs = [job for job in jobs if job.spec.queue == queue]
        return jobs

    def _wait(self, request: Request) -> None:
        asked = self._query(request, "wait")
        tasks = Tasks(asked.get("job", ""))
        if not tasks.jobs:
            raise RefusedError(400, "no jobs are named", "say which: /v1/wait?job=12,13_5")
        for job_id in tasks.jobs:
            job = self._known(job_id)
            for index in tasks.indices.get(job_id, ()):
                task_of(job, str(index))
        known = number(asked.get("ended", "0"), "a count") if "ended" in asked else -1
        timeout_ms = min(number(asked.get("timeout_ms", "30000"), "a time in milliseconds"), WAIT_MAX_MS)
        Poll(self.world, self.past, self.waits, request, tasks, known, timeout_ms).start()

    # -- nodes -------------------------------------------------------------------------------------------

    def _nodes(self, request: Request) -> None:
        declared = bool(self.facts.about().get("declared"))
        request.answer(200, encode(api.NodesBody(list(node_rows(self.world)), declared)))

    def _drain(self, request: Request, body: api.NodeActionBody, word: str) -> None:
        self._may_manage(request)
        why = body.why or f"drained by {request.peer.user}"
        self._command(request, cmd.SetNodeState(word, NodeState.DRAINING, why))

    def _resume(self, request: Request, body: api.NodeActionBody, word: str) -> None:
        self._may_manage(request)
        self._command(request, cmd.SetNodeState(word, NodeState.UP, body.why))

    # -- queues ------------------------------------------------------------------------------------------

    def _share(self, request: Request) -> None:
        request.answer(200, encode(share_body(self.world, self.facts.now())))

    def _tide(self, request: Request) -> None:
        request.answer(200, encode(tides_body(self.world, self.facts.now())))

    def _approve(self, request: Request, body: api.ExcessBody, word: str) -> None:
        self._may_approve(request, word)
        self._command(request, excess_of(body, word, request.peer.user))

    def _revoke(self, request: Request, _body: api.RevokeBody, word: str) -> None:
        self._may_approve(request, word)
        self._command(request, cmd.RevokeExcess(word, request.peer.user))

    def _may_approve(self, request: Request, queue: str) -> None:
        approvers = approvers_of(self.world.policy, queue)
        if not request.peer.is_admin and request.peer.user not in approvers:
            who = f"one of: {', '.join(approvers)}" if approvers else "an administrator"
            raise RefusedError(403, f"{request.peer.user} may not approve anything for queue {queue!r}", f"ask {who}")

    # -- reservations ------------------------------------------------------------------------------------

    def _reservations(self, request: Request) -> None:
        request.answer(200, encode(reservations_body(self.world, self.facts.now())))

    def _reserve(self, request: Request, body: ReserveBody) -> None:
        if body.force:
            self._may_manage(request, "reserve over what runs or is promised")
        peer = request.peer
        self._command(request, reserve_of(body, peer.user, self.facts.now(), is_admin=peer.is_admin))

    def _end_reservation(self, request: Request, _body: EndReservationBody, word: str) -> None:
        known = self.world.reservations.get(word)
        if known is not None and not request.peer.may_touch(known.spec.by):
            raise RefusedError(403, f"reservation {word!r} is {known.spec.by!r}'s", "ask them, or an administrator")
        self._command(request, cmd.EndReservation(word, request.peer.user))

    def _may_manage(self, request: Request, what: str = "manage the server") -> None:
        if not request.peer.is_admin:
            raise RefusedError(403, f"{request.peer.user} may not {what}", "ask an administrator")

    # -- the policy --------------------------------------------------------------------------------------

    def _policy(self, request: Request) -> None:
        self.policies.show(request, number(self._query(request, "policy").get("version", "0"), "a version"))

    def _policy_history(self, request: Request) -> None:
        asked = self._query(request, "policy_history")
        self.policies.history(request, number(asked.get("limit", str(HISTORY_LIMIT)), "a limit"))

    def _policy_diff(self, request: Request, body: api.PolicyChoice) -> None:
        self.policies.compare(request, body)

    def _set_policy(self, request: Request, body: api.PolicyWish) -> None:
        self._may_manage(request, f"change the policy: that is for {self.access.name} and administrators")
        self._may_command(request, 1)
        self.policies.put(request, body)

    # -- events, the server ------------------------------------------------------------------------------

    def _events(self, request: Request) -> None:
        if len(self.streams.live) >= SUBSCRIBERS_MAX:
            raise RefusedError(503, f"{SUBSCRIBERS_MAX} others follow already", "try again later")
        asked = self._query(request, "events")
        last = request.headers.get(b"last-event-id", b"").decode("latin-1") or asked.get("after", "")
        after = min(number(last, "an event number"), self.journal.seq) if last else self.journal.seq
        request.stream(EVENTS_KIND)
        self.past.catch_up(Stream(request, self.past.owner_of(self.world), after), self.journal, self.streams)

    def _slurm(self, request: Request, word: str) -> None:
        if self.dialect is None:
            raise RefusedError(404, "Slurm's commands are not answered here", "ask a server that `tide up` started")
        self.dialect(request, word)

    def _status(self, request: Request) -> None:
        world = self.world
        in_arrays = sum(state.running for state in world.arrays.values())
        waiting = len(world.jobs) - len(world.arrays) - (len(world.runs) - in_arrays)
        for job_id, state in world.arrays.items():
            array = world.jobs[job_id].spec.array
            waiting += state.waiting(len(array.indices)) if array is not None else 0
        about = self.facts.about()
        about.pop("declared", None)
        body = api.StatusBody(waiting=waiting, running=len(world.runs), seq=self.journal.seq,
                              ended=self.past.ended_count(), policy=world.policy.name,
                              policy_version=world.policy_version, promises=self.promised.told(), **about)  # fmt: skip
        request.answer(200, encode(body))

    def _stop(self, request: Request, body: api.StopBody) -> None:
        self._may_manage(request)
        request.answer(200, encode(api.DoneBody(True)), extra=b"Connection: close\r\n")
        self.facts.stop(body.keeper)

    def _openapi(self, request: Request) -> None:
        request.answer(200, document())

    def _query(self, request: Request, route: str) -> dict[str, str]:
        known = {name for one in ROUTES if one.name == route for name, _ in one.query}
        asked = dict(parse_qsl(request.query.decode("latin-1"), keep_blank_values=True, max_num_fields=100))
        for name in asked:
            if name not in known:
                raise RefusedError(400, f"there is no parameter {name!r} here", f"use: {', '.join(sorted(known))}")
        return asked

    def watchers(self) -> Sequence[Any]:
        return (self.table, self.promised, self.waits, self.streams)
