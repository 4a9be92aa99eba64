"""`tide`: parses the command line, hands it to one command, and turns refusals into an exit code.

Exit codes: 0 done, 1 refused or failed (a message says what to do), 2 the command line itself is wrong.
"""

import argparse
import io
import sys
from collections.abc import Sequence

from tidegate import __version__, compiled
from tidegate.cli.failure import FailureError

EXAMPLES = """\
examples:
  tide replay trace.swf.gz --capacity 512 --policy easy --policy tide
  tide policy show tide
  tide policy check my-policy.yaml
  tide generate --jobs 20000 --procs 512 --bursts 4 --out burst.swf
  tide demo

`tide COMMAND --help` tells more about each.
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="tide",
        description="Tidegate, a burst-aware batch scheduler: who runs, where and when, and why.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kernel = "compiled" if compiled() else "pure Python"
    top.add_argument("--version", action="version", version=f"tide {__version__} ({kernel} kernel)")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    add_replay(commands)
    add_generate(commands)
    add_policy(commands)
    demo = commands.add_parser(
        "demo",
        help="a burst under first come, first served and under the default policy",
        description="Replays a generated burst under two policies and shows what the people waiting notice.",
    )
    demo.add_argument("--seed", type=int, default=7, help="another burst")
    demo.set_defaults(module="demo")
    return top


def add_replay(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    replay = commands.add_parser(
        "replay",
        help="run a recorded workload through the live loop, under one or several policies",
        description="Runs a trace through the very loop that schedules live, thousands of times faster than time. "
        "Recorded requested times are what the policy sees; recorded run times are what happens.",
        epilog="traces: SWF (.swf, .swf.gz), `sacct -P` exports, Philly, Sia and openb CSVs, and journals of tide.\n\n"
        "examples:\n"
        "  tide replay KTH-SP2.swf.gz --filter sc15 --capacity 100 --policy easy --cadence per-event\n"
        "  tide replay week.swf --nodes 64 --cpus-per-node 8 --policy fcfs --policy tide --schedule out.csv\n"
        "  tide replay philly.csv.gz --pools pools.csv --from 2017-10-01 --to 2017-12-01 --policy my.yaml --json\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = replay.add_argument
    option("trace", metavar="TRACE", help="the workload to replay")
    option("--policy", action="append", metavar="NAME|FILE", help="a built-in policy or a file; repeat to compare "
           "(default: tide; `tide policy list` names them)")  # fmt: skip
    machine = replay.add_argument_group("the machine (default: as the trace says)")
    machine.add_argument("--capacity", type=count, metavar="N", help="one pool of N processors")
    machine.add_argument("--nodes", type=count, metavar="N", help="N nodes; with --cpus-per-node")
    machine.add_argument("--cpus-per-node", type=count, metavar="K")
    machine.add_argument("--pools", metavar="FILE.csv", help="columns pool,nodes,gpus_per_node")
    machine.add_argument("--nodes-file", metavar="FILE.csv", help="openb nodes: sn,cpu_milli,memory_mib,gpu,model")
    what = replay.add_argument_group("what is replayed, and how")
    what.add_argument("--filter", choices=("sc15",), default="", help="sc15: the rules of the published simulations")
    what.add_argument("--runtimes", choices=("limit", "exact"), default="limit",
                      help="exact: the policy knows the true run times")  # fmt: skip
    what.add_argument(
        "--from", dest="date_from", default="", metavar="DATE", help="submitted on or after (traces with a calendar)"
    )
    what.add_argument("--to", dest="date_to", default="", metavar="DATE", help="submitted before")
    what.add_argument("--limit", type=count, default=0, metavar="N", help="only the first N jobs")
    what.add_argument("--cadence", choices=("batched", "per-event"), default="batched",
                      help="batched: a cycle an instant, as live; per-event: a cycle a submission and end")  # fmt: skip
    out = replay.add_argument_group("what comes out")
    out.add_argument("--json", action="store_true", help="one object (a list with several policies) on standard output")
    out.add_argument("--schedule", metavar="OUT.csv", help="job_id, submit, start, wait, end, nodes, in order of end")
    out.add_argument("--journal", metavar="OUT", help="keep every event; `tide replay OUT` reads it again")
    out.add_argument("--check", action="store_true", help="compare the state with its records all along (slow)")
    replay.set_defaults(module="replay")


def add_generate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    generate = commands.add_parser(
        "generate",
        help="write a synthetic workload with bursts, as SWF",
        description="Writes a workload after the model of Lublin and Feitelson, with bursts. The same options give "
        "the same file.",
        epilog="example:\n  tide generate --jobs 20000 --procs 512 --bursts 4 --burst-factor 10 --out burst.swf",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = generate.add_argument
    option("--jobs", type=count, default=10_000, metavar="N")
    option("--procs", type=count, default=256, metavar="N", help="processors of the machine")
    option("--days", type=float, default=0, metavar="D", help="instead of --jobs: as many as fill D days at --load")
    option("--seed", type=int, default=1, metavar="S")
    option("--load", type=float, default=0.8, metavar="X", help="share of the machine that the work asks for")
    option("--users", type=count, default=100, metavar="N")
    option("--bursts", type=int, default=0, metavar="N", help="how many bursts")
    option(
        "--burst-factor", type=float, default=5, metavar="X", help="arrivals in a burst, as a multiple of the calm rate"
    )
    option("--burst-hours", type=float, default=2, metavar="H", help="how long one lasts")
    option("--burst-small-percent", type=int, default=80, metavar="P", help="how many of its jobs are small and short")
    option("--out", metavar="FILE", help="default: standard output")
    generate.set_defaults(module="generate")


def add_policy(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    policy = commands.add_parser("policy", help="look at policies and check policy files")
    actions = policy.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="says exactly what is wrong with a policy file, by line")
    check.add_argument("file", metavar="FILE")
    show = actions.add_parser("show", help="prints a policy in full, defaults included")
    show.add_argument("name", metavar="NAME|FILE")
    actions.add_parser("list", help="names the built-in policies")
    policy.set_defaults(module="policy")


def count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character is no reason to stop
    options = parser().parse_args(argv)
    try:
        return run(options)
    except FailureError as failure:
        print(f"tide: {failure}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("tide: interrupted", file=sys.stderr)
        return 130


def run(options: argparse.Namespace) -> int:
    match options.module:
        case "replay":
            from tidegate.cli.replay import replay as command
        case "generate":
            from tidegate.cli.generate import generate as command
        case "policy":
            from tidegate.cli.policy import policy as command
        case _:
            from tidegate.cli.demo import demo as command
    return command(options)


if __name__ == "__main__":
    sys.exit(main())
