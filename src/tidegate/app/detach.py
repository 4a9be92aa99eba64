"""`tide up --detach`: the server in the background, and a word when it answers."""

import os
import secrets
import select
import socket
import subprocess
import sys

from tidegate.app.home import Home, HomeError

READY_S = 300.0
"""Folding a long journal takes time; a server that fails says so at once."""
LOG_SHOWN = 2000


def detach(home: Home) -> int:
    try:
        home.prepare()
    except HomeError as error:
        print(f"tide: {error}", file=sys.stderr)
        return 1
    address = f"tidegate-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, home.log.open("ab") as log:
        ready.bind(f"\0{address}")
        began = log.tell()
        command = [sys.executable, "-P", "-m", "tidegate.cli.main", *without_detach(sys.argv[1:])]
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "NOTIFY_SOCKET": f"@{address}", "TIDEGATE_HOME": str(home.path)},
        )  # fmt: skip
        ended = os.pidfd_open(server.pid)
        found, _, _ = select.select([ready.fileno(), ended], [], [], READY_S)
        os.close(ended)
        is_ready = ready.fileno() in found
    if is_ready:
        print(f"tide: serving {home.path} in the background (process {server.pid}); tide down stops it")
        return 0
    with home.log.open("rb") as log:
        log.seek(began)
        said = log.read()[-LOG_SHOWN:].decode(errors="replace").strip()
    print(said or f"tide: the server said nothing in {READY_S:.0f} s; see {home.log}", file=sys.stderr)
    return 1


def without_detach(words: list[str]) -> list[str]:
    return [word for word in words if word not in {"--detach", "-d"}]
