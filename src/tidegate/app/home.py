"""The home of a server: one directory with all its state, and the lock that says who serves it."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path


class HomeError(Exception):
    """The directory cannot be used as a home; the message says what to do."""


class Home:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.socket = self.path / "tide.sock"
        self.journal = self.path / "journal.db"
        self.tokens = self.path / "tokens"
        self.log = self.path / "server.log"
        self.lock_file = self.path / "server.lock"
        self.lock = -1

    def prepare(self) -> None:
        """Root's home can be passed through by everybody, for the socket and their own output; others' by nobody."""
        mode = 0o711 if os.getuid() == 0 else 0o700
        try:
            for folder in (self.path, self.path / "output"):
                folder.mkdir(mode=mode, parents=True, exist_ok=True)
                self._refuse_foreign(folder)
                folder.chmod(mode)
            for file in self.path.glob(f"{self.journal.name}*"):
                file.chmod(0o600)  # one that was copied here, too
            probe = self.path / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise HomeError(
                f"cannot keep state in {self.path} ({error.strerror}); name another place with --home"
            ) from error

    @staticmethod
    def _refuse_foreign(folder: Path) -> None:
        """Whoever owns the folder could put another journal, or a link, in the place of ours."""
        if folder.stat().st_uid != os.getuid():
            raise HomeError(f"{folder} belongs to another user; name one of your own with --home")

    def claim(self) -> None:
        """Takes the lock for as long as this process lives. The one who comes later gives way."""
        lock = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(lock, 32).decode(errors="replace").strip()
            os.close(lock)
            raise HomeError(
                f"a server (pid {pid or 'unknown'}) serves {self.path} already; `tide down` stops it"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self.lock = lock

    def release(self) -> None:
        with suppress(OSError):
            self.socket.unlink()
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


def is_served(path: Path) -> bool:
    """Does a server hold the lock of this home?"""
    try:
        lock = os.open(Path(path) / "server.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
