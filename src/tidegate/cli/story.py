"""`tide demo --story`: 100 models to train behind one large job, on real processes, under two policies."""

import sys
import time
from collections.abc import Sequence
from statistics import mean
from typing import NamedTuple

from tidegate.cli.client import Client
from tidegate.cli.demo import LOOK_S, Group, Row, rows_of, seconds, submitted, watching
from tidegate.cli.failure import FailureError
from tidegate.cli.own_server import on_own_server, until_interrupted
from tidegate.cli.screen import table
from tidegate.wire import states

POLICIES = ("fcfs", "tide")
NODES, CPUS = 4, 4
MODELS = 100
BEFORE_S, LARGE_S = 2, 15
LARGE_LIMIT_MS = 24 * 3_600_000
"""What such a job asks for where it is at home; `tide` goes by what is likely, and that begins with the limit."""
TRAIN = 'exec sleep "1.$((TIDE_ARRAY_INDEX % 10))"'
"""They wait where others train: this machine has fewer cpus than its declared nodes, and both policies get the same."""
TOGETHER_S = 50.0
FALL = 0.6
"""By so much the mean completion has to fall."""


class Told(NamedTuple):
    """How long after the first submission they ended, in seconds."""

    models: list[float]
    large: float

    @property
    def all(self) -> list[float]:
        return [*self.models, self.large]


def story() -> int:
    return until_interrupted(tell_story)


def tell_story() -> int:
    print(f"{NODES} declared nodes of {CPUS} cpus. Somebody's job runs on one of them for {BEFORE_S} s; a large job")
    print(f"asks for all of them, for {LARGE_S} s; behind it {MODELS} models are to be trained, a cpu each.")
    told: list[Told] = []
    for policy in POLICIES:
        print(f"\nUnder `{policy}`, on a server of its own:\n")
        if on_own_server(policy, NODES, CPUS, lambda client: play(client, told)):
            print(f"\nThis machine was too busy to end it in {TOGETHER_S:.0f} s; what was left is cancelled.")
            return 1
    return compare(*told)


def play(client: Client, told: list[Told]) -> int:
    until = time.monotonic() + TOGETHER_S
    groups = [submitted(client, "somebody's job", "before", ["sleep", f"{BEFORE_S}"], cpus=CPUS)]
    while rows_of(client)[0]["start_ms"] is None and time.monotonic() < until:
        time.sleep(LOOK_S)
    large = submitted(
        client, "the large job", "large", ["sleep", f"{LARGE_S}"], nodes=NODES, cpus=CPUS, time_ms=LARGE_LIMIT_MS
    )
    models = submitted(
        client, f"{MODELS} models to train", "models", ["sh", "-c", TRAIN], array=f"0-{MODELS - 1}", time_ms=30_000
    )
    groups += [large, models]
    with watching(groups) as look:
        while time.monotonic() < until:
            rows = rows_of(client)
            look(rows)
            if not any(row["end_ms"] is None for row in rows):
                failed = sum(row["state"] != states.COMPLETED for row in rows)
                if failed:
                    raise FailureError(f"{failed} processes of the story did not complete: it cannot be told so")
                told.append(Told(completions(rows, models), completions(rows, large)[0]))
                return 0
            time.sleep(LOOK_S)
    return 1


def completions(rows: Sequence[Row], group: Group) -> list[float]:
    return sorted((row["end_ms"] - row["submit_ms"]) / 1000 for row in rows if row["id"] == group.job)


def compare(before: Told, after: Told) -> int:
    figures = (
        ("models: mean", mean(before.models), mean(after.models)),
        ("models: 9 of 10 by", nine_of_ten(before.models), nine_of_ten(after.models)),
        ("models: the last", before.models[-1], after.models[-1]),
        ("the large job", before.large, after.large),
        ("all of them: mean", mean(before.all), mean(after.all)),
    )
    lines = [(what, seconds(old), seconds(new), f"{new / old - 1:+.0%}") for what, old, new in figures]
    print("\nHow long after it was submitted it was done\n")
    for line in table(("", *POLICIES, "change"), lines, right=f"{' '.join(POLICIES)} change"):
        print(f"  {line}")
    fall = 1 - mean(after.all) / mean(before.all)
    print(f"\nMean completion fell by {fall:.0%} on the same nodes; {2 * (MODELS + 2)} real processes.")
    if fall >= FALL:
        return 0
    print(f"That is less than {FALL:.0%}: was this machine busy with something else?", file=sys.stderr)
    return 1


def nine_of_ten(values: Sequence[float]) -> float:
    return values[-(-len(values) * 9 // 10) - 1]
