"""Unix sockets whose path is longer than the 107 octets an address can hold: reached through their directory."""

import os

TYPE_CHECKING = False  # as `typing`, which clients cannot wait for
if TYPE_CHECKING:
    from collections.abc import Callable

ADDRESS_MAX = 107


def reach(path: str, act: "Callable[[str], None]") -> None:
    """Calls `act` (bind or connect) with an address that leads to `path`."""
    if len(os.fsencode(path)) <= ADDRESS_MAX:
        act(path)
        return
    folder, name = os.path.split(path)
    held = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        act(f"/proc/self/fd/{held}/{name}")
    finally:
        os.close(held)
