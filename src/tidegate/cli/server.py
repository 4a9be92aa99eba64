"""Which server a command talks to, and how it does: found, started where that helps, and found again when it restarts.

In order: `--home`; TIDEGATE_SERVER with TIDEGATE_TOKEN; TIDEGATE_HOME; in a job TIDE_HOME, the server that runs it;
this user's own home; the system's. Where none answers, one is started for this user.
"""

import os
import sys
import time

from tidegate import __version__
from tidegate.cli.client import Answer, BrokenError, Client, GoneError, NoServerError, Place
from tidegate.cli.failure import FailureError
from tidegate.cli.options import Option, Options, flag
from tidegate.cli.quick_json import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    T = TypeVar("T")

SYSTEM_HOME = "/var/lib/tidegate"
NEVER, KNOWN, ALWAYS = 0, 1, 2
"""Whether a server is started where none answers: never, only in a home that has had one, always."""

START_S = 300.0
BACK_S = 15.0
"""How long a lost server may take to come back before a single call gives up."""
ASKED_MAX = 1000
BUSY_TRIES = 6
BUSY_WAIT_MAX_S = 5.0

HOME = Option("--home", "DIR", "its home (TIDEGATE_HOME); default: your own server, or the system's")
TALKING: tuple["Option | str", ...] = (
    "which server, and how the answer looks",
    HOME,
    flag("--json", "JSON on standard output, for scripts"),
)


class RefusedError(FailureError):
    """The server said no: what is wrong and what would cure it, in its words."""

    def __init__(self, status: int, what: str, cure: str, note: str = "") -> None:
        super().__init__("; ".join(filter(None, (what, cure, note))))
        self.status = status
        self.problem = {"what": what, "cure": cure}


class BusyError(RefusedError):
    """Not now."""

    wait_s = 1.0


def default_home() -> str:
    """Where the server of this user keeps its state."""
    if os.geteuid() == 0:
        return SYSTEM_HOME
    data = os.environ.get("XDG_DATA_HOME", "")
    if not data.startswith("/"):  # the specification: a relative one counts as not set
        home = os.path.expanduser("~")
        data = f"{home}/.local/share"
    return f"{data}/tidegate"


def named_home(options: Options) -> str:
    """The home that was named; empty: none was."""
    home = options.home or os.environ.get("TIDEGATE_HOME") or os.environ.get("TIDE_HOME") or ""
    return os.path.abspath(home) if home else ""


def home_of(options: Options) -> str:
    """The home for what is done to a home itself: `up`, `backup`, `token`."""
    return named_home(options) or default_home()


def remote_place() -> Place | None:
    address = os.environ.get("TIDEGATE_SERVER", "")
    if not address:
        return None
    host, colon, port = address.removeprefix("http://").rstrip("/").rpartition(":")
    if address.startswith("https:") or not (colon and host and port.isascii() and port.isdigit() and len(port) < 6):
        raise FailureError(f"TIDEGATE_SERVER is {address!r}; write http://HOST:PORT, or unset it")
    token = os.environ.get("TIDEGATE_TOKEN", "")
    if not token:
        raise FailureError("TIDEGATE_SERVER is set and TIDEGATE_TOKEN is not; set it to what `tide token add` printed")
    if not token.isascii() or not token.isprintable():
        raise FailureError("TIDEGATE_TOKEN holds characters that no token has; set it to what `tide token add` printed")
    return Place(host=host.strip("[]"), port=int(port), token=token)


