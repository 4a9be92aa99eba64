"""A server to be killed: launches jobs on a home as fast as it can, and says which before it does."""

import sys
from pathlib import Path

from tests.engines.kit import Local
from tidegate.model.jobs import Job


def main(home: str, ran: str, first: int, count: int) -> None:
    local = Local(Path(home))
    spec = local.job("sh", "-c", f"echo $TIDE_JOB_ID.$TIDE_ATTEMPT >> {ran}; sleep 0.0$((TIDE_JOB_ID % 7))").spec
    for number in range(first, first + count):
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        local.launch(Job(number, 0, 0, "main", spec))
        local.wait_for(lambda: not local.engine.link.unsent)  # so that the keeper has all but the last one announced
    local.wait_for(lambda: False)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
