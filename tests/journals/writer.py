"""A process that writes events until it is killed: `writer.py JOURNAL SEED`. Says each number that is safe."""

import random
import sys
from pathlib import Path

from tests.journals.kit import ending, events_of, job_of
from tidegate.journals.sqlite import SqliteJournal


def main() -> None:
    journal = SqliteJournal(Path(sys.argv[1]), history=True)
    chance = random.Random(int(sys.argv[2]))
    record(journal, journal.recorded, journal.seq)  # as a recovery does
    tell(journal.seq)
    while True:
        count = chance.choice((1, 1, 2, 5, 40, 1500))
        first = journal.seq + 1
        journal.append(events_of(count, first))
        record(journal, first - 1, first + count - 1)
        journal.flush()
        tell(journal.seq)


def record(journal: SqliteJournal, after: int, upto: int) -> None:
    journal.record([ending(job_of(number)) for number in range(after + 1, upto + 1)], upto)


def tell(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
