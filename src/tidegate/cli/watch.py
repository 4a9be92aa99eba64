"""Waits for jobs to end, while the caller goes on doing something; a server that restarts is waited for."""

import sys
import time
from select import POLLIN, poll

from tidegate.cli.client import ANSWER_S, GoneError
from tidegate.cli.failure import FailureError
from tidegate.cli.ids import Task, on_wire
from tidegate.cli.server import BusyError, Server, target_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASK_MS = 30_000
PATIENCE_S = 600.0
"""How long a server may be away before what follows a job gives up. The job does not."""
AGAIN_FIRST_S = 0.1
AGAIN_MAX_S = 2.0
TOLD_AFTER_S = 2.0
TASKS_PER_ASK = 1000


class Watch:
    """Asks whether the tasks have ended, by a connection of its own."""

    def __init__(self, server: Server, tasks: list[Task], patience_s: float = PATIENCE_S) -> None:
        self.server = server.beside()
        self.server.client.timeout_s = ASK_MS / 1000 + ANSWER_S
        self.tasks = tasks
        self.patience_s = patience_s
        self.ended = 0
        self.known = False  # an answer has come: from then on the server may be slow to say more
        self.asking = False
        self.late_at = 0.0
        self.away_since = 0.0
        self.again_at = 0.0
        self.again_s = AGAIN_FIRST_S
        self.told = False

    def step(self, wait_s: float) -> "dict[str, Any] | None":
        """Waits so long at most; what the server said, if it did."""
        now = time.monotonic()
        if now < self.again_at:
            time.sleep(min(wait_s, self.again_at - now))
            return None
        try:
            if not self.asking:
                self._ask()
            if not readable(self.server.client.fileno(), wait_s):
                if time.monotonic() < self.late_at:
                    return None
                raise self.server.client.slow()
            self.asking = False
            said = self.server.value(self.server.check(self.server.client.answer()))
        except BusyError as error:
            self.asking = False
            self.again_at = time.monotonic() + min(error.wait_s, AGAIN_MAX_S)
            return None
        except GoneError as error:
            self.asking = False
            self._away(error)
            return None
        self._here(said)
        return dict(said)

    def _ask(self) -> None:
        ids = ",".join(map(on_wire, self.tasks))
        query = {"job": ids, "ended": self.ended if self.known else None, "timeout_ms": ASK_MS if self.known else 0}
        self.server.client.send("GET", target_of("/v1/wait", query), None, "Accept: application/json\r\n")
        self.asking = True
        self.late_at = time.monotonic() + self.server.client.timeout_s

    def _here(self, said: "dict[str, Any]") -> None:
        if self.told:
            print("tide: the server is back", file=sys.stderr)
        self.ended, self.known = said["ended"], True
        self.away_since, self.again_s, self.told = 0.0, AGAIN_FIRST_S, False

    def _away(self, error: GoneError) -> None:
        now = time.monotonic()
        self.server.client.close()
        self.away_since = self.away_since or now
        if now - self.away_since > self.patience_s:
            raise FailureError(f"{error}; gave up after {self.patience_s:.0f} s, the jobs go on") from None
        if not self.told and now - self.away_since > TOLD_AFTER_S:
            print("tide: the server went away; waiting for it (the jobs go on; tide up starts it)", file=sys.stderr)
            self.told = True
        self.again_at = now + self.again_s
        self.again_s = min(self.again_s * 1.5, AGAIN_MAX_S)


def readable(fileno: int, within_s: float) -> bool:
    waiting = poll()
    waiting.register(fileno, POLLIN)
    return bool(waiting.poll(within_s * 1000))
