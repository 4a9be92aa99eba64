"""Policies with a judge that says what a test wants: bounds, and what happens when it fails."""

import asyncio
import json
from collections.abc import Iterator
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidegate.api.http import Request
from tidegate.api.live import LiveInbox
from tidegate.api.past import Past
from tidegate.api.policies import WAITING_MAX, Policies, Question, Verdict
from tidegate.api.words import RefusedError
from tidegate.model.policy import PolicySpec
from tidegate.wire import api
from tidegate.world.world import World

EASY = api.PolicyWish(name="easy")


class Asking:
    """A request whose answer is kept."""

    def __init__(self, aio: asyncio.AbstractEventLoop, *, gone: bool = False) -> None:
        self.gone = gone
        self.peer = SimpleNamespace(user="ann")
        self.answered = aio.create_future()

    def answer(self, status: int, body: bytes) -> None:
        self.answered.set_result((status, json.loads(body)))

    fail = answer

    def as_request(self) -> Request:
        return cast(Request, self)


class Judge:
    def __init__(self) -> None:
        self.may_go = Event()
        self.error: Exception | None = None

    def __call__(self, question: Question) -> Verdict:
        assert self.may_go.wait(20)
        if self.error is not None:
            raise self.error
        diff = api.PolicyDiffBody(question.version, "none", "easy", [], [], None)
        return Verdict([], PolicySpec("easy"), diff)

    def close(self) -> None:
        self.may_go.set()


class Desk:
    def __init__(self) -> None:
        self.aio = asyncio.new_event_loop()
        self.judge = Judge()
        self.inbox = LiveInbox(lambda: None)
        past = cast(Past, SimpleNamespace(aio=self.aio, policy=lambda _: None))
        self.policies = Policies(World(), self.inbox, past, self.judge, lambda: 7)

    def put(self, *, gone: bool = False) -> Asking:
        asking = Asking(self.aio, gone=gone)
        self.policies.put(asking.as_request(), EASY)
        return asking

    def answer(self, asking: Asking) -> tuple[int, Any]:
        found: tuple[int, Any] = self.aio.run_until_complete(asyncio.wait_for(asking.answered, 20))
        return found


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.policies.close()
    made.aio.run_until_complete(made.aio.shutdown_default_executor())  # a turn for what the threads handed over
    made.aio.close()


def test_only_so_many_wait(desk: Desk) -> None:
    compared = [Asking(desk.aio) for _ in range(WAITING_MAX)]
    for one in compared:
        desk.policies.compare(one.as_request(), api.PolicyChoice(name="easy"))
    with pytest.raises(RefusedError, match="others have policies judged") as caught:
        desk.policies.compare(Asking(desk.aio).as_request(), api.PolicyChoice(name="easy"))
    assert caught.value.status == 503
    desk.put()  # who changes the policy does not wait for those who look
    desk.judge.may_go.set()
    assert [desk.answer(one)[0] for one in compared] == [200] * WAITING_MAX
    again = Asking(desk.aio)
    desk.policies.compare(again.as_request(), api.PolicyChoice(name="easy"))
    assert desk.answer(again)[0] == 200


def test_a_judge_that_fails_is_said_and_changes_nothing(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.judge.error = RuntimeError("the judge ended with exit code -9")
    desk.judge.may_go.set()
    status, body = desk.answer(desk.put())
    assert (status, "exit code -9" in body["error"]["what"]) == (500, True)
    assert not desk.inbox.coming
    assert "RuntimeError" in capsys.readouterr().err


def test_a_client_that_went_away_changes_nothing(desk: Desk) -> None:
    """It was told nothing, and may have come back with another wish."""
    desk.put(gone=True)
    asking = Asking(desk.aio)
    desk.policies.put(asking.as_request(), api.PolicyWish(name="easy", dry_run=True))  # judged after it
    desk.judge.may_go.set()
    desk.answer(asking)
    assert not desk.inbox.coming


def test_who_asks_is_in_the_command(desk: Desk) -> None:
    desk.judge.may_go.set()
    desk.put()
    asking = Asking(desk.aio)
    desk.policies.put(asking.as_request(), api.PolicyWish(name="easy", dry_run=True))
    desk.answer(asking)
    ((command, _),) = desk.inbox.coming
    assert (getattr(command, "by", ""), getattr(command, "if_version", 0)) == ("ann", -1)
