"""Who a job runs as: names of users made into numbers, with what a login would set."""

import os
import pwd
from typing import NamedTuple

CACHED_MS = 60_000
CACHED_MAX = 1_000


class User(NamedTuple):
    """`ids` is None where nothing has to be changed: the job runs as the server does."""

    ids: tuple[int, int, tuple[int, ...]] | None
    words: tuple[str, str, str]  # the same for the launcher
    entries: dict[str, str]


class UserError(Exception):
    """Why nobody can run as that user, and what to do."""


class Users:
    """A directory service may be slow to answer, so its answers are used for a minute."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[int, User]] = {}

    def find(self, name: str, now: int) -> User:
        until, user = self.known.get(name, (0, None))
        if user is None or until <= now:
            user = look_up(name)
            if len(self.known) >= CACHED_MAX:
                self.known.clear()
            self.known[name] = (now + CACHED_MS, user)
        return user


def look_up(name: str) -> User:
    entry = entry_of(name)
    uid, gid = entry.pw_uid, entry.pw_gid
    ids = None
    if uid != os.geteuid():
        if os.geteuid() != 0:
            raise UserError(f"this server cannot run jobs as {name!r}: only a server of root can run them as others")
        ids = (uid, gid, tuple(os.getgrouplist(entry.pw_name, gid)))
    entries = {"HOME": entry.pw_dir, "LOGNAME": entry.pw_name, "USER": entry.pw_name, "SHELL": entry.pw_shell}
    words = ("", "", "") if ids is None else (str(uid), str(gid), ",".join(map(str, ids[2])))
    return User(ids, words, {key: value for key, value in entries.items() if value})


def entry_of(name: str) -> pwd.struct_passwd:
    """By name, or by number where a user has none."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        pass
    if not name.isdecimal() or not name.isascii() or int(name) >= 1 << 31:
        raise UserError(f"this machine knows no user {name!r}: add the user, or submit as one that it knows")
    try:
        return pwd.getpwuid(int(name))
    except KeyError:
        return pwd.struct_passwd((name, "x", int(name), int(name), "", "/", "/bin/sh"))
