"""`tide tide`: how demand stands in every pool, why, and what that changes."""

from tidegate.cli.failure import FailureError
from tidegate.cli.options import Command, Options
from tidegate.cli.screen import facts, json_value, moment, number, span, table, width
from tidegate.cli.server import TALKING, Server
from tidegate.wire.look import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]

NO_TIDE = "the policy has no tide: demand is not measured (write `tide: {}` into it to see it)"


def tide(options: Options) -> int:
    found = Server(options).call("GET", "/v1/tide")
    rows = found["rows"]
    if options.words:
        rows = [row for row in rows if row["pool"] == options.words[0]]
        if not rows:
            raise FailureError(f"there is no tide of a pool {options.words[0]!r}; tide tide lists those there are")
    if options.json:
        json_value({**found, "rows": rows})
        return 0
    if not rows:
        print(NO_TIDE)
        return 0
    now = found["now_ms"]
    heads = ["POOL", "TIDE", "FOR", "WAIT", "LATELY", "USUAL", "IN USE"]
    print("\n".join(table(heads, [cells(row, now) for row in rows], right="FOR WAIT LATELY USUAL IN USE",
                          elastic="POOL", across=width())))  # fmt: skip
    for row in rows:
        told = facts(telling(row, now))
        if told:
            print(f"\n{plain(row['pool'])}\n" + "\n".join(f"  {line}" for line in told))
    return 0


def cells(row: "Row", now: int) -> list[str]:
    return [
        plain(row["pool"]), row["state"], span(now - row["since_ms"]), str(row["waiting"] or "-"), str(row["lately"]),
        number(row["usual"]) if row["known"] else "-", f"{row['utilization_percent']}%",
    ]  # fmt: skip


def telling(row: "Row", now: int) -> list[tuple[str, str]]:
    """Why it stands so, what that changes, and the turns before."""
    turns = row["turns"]
    pairs = [("why", turns[0]["why"])] if turns else []
    if row["turns_ms"] is not None:
        pairs.append(("turns", f"in {span(max(0, row['turns_ms'] - now))} if nothing else happens"))
    pairs += [("changes", change) for change in row["changes"]]
    pairs += [("refuses", f"jobs that meet rule {plain(rule)!r}") for rule in row["refuses"]]
    pairs += [(moment(turn["at_ms"]), f"{turn['before']} → {turn['after']}: {turn['why']}") for turn in turns]
    return pairs


COMMANDS = {
    "tide": Command(
        "tide",
        "How demand stands in every pool: calm, rising, surge or ebbing, for how long and why; how many tasks wait, "
        "came lately and usually do; what the tide changes of the policy there, and when it turned last.",
        tide,
        *TALKING,
        words="[POOL]",
        most=1,
        examples="\ntide tide\ntide tide gpus\ntide tide --json\n",
    ),
}
