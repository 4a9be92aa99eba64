"""The policy: shown, compared, put in force. A policy is read, checked and tried by a process of its own, the judge, so
that the writer does nothing about it but take the change.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from tidegate.api.aside import Aside
from tidegate.api.http import Request
from tidegate.api.live import LiveInbox, Result
from tidegate.api.past import Past
from tidegate.api.words import RefusedError, problem
from tidegate.model.commands import ChangePolicy, Refused
from tidegate.model.policy import PolicySpec
from tidegate.wire import api
from tidegate.wire.policy_file import dump_policy
from tidegate.world.world import World

WAITING_MAX = 8
"""So many policies of a line are judged or wait for it; who comes then is told to come again."""
HISTORY_LIMIT = 50
HISTORY_MAX = 10_000
ERRORS_MAX = 20
CANNOT = "the policy cannot be judged"

encode = msgspec.json.encode


class Question(msgspec.Struct):
    """Which policy is meant, and against which it is compared."""

    in_force: PolicySpec
    version: int  # of that
    choice: api.PolicyChoice
    spec: PolicySpec | None  # what the choice means, where that is known
    now: int
    look: bool  # also what it means for the jobs that are there


class Verdict(msgspec.Struct):
    """Errors, each with its place; or the policy and what differs."""

    errors: list[str]
    spec: PolicySpec | None = None
    diff: api.PolicyDiffBody | None = None


class Judge(Protocol):
    def __call__(self, question: Question) -> Verdict:
        """From a thread, or from two at once; it may take seconds."""
        ...

    def close(self) -> None:
        """Whoever is being answered is answered no more."""
        ...


class Policies:
    def __init__(self, world: World, inbox: LiveInbox, past: Past, judge: Judge, now: Callable[[], int]) -> None:
        self.world = world
        self.inbox = inbox
        self.past = past
        self.judge = judge
        self.now = now
        # Two lines, so that those who only look never keep those from changing the policy who may.
        self.looks = Aside(past.aio, CANNOT)
        self.changes = Aside(past.aio, CANNOT)

    def close(self) -> None:
        self.judge.close()
        self.looks.close()
        self.changes.close()

    def show(self, request: Request, version: int) -> None:
        """0: the one in force."""
        world = self.world
        version = version or world.policy_version
        known = self.past.policy(version)
        if known is None and version != world.policy_version:
            raise RefusedError(404, f"there is no version {version} of the policy", "`tide policy history` lists them")
        policy = world.policy if known is None else known.policy
        at_ms, by, note = (None, "", "") if known is None else (known.at or None, known.by, known.note)
        request.answer(200, encode(api.PolicyBody(version, policy.name, dump_policy(policy), at_ms, by, note)))

    def history(self, request: Request, limit: int) -> None:
        def told(rows: list[api.PolicyVersionRow], more: bool) -> None:
            request.answer(200, encode(api.PolicyHistoryBody(rows, more)))

        self.past.policies(request, max(1, min(limit, HISTORY_MAX)), told)

    def compare(self, request: Request, choice: api.PolicyChoice) -> None:
        question = self._question(choice, look=True)
        self._judged(self.looks, request, question, lambda _, diff: request.answer(200, encode(diff)))

    def put(self, request: Request, wish: api.PolicyWish) -> None:
        def settled(spec: PolicySpec, diff: api.PolicyDiffBody) -> None:
            if not wish.dry_run:
                self._change(request, wish, spec)
            elif diff.changes and wish.if_version not in {-1, diff.version}:
                what = f"the policy in force is version {diff.version} ({diff.old!r}), not {wish.if_version}"
                cure = f"`tide policy history` says what changed; then say version {diff.version}"
                request.answer(409, problem(what, cure))
            else:
                body = api.PolicySetBody(bool(diff.changes), diff.version, diff.old, diff)
                request.answer(200, encode(body))

        self._judged(self.changes, request, self._question(wish, look=wish.dry_run), settled)

    def _change(self, request: Request, wish: api.PolicyWish, spec: PolicySpec) -> None:
        if request.gone:
            return  # nobody is there to be told, and whoever asks again may mean something else by then

        def reply(result: Result) -> None:
            if isinstance(result, Refused):
                request.answer(409, problem(result.what, result.cure))
            else:
                version = self.world.policy_version
                request.answer(200, encode(api.PolicySetBody(bool(result), version, self.world.policy.name)))

        self.inbox.put(ChangePolicy(spec, request.peer.user, wish.note, wish.if_version), reply)

    def _judged(
        self,
        line: Aside,
        request: Request,
        question: Question,
        done: Callable[[PolicySpec, api.PolicyDiffBody], None],
    ) -> None:
        if line.waiting >= WAITING_MAX:
            raise RefusedError(503, "others have policies judged already", "try again in a few seconds")

        def ended(verdict: Verdict) -> None:
            if verdict.spec is None or verdict.diff is None:
                request.answer(400, problem("\n".join(verdict.errors[:ERRORS_MAX]), "nothing was changed"))
            else:
                done(verdict.spec, verdict.diff)

        line.do(request, lambda: self.judge(question), ended)

    def _question(self, choice: api.PolicyChoice, *, look: bool) -> Question:
        if sum((bool(choice.text), bool(choice.name), bool(choice.version))) != 1:
            raise RefusedError(400, "it is not clear which policy is meant", "give one of text, name and version")
        spec = None
        if choice.version:
            known = self.past.policy(choice.version)
            if known is None:
                what = f"there is no version {choice.version} of the policy"
                raise RefusedError(404, what, "`tide policy history` lists them")
            spec = known.policy
        plain = api.PolicyChoice(choice.text, choice.source, choice.name, choice.version)
        world = self.world
        return Question(world.policy, world.policy_version, plain, spec, self.now(), look)
