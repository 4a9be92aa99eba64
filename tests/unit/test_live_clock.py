"""The live clock: it never goes back, whatever the machine's does, and it stops only its own waiting."""

import asyncio
from collections.abc import Iterator

import pytest

from tidegate.api.live import LiveClock


class Machine:
    """A wall clock that may be set, and the time that really passes."""

    def __init__(self) -> None:
        self.wall_s = 1_000.0
        self.steady_s = 50.0

    def pass_s(self, seconds: float) -> None:
        self.wall_s += seconds
        self.steady_s += seconds


@pytest.fixture
def aio() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def clock_of(aio: asyncio.AbstractEventLoop, machine: Machine, not_before: int = 0) -> LiveClock:
    return LiveClock(aio, not_before, wall=lambda: machine.wall_s, steady=lambda: machine.steady_s)


def test_a_clock_that_steps_back_goes_on_as_time_passes(aio: asyncio.AbstractEventLoop):
    machine = Machine()
    clock = clock_of(aio, machine)
    assert clock.now() == 1_000_000
    machine.wall_s -= 600
    assert (clock.now(), clock.behind_ms) == (1_000_000, 600_000)
    for _ in range(12):
        machine.pass_s(0.25)
        clock.now()
    assert (clock.now(), clock.behind_ms) == (1_003_000, 600_000)
    machine.wall_s += 400  # somebody sets it forward again, part of the way and then all of it
    assert (clock.now(), clock.behind_ms) == (1_003_000, 200_000)
    machine.wall_s += 205
    assert (clock.now(), clock.behind_ms) == (1_008_000, 0)


def test_a_server_starts_no_earlier_than_its_journal_ends(aio: asyncio.AbstractEventLoop):
    machine = Machine()
    clock = clock_of(aio, machine, not_before=2_000_000)
    assert clock.behind_ms == 1_000_000
    machine.pass_s(2)
    assert clock.now() == 2_002_000


def test_waking_ends_a_wait(aio: asyncio.AbstractEventLoop):
    clock = LiveClock(aio)
    aio.call_soon(clock.wake)
    assert clock.wait(None)
    clock.wake()
    assert clock.wait(None), "what came between two waits is seen by the next"


def test_waking_does_not_end_what_others_do_with_the_loop(aio: asyncio.AbstractEventLoop):
    """The keeper may speak while the server only begins to listen."""
    clock = LiveClock(aio)

    async def listening() -> str:
        done = aio.create_future()
        aio.call_soon(clock.wake)
        aio.call_soon(aio.call_soon, done.set_result, "it listens")
        said: str = await done
        return said

    assert aio.run_until_complete(listening()) == "it listens"
    assert clock.wait(None)
