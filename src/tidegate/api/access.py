"""Who asks, and what they may: peers of the Unix socket by their credentials, others by a bearer token."""

import asyncio
import hashlib
import json
import os
import pwd
import secrets
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CREDENTIALS = struct.Struct("3i")
RATE_PER_S = 20_000
BURST = 100_000
"""Commands of one user a second, and how many at once. Enough for a burst, too few to keep others out."""
TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Peer:
    """A user by name; "" is nobody, who may do nothing."""

    user: str
    is_admin: bool = False

    @staticmethod
    def nobody() -> "Peer":
        return _NOBODY

    def may_touch(self, owner: str) -> bool:
        return self.is_admin or self.user == owner


_NOBODY = Peer("")


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


class Access:
    """Identifies connections, and holds each user to a rate."""

    def __init__(self, tokens_file: Path) -> None:
        self.uid = os.getuid()
        self.name = user_name(self.uid)
        self.tokens_file = tokens_file
        self.peers: dict[int, Peer] = {}
        self.tokens: dict[str, Peer] = {}
        self.tokens_mtime = -1
        self.buckets: dict[str, tuple[float, float]] = {}  # user -> (left, as of)

    def of_socket(self, transport: asyncio.BaseTransport) -> Peer:
        sock = transport.get_extra_info("socket")
        _, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        known = self.peers.get(uid)
        if known is None:
            # What a server of one user runs, it runs as that user, whoever asks; only root can be somebody else.
            name = user_name(uid) if self.uid == 0 else self.name
            known = self.peers[uid] = Peer(name, uid in {0, self.uid})
        return known

    def of_nobody(self, transport: asyncio.BaseTransport) -> Peer:
        """Over TCP a connection is nobody; each request says by its token who asks."""
        return _NOBODY

    def of_token(self, header: bytes) -> Peer:
        kind, _, token = header.decode("latin-1").partition(" ")
        if kind.lower() != "bearer" or not token:
            return _NOBODY
        self._read_tokens()
        return self.tokens.get(_hashed(token.strip()), _NOBODY)

    def _read_tokens(self) -> None:
        """Again when the file changed: a removed token ends at once."""
        try:
            mtime = self.tokens_file.stat().st_mtime_ns
            if mtime != self.tokens_mtime:
                known = read_tokens(self.tokens_file).values()
                self.tokens, self.tokens_mtime = {one["hash"]: Peer(one["user"], one["admin"]) for one in known}, mtime
        except (OSError, ValueError):
            self.tokens, self.tokens_mtime = {}, -1

    def spend(self, user: str, commands: int, now_s: float) -> float:
        """0, or after how many seconds so many commands may be sent."""
        left, then = self.buckets.get(user, (float(BURST), now_s))
        left = min(float(BURST), left + (now_s - then) * RATE_PER_S)
        if left < commands:
            self.buckets[user] = (left, now_s)
            return (commands - left) / RATE_PER_S
        self.buckets[user] = (left - commands, now_s)
        return 0.0


# -- tokens ------------------------------------------------------------------------------------------------


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def read_tokens(path: Path) -> dict[str, dict[str, Any]]:
    """By name. The file has hashes only: whoever reads it cannot use them."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError:
        raise ValueError(f"{path} is damaged; remove it, and make the tokens anew") from None
    return found if isinstance(found, dict) else {}


def add_token(path: Path, name: str, user: str, *, admin: bool) -> str:
    """A new token, shown this once. An older one of the same name ends."""
    tokens = read_tokens(path)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    tokens[name] = {"user": user, "admin": admin, "hash": _hashed(token), "made_ms": int(time.time() * 1000)}
    _write_tokens(path, tokens)
    return token


def remove_token(path: Path, name: str) -> bool:
    tokens = read_tokens(path)
    if tokens.pop(name, None) is None:
        return False
    _write_tokens(path, tokens)
    return True


def _write_tokens(path: Path, tokens: dict[str, dict[str, Any]]) -> None:
    new = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump(tokens, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(path)
