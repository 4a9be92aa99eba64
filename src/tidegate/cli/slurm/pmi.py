"""What an MPI library asks of whoever started it: PMI-1, in lines of text on a socket that each rank inherits.

MPICH and its kin speak it where PMI_FD is set. The ranks of a step exchange their addresses by it: each puts a few
values, all wait at a barrier, each gets those of the others.
"""

import os
import socket
from collections.abc import Callable

KVS = "kvs"
LINE_MAX = 1 << 16
VALUES_MAX = 1 << 20
KEY_MAX, VALUE_MAX = 64, 1024


class Rank:
    """Our end of one rank's socket."""

    def __init__(self, rank: int, line: socket.socket) -> None:
        self.rank = rank
        self.line = line
        self.unread = b""


class Pmi:
    """The ranks of one step. `abort` is called with the exit code of a rank that gives up for all."""

    def __init__(self, on_node: list[int], name: str, abort: Callable[[int], None]) -> None:
        self.size = sum(on_node)
        self.name = name
        self.abort = abort
        self.values = {"PMI_process_mapping": mapping(on_node)}
        self.waiting: set[int] = set()  # at the barrier
        self.ranks: dict[int, Rank] = {}  # by descriptor

    def open(self, rank: int) -> tuple[int, int, dict[bytes, bytes]]:
        """Our descriptor, theirs, and what goes into their environment."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.ranks[ours.fileno()] = Rank(rank, ours)
        fd = theirs.detach()
        told = {"PMI_FD": fd, "PMI_RANK": rank, "PMI_SIZE": self.size, "PMI_JOBID": self.name, "PMI_SPAWNED": 0}
        return ours.fileno(), fd, {name.encode(): str(value).encode() for name, value in told.items()}

    def hear(self, fd: int) -> bool:
        """False: the rank has closed its end."""
        rank = self.ranks[fd]
        try:
            octets = os.read(fd, LINE_MAX)
        except OSError:
            octets = b""
        if not octets or len(rank.unread) > LINE_MAX:
            self.waiting.discard(rank.rank)
            del self.ranks[fd]
            rank.line.close()
            return False
        *lines, rank.unread = (rank.unread + octets).split(b"\n")
        for line in lines:
            self.obey(rank, line.decode("utf-8", "replace"))
        return True

    def obey(self, rank: Rank, line: str) -> None:
        said = dict(word.partition("=")[::2] for word in line.split())
        match said.get("cmd", ""):
            case "init":
                self.tell(rank, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1")
            case "get_maxes":
                self.tell(rank, f"cmd=maxes rc=0 kvsname_max=256 keylen_max={KEY_MAX} vallen_max={VALUE_MAX}")
            case "get_appnum":
                self.tell(rank, "cmd=appnum rc=0 appnum=0")
            case "get_my_kvsname":
                self.tell(rank, f"cmd=my_kvsname rc=0 kvsname={KVS}")
            case "get_universe_size":
                self.tell(rank, f"cmd=universe_size rc=0 size={self.size}")
            case "put":
                self.put(rank, said)
            case "get":
                value = self.values.get(said.get("key", ""))
                found = f"rc=0 msg=success value={value}" if value is not None else "rc=-1 msg=unknown value=unknown"
                self.tell(rank, f"cmd=get_result {found}")
            case "barrier_in":
                self.arrive(rank)
            case "finalize":
                self.tell(rank, "cmd=finalize_ack rc=0")
            case "abort":
                self.abort(int(said.get("exitcode", "1")) if said.get("exitcode", "1").isdecimal() else 1)
            case other:
                self.tell(rank, f"cmd={other}_result rc=-1 msg=not_there")

    def put(self, rank: Rank, said: dict[str, str]) -> None:
        if len(self.values) >= VALUES_MAX:
            self.tell(rank, "cmd=put_result rc=-1 msg=too_many")
            return
        self.values[said.get("key", "")] = said.get("value", "")
        self.tell(rank, "cmd=put_result rc=0 msg=success")

    def arrive(self, rank: Rank) -> None:
        self.waiting.add(rank.rank)
        if len(self.waiting) == self.size:
            self.waiting.clear()
            for one in list(self.ranks.values()):
                self.tell(one, "cmd=barrier_out rc=0")

    def tell(self, rank: Rank, line: str) -> None:
        try:
            rank.line.sendall(f"{line}\n".encode())
        except OSError:
            self.waiting.discard(rank.rank)  # it is gone; its end is seen by itself


def mapping(on_node: list[int]) -> str:
    """(first node, how many nodes, ranks on each), as often as it changes."""
    blocks: list[list[int]] = []
    for node, ranks in enumerate(on_node):
        if blocks and blocks[-1][2] == ranks:
            blocks[-1][1] += 1
        else:
            blocks.append([node, 1, ranks])
    return f"(vector,{','.join(f'({first},{count},{ranks})' for first, count, ranks in blocks)})"