class Server:
    """The server that a command talks to."""

    def __init__(self, options: Options, start: int = ALWAYS) -> None:
        self.start = start
        self.client = self._find(options)

    def _find(self, options: Options) -> Client:
        remote = None if options.home else remote_place()
        if remote is not None:
            self.start = NEVER
            return self._connected(remote)
        named = named_home(options)
        own = Place(home=named or default_home())
        try:
            return self._connected(own)
        except NoServerError:
            if not named and own.home != SYSTEM_HOME:
                try:
                    return self._connected(Place(home=SYSTEM_HOME))
                except FailureError:
                    pass  # the system's server is no use to this user: their own it is
        self._start(own)
        return self._connected(own)

    def _connected(self, place: Place) -> Client:
        client = Client(place)
        client.sock = place.connect()
        return client

    def _start(self, place: Place) -> None:
        """Starts a server for this user and waits until it answers."""
        had = os.path.exists(f"{place.home}/journal.db")
        if self.start == NEVER or (self.start == KNOWN and not had):
            raise NoServerError(f"no server runs in {place.home}; tide up starts one")
        from tidegate.cli.starting import start_server

        start_server(place, START_S)
        print("tide: started a server for you (tide status, tide down)", file=sys.stderr)

    def beside(self) -> "Server":
        """The same server by a connection of its own, for a word while the first is waiting for its answer."""
        other = Server.__new__(Server)
        other.start, other.client = NEVER, Client(self.place)
        return other

    @property
    def place(self) -> Place:
        return self.client.place

    def call(
        self, method: str, path: str, query: "dict[str, Any] | None" = None, body: object = None, *, again: bool = True
    ) -> "Any":
        """The JSON of the answer. A busy server is asked again; so is one that restarts, where `again` is harmless."""
        target = target_of(path, query)
        return self.patiently(lambda: self.call_once(method, target, body, again=again), again=again)

    def call_once(self, method: str, target: str, body: object = None, *, again: bool = True) -> "Any":
        """As `call`, for a caller that has no time: GoneError and BusyError at once."""
        octets = None if body is None else dumps(body).encode()
        headers = "Accept: application/json\r\n"
        return self.value(self.check(self.client.exchange(method, target, octets, headers, again=again)))

    def open(self, target: str, accept: str, headers: str = "") -> Answer:
        """The answer to a GET that is no refusal, its body unread."""
        headers = f"Accept: {accept}\r\n{headers}"
        return self.patiently(lambda: self.check(self.client.exchange("GET", target, None, headers)), again=True)

    def patiently(self, ask: "Callable[[], T]", *, again: bool) -> "T":
        """Asks again while the server is busy, and where it is harmless while it restarts; both for a while."""
        until = 0.0
        for turn in range(ASKED_MAX):
            try:
                return ask()
            except BusyError as error:
                if turn >= BUSY_TRIES:
                    raise
                time.sleep(min(error.wait_s, BUSY_WAIT_MAX_S))
            except GoneError:
                until = until or time.monotonic() + BACK_S
                if not again or time.monotonic() > until:
                    raise
                self._revive(until)
        raise FailureError(f"the server at {self.place} keeps going away; {self.place.look()}")

    def _revive(self, until: float) -> None:
        """Waits a little for a server that went away; halfway to the end one is started, where that is allowed."""
        self.client.close()
        if self.start != NEVER and self.place.home and until - time.monotonic() < BACK_S / 2:
            self._start(self.place)
        time.sleep(0.1)

    def check(self, answer: Answer) -> Answer:
        """The answer, if it is none of the refusals."""
        if 200 <= answer.status < 300:
            return answer
        try:
            problem = loads(answer.read())["error"]
            what, cure = str(problem["what"]), str(problem["cure"])
        except (ValueError, KeyError, TypeError):
            raise BrokenError(
                f"the server at {self.place} refused with HTTP {answer.status} and did not say why; {self.place.look()}"
            ) from None
        if answer.status in {429, 503}:
            busy = BusyError(answer.status, what, cure)
            after = answer.headers.get("retry-after", "")
            busy.wait_s = float(after) if after.isascii() and after.isdigit() and len(after) < 6 else 1.0
            raise busy
        raise RefusedError(answer.status, what, cure, self.other_version(answer))

    def other_version(self, answer: Answer) -> str:
        """A refusal between versions may be a misunderstanding."""
        version = answer.headers.get("server", "").partition("tidegate/")[2]
        if version in {"", __version__}:
            return ""
        return f"the server is version {version} and this tide is {__version__}: tide down and tide up renew it"

    def value(self, answer: Answer) -> "Any":
        octets = answer.read()
        try:
            return loads(octets)
        except ValueError:
            raise BrokenError(
                f"the answer of the server at {self.place} is not JSON; check that it is a server of tide"
            ) from None


def target_of(path: str, query: "dict[str, Any] | None" = None) -> str:
    """The request target. Every value is written so that it reads back as it is."""
    pairs = [f"{name}={quote(str(value))}" for name, value in (query or {}).items() if value not in {None, ""}]
    return path + ("?" + "&".join(pairs) if pairs else "")


def quote(text: str) -> str:
    """As in a URL: letters, digits and a few marks as they are, other octets as %XX."""
    plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~,"
    return "".join(chr(octet) if octet in plain else f"%{octet:02X}" for octet in os.fsencode(text))


def write_out(pieces: "Iterator[bytes]") -> int:
    """Octets to standard output as they are; how many."""
    size = 0
    out = sys.stdout.buffer
    for piece in pieces:
        out.write(piece)
        size += len(piece)
    out.flush()
    return size
