"""The commands of the laboratory: what they may be told. What they do is in modules of their own."""

from tidegate.cli import late
from tidegate.cli.options import Command, Option, Options, choice, count, decimal, flag, whole
from tidegate.wire.units import parse_duration


def replay(options: Options) -> int:
    return int(late("tidegate.cli.replay:replay")(options))


def generate(options: Options) -> int:
    return int(late("tidegate.cli.generate:generate")(options))


def lab(options: Options) -> int:
    return int(late("tidegate.cli.trials:lab")(options))


def demo(options: Options) -> int:
    if options.replay:
        return int(late("tidegate.cli.burst:burst")(options))
    if options.story:
        return int(late("tidegate.cli.story:story")())
    return int(late("tidegate.cli.demo:demo")())


REPLAY = Command(
    "replay",
    "Runs a trace through the very loop that schedules live, thousands of times faster than time. Recorded requested "
    "times are what the policy sees; recorded run times are what happens.\n"
    "Traces: SWF (.swf, .swf.gz), `sacct -P` exports, Philly, Sia and openb CSVs, and journals of tide.",
    replay,
    "policies",
    Option("--policy", "NAME|FILE", "a built-in policy or a file (default: tide; `tide policy list` names them)",
           many=True),
    "the machine (default: as the trace says)",
    Option("--capacity", "N", "one pool of N processors", count),
    Option("--nodes", "N", "N nodes; with --cpus-per-node", count),
    Option("--cpus-per-node", "K", "processors of each", count),
    Option("--pools", "FILE.csv", "columns pool,nodes,gpus_per_node"),
    Option("--nodes-file", "FILE.csv", "openb nodes: sn,cpu_milli,memory_mib,gpu,model"),
    "what is replayed, and how",
    Option("--filter", "sc15", "the rules of the published simulations", choice("sc15"), default=""),
    Option("--runtimes", "limit|exact", "exact: the policy knows the true run times", choice("limit", "exact"),
           default="limit"),
    Option("--from", "DATE", "submitted on or after (traces with a calendar)", dest="date_from", default=""),
    Option("--to", "DATE", "submitted before", dest="date_to", default=""),
    Option("--limit", "N", "only the first N jobs", count, default=0),
    Option("--preempt-cost", "DURATION", "every job can save itself and go on later, for so much more of its time; "
           "without it nothing is saved", parse_duration),
    Option("--cadence", "batched|per-event", "batched: a cycle an instant, as live; per-event: a cycle a submission "
           "and end", choice("batched", "per-event"), default="batched"),
    "what comes out",
    flag("--json", "one object (a list with several policies) on standard output"),
    flag("--tides", "every turn of the tide, when and why (of policies with a tide; --json has them in any case)"),
    Option("--schedule", "OUT.csv", "job_id, submit, start, wait, end, nodes, in order of end"),
    Option("--journal", "OUT", "keep every event; `tide replay OUT` reads it again"),
    flag("--check", "compare the state with its records all along (slow)"),
    words="TRACE", least=1, most=1,
    examples="""
tide replay KTH-SP2.swf.gz --filter sc15 --capacity 100 --policy easy --cadence per-event
tide replay week.swf --nodes 64 --cpus-per-node 8 --policy fcfs --policy tide --schedule out.csv
tide replay philly.csv.gz --pools pools.csv --from 2017-10-01 --to 2017-12-01 --policy my.yaml --json
""",
)  # fmt: skip
GENERATE = Command(
    "generate",
    "Writes a workload after the model of Lublin and Feitelson, with bursts, as SWF. The same options give the same "
    "file.",
    generate,
    "options",
    Option("--jobs", "N", "how many (default 10000)", count, default=10_000),
    Option("--procs", "N", "processors of the machine (default 256)", count, default=256),
    Option("--days", "D", "instead of --jobs: as many as fill D days at --load", decimal, default=0),
    Option("--seed", "S", "another workload (default 1)", whole, default=1),
    Option("--load", "X", "share of the machine that the work asks for (default 0.8)", decimal, default=0.8),
    Option("--users", "N", "how many people (default 100)", count, default=100),
    Option("--bursts", "N", "how many bursts (default 0)", whole, default=0),
    Option(
        "--burst-factor", "X", "arrivals in a burst, as a multiple of the calm rate (default 5)", decimal, default=5
    ),
    Option("--burst-hours", "H", "how long one lasts (default 2)", decimal, default=2),
    Option("--burst-small-percent", "P", "how many of its jobs are small and short (default 80)", whole, default=80),
    Option("--out", "FILE", "default: standard output"),
    examples="\ntide generate --jobs 20000 --procs 512 --bursts 4 --burst-factor 10 --out burst.swf\n",
)
DEMO = Command(
    "demo",
    "Starts a server of its own, runs a real burst on this machine, and shows who waited and why; under a minute. "
    "Nothing is left behind, also after Ctrl-C. With --story: 100 models to train behind one large job, under two "
    "policies, in a minute. With --replay: a month with bursts under two policies, in seconds.",
    demo,
    "options",
    flag("--story", "what small work first is worth: the same real processes under first come and the default policy"),
    flag("--replay", "what a policy is worth: a generated month under first come and under the default policy"),
    Option("--seed", "S", "of the generated month: another one (default 7)", whole, default=7),
    examples="\ntide demo\ntide demo --story\ntide demo --replay\n",
)
LAB = Command(
    "lab",
    "Trials. detect: how often the tide is told where there is none, and how late where there is one, on counts of "
    "arrivals over time. modes: a policy with a tide against itself kept as in a calm, and as in a surge, for good, on "
    "bursts from the generator.",
    lab,
    "options",
    Option("--column", "NAME", "detect: which column counts (default submit_gpu_job)", default="submit_gpu_job"),
    Option("--policy", "NAME|FILE", "detect: whose signs (default: those of `tide: {}`)", default=""),
    Option("--seed", "S", "detect: another chance (default 1)", whole, default=1),
    Option("--seeds", "N", "modes: so many workloads (default 4)", count, default=4),
    flag("--json", "figures for programs"),
    words="detect COUNTS.csv | modes POLICY", least=2, most=2,
    examples="\ntide lab detect helios_venus_arrivals_10min.csv.gz\ntide lab modes examples/policies/surge.yaml\n",
)  # fmt: skip
COMMANDS = {"lab": LAB, "replay": REPLAY, "generate": GENERATE, "demo": DEMO}
