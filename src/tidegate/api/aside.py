"""What takes long goes to a thread, one piece after the other, so that nobody else waits for it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from traceback import print_exception
from typing import TypeVar

from tidegate.api.http import Request
from tidegate.api.words import problem

T = TypeVar("T")


class Aside:
    def __init__(self, aio: asyncio.AbstractEventLoop, failure: str) -> None:
        self.aio = aio
        self.failure = failure  # what is said when something that should not goes wrong
        self.thread = ThreadPoolExecutor(1, "aside")
        self.waiting = 0

    def do(self, request: Request, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """`done` is called in the server's own thread."""
        self.waiting += 1

        def ended(future: asyncio.Future[T]) -> None:
            self.waiting -= 1
            error = future.exception()
            if error is None:
                done(future.result())
                return
            print_exception(error)
            request.fail(500, problem(f"{self.failure}: {error}", "see the server's log"))

        self.aio.run_in_executor(self.thread, work).add_done_callback(ended)

    def close(self) -> None:
        self.thread.shutdown(wait=True, cancel_futures=True)
