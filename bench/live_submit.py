"""32 clients who each submit one job at a time, durably, against SQLite's own commits of one row each.

Every answer comes after the flush of its event. That the server keeps up is because clients that ask at one time
share a flush; SQLite by itself pays for each. Same disk, same settings, in turns.
"""

import select
import sqlite3
import tempfile
from pathlib import Path
from time import perf_counter

from bench.kit import Plan
from bench.live import DRAIN, TRUE, Client, Server, request
from bench.rows import Bound, Pair, Row, compare

CLIENTS = 32
OCTETS = 300
"""As large a row as the event of such a job."""


def run(plan: Plan) -> list[Row]:
    count = plan.pick(20_000, 1_000)
    pairs: list[Pair] = []
    with Server("--nodes", "1", "--cpus", "2", "--memory", "4G") as server:
        server.client.nodes(DRAIN)
        clients = [server.connect() for _ in range(CLIENTS)]
        submits_a_second(clients, count // 10)
        for number in plan.each_round():
            pairs.append((submits_a_second(clients, count), commits_a_second(count // 2)))
            plan.say(f"round {number}: {pairs[-1][0]:.0f} submits/s, SQLite {pairs[-1][1]:.0f} commits/s")
    return [compare("live/submit-32", "submits/s", pairs, "SQLite, one row a commit", Bound("at least", 1))]


def submits_a_second(clients: list[Client], count: int) -> float:
    """Each client has one submit under way; one process drives them all, as cheaply as Python can."""
    submit = request("POST", "/v1/jobs", TRUE)
    sockets = {client.socket.fileno(): client.socket for client in clients}
    poll = select.epoll()
    for fd in sockets:
        poll.register(fd, select.EPOLLIN)
    began = perf_counter()
    for sock in sockets.values():
        sock.send(submit)
    sent, answered = len(sockets), 0
    while answered < count:
        for fd, _ in poll.poll():
            answer = sockets[fd].recv(4096)
            assert answer.startswith(b"HTTP/1.1 2"), answer
            assert answer.endswith(b"}"), "an answer in two parts"
            answered += 1
            if sent < count:
                sockets[fd].send(submit)
                sent += 1
    took = perf_counter() - began
    poll.close()
    return count / took


def commits_a_second(count: int) -> float:
    with tempfile.TemporaryDirectory(prefix="tide-bench-") as folder:
        db = sqlite3.connect(Path(folder) / "rows.db", isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("CREATE TABLE event (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, body BLOB NOT NULL)")
        body = b"x" * OCTETS
        began = perf_counter()
        for number in range(count):
            db.execute("INSERT INTO event VALUES (?, ?, ?)", (None, number, body))
        took = perf_counter() - began
        db.close()
    return count / took
