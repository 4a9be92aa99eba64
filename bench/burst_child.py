"""A client in a hurry, in a process of its own: `python -m bench.burst_child SOCKET JOBS BATCH`."""

import sys
from pathlib import Path

from bench.live import TRUE, Client


def main() -> None:
    path, jobs, batch = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    Client(path).submit_many(TRUE, jobs, batch)


if __name__ == "__main__":
    main()
