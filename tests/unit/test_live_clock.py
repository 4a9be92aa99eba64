"""The clock of the live loop: time that never goes back, and waits that end when something is there."""

import asyncio
from collections.abc import Iterator

import pytest

from tidegate.api.live import LiveClock


class Machine:
    """The two clocks of a machine, in seconds."""

    def __init__(self) -> None:
        self.wall_s = 1000.0
        self.steady_s = 0.0

    def passes(self, seconds: float) -> None:
        self.wall_s += seconds
        self.steady_s += seconds


@pytest.fixture
def aio() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_a_clock_that_was_put_back_goes_on_from_where_it_was(aio: asyncio.AbstractEventLoop) -> None:
    machine = Machine()
    clock = LiveClock(aio, 0, lambda: machine.wall_s, lambda: machine.steady_s)
    assert clock.now() == 1_000_000
    machine.wall_s -= 600
    machine.passes(2)
    assert (clock.now(), clock.behind_ms) == (1_002_000, 600_000)
    machine.passes(3)
    assert clock.now() == 1_005_000
    machine.wall_s += 700
    assert (clock.now(), clock.behind_ms) == (1_105_000, 0)


def test_a_clock_begins_no_earlier_than_the_journal_ends(aio: asyncio.AbstractEventLoop) -> None:
    machine = Machine()
    clock = LiveClock(aio, 2_000_000, lambda: machine.wall_s, lambda: machine.steady_s)
    machine.passes(5)
    assert clock.now() == 2_005_000


def test_a_wait_ends_when_something_is_there(aio: asyncio.AbstractEventLoop) -> None:
    clock = LiveClock(aio)
    aio.call_soon(clock.wake)
    assert clock.wait(None)
    clock.wake()
    assert clock.wait(None), "what came before the wait ends it too"
    aio.call_soon(clock.stop)
    assert not clock.wait(None)


def test_what_comes_while_the_server_begins_to_listen_does_not_stop_that(aio: asyncio.AbstractEventLoop) -> None:
    clock = LiveClock(aio)

    async def listen() -> str:
        clock.wake()
        done = aio.create_future()
        aio.call_soon(done.set_result, "listening")
        return str(await done)

    assert aio.run_until_complete(listen()) == "listening"
    assert clock.wait(None), "and the next wait is short"
