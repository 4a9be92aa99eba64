"""How the keeper asks an attempt to save itself, and hears that it has; docs/checkpoints.md is the contract.

Each attempt that can be asked has a directory of ours with two names: `asked`, which is there while an ask is open, and
`done`, a named pipe of the job's user. Nothing in it can be replaced by the user, so root may write there.
"""

import os
from collections.abc import Callable

from tidegate.engines.local import trees
from tidegate.engines.local.poll import Poll
from tidegate.engines.local.records import Key

ASKED, DONE, ASIDE = "asked", "done", "asked.new"
SAVE, END = "save", "end"
HEAR_EVERY_MS = 250
"""A job that says more than that is heard no more often, and only with its last word."""
PIPE_SIZE = 1 << 16
LOOK_AGAIN_MS = 1_000
LOOKS_MAX = 600
NUMBER_DIGITS_MAX = 12

Said = tuple[int | None, int | None, int | None]
"""Which ask, how old the state is that was saved, and its size."""


class Saving:
    """One attempt. `told` takes lines for the server, `done` is called when it has saved and is to end."""

    __slots__ = (
        "asked_at", "began", "done", "end_number", "fd", "is_open", "kept_ms", "key", "looking", "looks", "number",
        "over", "pid", "place", "poll", "signal", "told",
    )  # fmt: skip

    def __init__(
        self, poll: Poll, place: str, key: Key, signal: int,
        told: Callable[[Key, str], None], done: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.poll = poll
        self.place = place
        self.key = key
        self.signal = signal
        self.told = told
        self.done = done
        self.fd = -1
        self.pid = 0
        self.began = 0
        self.number = 0  # of the last ask
        self.asked_at = 0
        self.is_open = False  # that ask is not answered
        self.end_number = 0  # of the ask to save and end, if there was one
        self.kept_ms = 0
        self.looks = 0
        self.looking = False  # for somebody who listens to the signal
        self.over = False

    def open(self, uid: str, gid: str) -> None:
        """OSError: there is no place to be asked at."""
        os.mkdir(self.place)
        os.chmod(self.place, 0o755)  # whatever the umask
        pipe = f"{self.place}/{DONE}"
        os.mkfifo(pipe, 0o600)
        self.fd = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # for writing too: so it never comes to an end
        if uid:
            os.chown(pipe, int(uid), int(gid))
        self.poll.watch(self.fd, self.hear)

    def started(self, pid: int, now: int) -> None:
        self.pid, self.began = pid, now

    def stood_still(self, ms: int) -> None:
        """It was suspended for so long, which is no work done."""
        if self.began:
            self.began += ms
            self.asked_at += ms

    # -- asking ------------------------------------------------------------------------------------------

    def ask(self, number: int, now: int) -> None:
        """An ask that is known does nothing: it may come again from a new server."""
        if number > self.number and not self.end_number:
            self._ask(number, SAVE, now)

    def ask_to_end(self, now: int) -> None:
        self.end_number = self.number + 1
        self._ask(self.end_number, END, now)

    def _ask(self, number: int, what: str, now: int) -> None:
        self.number, self.asked_at, self.is_open = number, now, True
        self._write(f"{number} {what}\n")
        self.looks = LOOKS_MAX if self.signal else 0
        if not self.looking:
            self._send_signal(now)

    def _write(self, line: str) -> None:
        """Whole or not at all. On a full disk there is no file, and the signal is all there is."""
        aside = f"{self.place}/{ASIDE}"
        try:
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                os.fchmod(fd, 0o644)
                os.write(fd, line.encode())
            finally:
                os.close(fd)
            os.rename(aside, f"{self.place}/{ASKED}")
        except OSError:
            pass

    def _send_signal(self, now: int) -> None:
        """To who listens; while nobody does, again in a while."""
        self.looking = False
        if not (self.is_open and self.looks and self.pid):
            return
        self.looks -= 1
        listeners = trees.listeners(self.pid, self.signal)
        if listeners:
            self.looks = 0
            trees.send(listeners, self.signal)
        else:
            self.looking = True
            self.poll.at(now + LOOK_AGAIN_MS, self._send_signal, self)

    # -- hearing -----------------------------------------------------------------------------------------

    def hear(self, now: int) -> None:
        self.poll.unwatch(self.fd)
        self.poll.at(now + HEAR_EVERY_MS, self._listen, self)
        self.hear_rest(now)

    def _listen(self, _now: int) -> None:
        self.poll.watch(self.fd, self.hear)

    def hear_rest(self, now: int) -> None:
        """What is in the pipe: its last line that can be understood. A write of one line is never cut."""
        if not self.began:
            return  # it is quicker than the word that it was started: that comes first
        try:
            text = os.read(self.fd, PIPE_SIZE)
        except OSError:
            return  # nothing
        said = [one for one in map(understood, text.split(b"\n")) if one is not None]
        if said:
            self._answered(said[-1], now)

    def _answered(self, said: Said, now: int) -> None:
        """Kept is what it had done when its state was taken; never less than was kept before."""
        number, age_ms, size_mib = said
        number = (self.number if self.is_open else 0) if number is None else min(number, self.number)
        taken = self.asked_at if number and number == self.number else now
        if age_ms is not None:
            taken = max(self.began, now - age_ms)
        self.kept_ms = max(self.kept_ms, taken - self.began)
        if number == self.number:
            self.is_open = False
            remove(f"{self.place}/{ASKED}")
        ends = bool(self.end_number) and number == self.end_number
        self.told(
            self.key,
            f'{{"is":"saved","task":{self.key[0]},"attempt":{self.key[1]},"number":{0 if ends else number},'
            f'"kept_ms":{self.kept_ms},"size_mib":{size_mib or 0}}}\n',
        )
        if ends:
            self.done(now)

    def close(self) -> None:
        self.over = True
        if self.fd >= 0:
            self.poll.unwatch(self.fd)
            os.close(self.fd)
            self.fd = -1
        remove_place(self.place)


def understood(line: bytes) -> Said | None:
    """`done [NUMBER [AGE_MS [MIB]]]`, where - leaves one out; None for anything else."""
    word, *rest = line.split() or [b""]
    if word != b"done" or len(rest) > 3:
        return None
    if not all(text == b"-" or (text.isdigit() and len(text) <= NUMBER_DIGITS_MAX) for text in rest):
        return None
    number, age_ms, size_mib = [None if text == b"-" else int(text) for text in (*rest, b"-", b"-", b"-")[:3]]
    return number, age_ms, size_mib


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def remove_place(place: str) -> None:
    for name in (ASKED, ASIDE, DONE):
        remove(f"{place}/{name}")
    try:
        os.rmdir(place)
    except OSError:
        pass


def clear(asks: str) -> None:
    """What an earlier keeper left: nobody is asked there any more."""
    try:
        names = os.listdir(asks)
    except OSError:
        return
    for name in names:
        remove_place(f"{asks}/{name}")
