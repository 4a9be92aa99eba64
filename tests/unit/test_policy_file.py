"""Policy files: what is read, that every fault is named and placed, and what the built-in policies are."""

from importlib.resources import files
from pathlib import Path

import pytest

from tidegate.model.policy import (
    DEPTH_ALL,
    HOUR_MS,
    PART_BITS,
    Backfill,
    Bound,
    CandidateOrder,
    Checkpoints,
    Cycle,
    Estimate,
    EstimateFrom,
    Fit,
    FitBy,
    Hours,
    InTide,
    JobClass,
    Kept,
    Order,
    OrderBy,
    PolicySpec,
    Preempt,
    Preemption,
    Queue,
    Reservations,
    Rule,
    Share,
    Tides,
    Users,
)
from tidegate.wire import yaml_text
from tidegate.wire.policy_file import (
    BOUND_MS,
    PolicyError,
    builtin_names,
    dump_policy,
    inspect_policy,
    load_builtin,
    load_policy,
    read_policy,
)

WHOLE = """
name: mine
why: a test
order: {by: smallest-area, ageing_bound: 24h, why: small first}
backfill:
  depth: all
  order: shortest
fit: {by: pack}
estimate: {from: last-two, raise_steps: [1m, 1h]}
classes:
  critical: {head_start: 24h, why: pays}
  no: {head_start: -1d12h, level: -1, run_max: 2h, preempt: requeue}
queues:
  lab: {weight: 2, guarantee: {gpus: 8, memory: 1T, cpus: 12.5%}, why: paid for}
  lab/vision: {limit: {cpus: 0.5, disks: 3}, users: fair, user_limit: {gpus: 2}, run_max: 1d}
  rest: 3
share: {half_life: 7d}
preemption: {level_gap: 0, min_run: 1m}
checkpoints: {every: 10m, write_mib_s: 200, at_once_max: 4}
cycle: {starts_max: 1_000}
reservations: {unused_grace: 15m, user_hours: {gpus: 32}, user_ahead: 3h, user_lasts_max: 1h, why: grace}
kept:
  incidents: {nodes: 2, percent: 5, pool: main, classes: critical}
admission:
  large: {at_least: {gpus: 8, nodes: 2}, closed: [mon-fri 08:00-18:00], utc_offset: -1h, why: by night}
  tagged: {needs_tags: project, queues: [lab], unless_classes: ["no"], classes: critical, time_from: 1h, tides: surge}
tide:
  states:
    surge: {order: {by: fcfs}, backfill: 2, fit: spread, preemption: {budget_percent: 50}, why: quick}
  depth: 30
  wait: 20m
"""


def errors_of(text: str | bytes) -> tuple[yaml_text.Finding, ...]:
    with pytest.raises(PolicyError) as caught:
        load_policy(text, "p.yaml")
    return caught.value.errors


def only(text: str | bytes) -> yaml_text.Finding:
    errors = errors_of(text)
    assert len(errors) == 1, errors
    return errors[0]


# -- what is read --------------------------------------------------------------------------------------


def test_every_entry_is_read():
    assert load_policy(WHOLE, "p.yaml") == PolicySpec(
        "mine",
        Order(OrderBy.SMALLEST_AREA, 24 * HOUR_MS, why="small first"),
        Backfill(DEPTH_ALL, CandidateOrder.SHORTEST),
        Fit(FitBy.PACK),
        Estimate(EstimateFrom.LAST_TWO, (60_000, HOUR_MS)),
        {
            "critical": JobClass(head_start_ms=24 * HOUR_MS, why="pays"),
            "no": JobClass(-1, -36 * HOUR_MS, 2 * HOUR_MS, Preempt.REQUEUE),
        },
        {
            "lab": Queue(
                2,
                (Bound("cpus", part=1 << PART_BITS - 3), Bound("gpus", 8000), Bound("memory", 1 << 20)),
                why="paid for",
            ),
            "lab/vision": Queue(
                limit=(Bound("cpus", 500), Bound("disks", 3)),
                users=Users.FAIR,
                user_limit=(Bound("gpus", 2000),),
                run_max_ms=24 * HOUR_MS,
            ),
            "rest": Queue(3),
        },
        Share(7 * 24 * HOUR_MS),
        Preemption(0, min_run_ms=60_000),
        Checkpoints(600_000, 200, at_once_max=4),
        Cycle(1000),
        Reservations(900_000, (Bound("gpus", 32_000),), 3 * HOUR_MS, HOUR_MS, "grace"),
        {"incidents": Kept(2, 5, "main", ("critical",))},
        {
            "large": Rule(
                (Bound("gpus", 8000), Bound("nodes", 2)),
                closed=(Hours(0b11111, 480, 1080),),
                utc_offset_ms=-HOUR_MS,
                why="by night",
            ),
            "tagged": Rule((), HOUR_MS, ("lab",), ("critical",), ("no",), ("project",), tides=("surge",)),
        },
        Tides(
            30,
            wait_ms=20 * 60_000,
            states={
                "surge": InTide(  # what is not said is as in the policy itself, wherever that stands
                    Order(OrderBy.FCFS, 24 * HOUR_MS, why="small first"),
                    Backfill(2, CandidateOrder.SHORTEST),
                    Fit(FitBy.SPREAD),
                    Preemption(0, min_run_ms=60_000, budget_percent=50),
                    "quick",
                )
            },
        ),
        why="a test",
    )


def test_what_is_left_out_has_its_default():
    assert load_policy("name: easy", "p.yaml") == PolicySpec("easy")


def test_one_value_stands_for_a_whole_section():
    short = "name: s\norder: shortest\nbackfill: none\nfit: spread\nestimate: last-two\nclasses: {a: 2h, b: 0}\n"
    assert load_policy(short, "p.yaml") == PolicySpec(
        "s",
        Order(OrderBy.SHORTEST, BOUND_MS),
        Backfill(0),
        Fit(FitBy.SPREAD),
        Estimate(EstimateFrom.LAST_TWO),
        {"a": JobClass(head_start_ms=2 * HOUR_MS), "b": JobClass()},
    )
    assert load_policy("name: s\nbackfill: 3", "p.yaml").backfill.depth == 3


def test_plain_words_stay_the_text_they_are():
    spec = load_policy("name: no\nwhy: 12:30:00", "p.yaml")
    assert (spec.name, spec.why) == ("no", "12:30:00")


def test_a_byte_order_mark_and_bytes_are_read():
    assert load_policy("\ufeffname: é".encode(), "p.yaml").name == "é"
    assert load_policy("\ufeffname: é", "p.yaml").name == "é"


# -- what is refused -----------------------------------------------------------------------------------


ORDER_FIELDS = "by, ageing_bound, aged_promises_max, then, per_doubling, short, scout_from, wide, why"


@pytest.mark.parametrize(
    ("text", "place", "path", "message", "cure"),
    [
        ("name: a\nordr: fcfs", (2, 1), "ordr", "not a field", "did you mean 'order'?"),
        ("name: a\norder: {bie: x}", (2, 9), "order.bie", "not a field", ORDER_FIELDS),
        ("name: a\nageing_bound: 1h", (2, 1), "ageing_bound", "not a field", "belongs to order.ageing_bound"),
        ("name: a\nfit: pakc", (2, 6), "fit", "no 'pakc'", "did you mean 'pack'? write one of first, best, pack"),
        ("name: a\nfit: {by: 7}", (2, 11), "fit.by", "no '7'", "one of first, best, pack, spread"),
        ("name: a\nname: b", (2, 1), "name", "given twice, first in line 1", "keep one"),
        ("name: a\nfit:\n  by: first\n  by: best", (4, 3), "fit.by", "twice, first in line 3", "keep one"),
        ("name: a\nclasses: {c: 1h, 'c': 2h}", (2, 18), "classes.c", "given twice", "keep one"),
        ("name: a\norder: {ageing_bound: 24}", (2, 23), "order.ageing_bound", "no unit", "24h"),
        ("name: a\norder: {ageing_bound: -1h}", (2, 23), "order.ageing_bound", "negative", "0 or more"),
        ("name: a\nestimate: {raise_steps: [1m, x]}", (2, 30), "estimate.raise_steps[1]", "'x'", "such as"),
        ("name: a\nestimate: {raise_steps: 1m}", (2, 25), "estimate.raise_steps", "plain value", "list"),
        ("name: a\nestimate: {raise_steps: [[1m]]}", (2, 26), "estimate.raise_steps[0]", "a list", "a duration"),
        ("name: a\nbackfill: -1", (2, 11), "backfill", "too small", "0 or more"),
        ("name: a\nbackfill: 99999999999999999", (2, 11), "backfill", "too large", "or less"),
        ("name: a\nbackfill: '1'", (2, 11), "backfill", "in quotes", "remove the quotes"),
        ("name: a\nbackfill: 1.5", (2, 11), "backfill", "not a whole number", "or all or none"),
        ("name: a\nbackfill: 010", (2, 11), "backfill", "not a whole number", "from 0"),
        ("name: a\ncycle: {starts_max: 0}", (2, 21), "cycle.starts_max", "too small", "1 or more"),
        ("name: a\ncycle: 5", (2, 8), "cycle", "plain value", "starts_max, why"),
        ("name: a\norder:", (2, 7), "order", "no value", "leave the line out"),
        ("name: a\norder: [fcfs]", (2, 8), "order", "a list", ORDER_FIELDS),
        ("name: a\nclasses: [x]", (2, 10), "classes", "a list", "name: …"),
        ("name: a\nclasses: {x: }", (2, 13), "classes.x", "no value", "head_start"),
        ("name: a\nwhy: [x]", (2, 6), "why", "a list", "write a text"),
        ("name: a\n? [x]\n: 1", (2, 3), "", "a key is a word", "key: value"),
        ("name: a\n<<: {fit: pack}", (2, 1), "<<", "not a field", "keys here"),
        ("order: fcfs", (1, 1), "name", "missing", "write 'name: …'"),
        ("name: a\nqueues: {a b: 1}", (2, 10), "queues.a b", "no path of a queue", "letters, digits"),
        ("name: a\nqueues: {a//b: 1}", (2, 10), "queues.a//b", "no path of a queue", "lab/vision"),
        ("name: a\nqueues: {a/@u: 1}", (2, 10), "queues.a/@u", "no path of a queue", "lab/vision"),
        ("name: a\nqueues: {a: 0}", (2, 13), "queues.a", "too small", "1 or more"),
        ("name: a\nqueues: {a: {limit: 4}}", (2, 21), "queues.a.limit", "plain value", "write amounts"),
        ("name: a\nqueues: {a: {limit: {cpus: -4}}}", (2, 28), "queues.a.limit.cpus", "no number", "40 or 0.5"),
        ("name: a\nqueues: {a: {limit: {memory: 4}}}", (2, 30), "queues.a.limit.memory", "'4'", "4G"),
        ("name: a\nqueues: {a: {limit: {gpus: 120%}}}", (2, 28), "queues.a.limit.gpus", "no part", "0% to 100%"),
        ("name: a\nqueues: {a: {limit: {nodes: 2}}}", (2, 22), "queues.a.limit.nodes", "no resource", "cpus"),
        ("name: a\nqueues: {a: {guarantee: {gpus: 0}}}", (2, 26), "queues.a.guarantee.gpus", "nothing", "leave it out"),
        (
            "name: a\nqueues:\n  a:\n    limit: {gpus: 4}\n    guarantee: {gpus: 8}",
            (5, 17),
            "queues.a.guarantee.gpus",
            "8 is more than the limit of a, 4",
            "lower the one",
        ),
        (
            "name: a\nqueues:\n  a: {limit: {gpus: 10%}}\n  a/b: {guarantee: {gpus: 20%}}",
            (4, 21),
            "queues.a/b.guarantee.gpus",
            "more than the limit of a, 10%",
            "raise the other",
        ),
        (
            "name: a\nqueues: {a: {limit: {gpus: 4}, user_limit: {gpus: 5}}}",
            (2, 45),
            "queues.a.user_limit.gpus",
            "more than the limit of a",
            "lower the one",
        ),
        (
            "name: a\nqueues:\n  a: {guarantee: {cpus: 60%}}\n  b: {guarantee: {cpus: 50%}}",
            (2, 1),
            "queues",
            "the queues are guaranteed 110% cpus together, of 100%",
            "lower a guarantee",
        ),
        (
            (
                "name: a\nqueues:\n  a: {guarantee: {cpus: 6}}\n  a/b: {guarantee: {cpus: 4}}\n"
                "  a/c: {guarantee: {cpus: 3}}"
            ),
            (3, 3),
            "queues.a",
            "the parts of a are guaranteed 7 cpus together, of 6",
            "raise that of a",
        ),
        (
            "name: a\nadmission: {r: {closed: mon 8-18}}",
            (2, 25),
            "admission.r.closed",
            "no hours",
            "mon-fri 08:00-18:00",
        ),
        ("name: a\nadmission: {r: {closed: [x 08:00-09:00]}}", (2, 26), "admission.r.closed[0]", "no hours", "mon-fri"),
        ("name: a\nadmission: {r: {classes: {a: b}}}", (2, 26), "admission.r.classes", "a map", "[one, another]"),
        ("name: a\nadmission: {r: {classes: [[a]]}}", (2, 27), "admission.r.classes[0]", "no text", "[one, another]"),
        (
            "name: a\nqueues: {a: 1}\nadmission: {r: {queues: b}}",
            (3, 17),
            "admission.r.queues",
            "no queue 'b'",
            "name one",
        ),
        ("name: a\nadmission: {r: {at_least: {gpus: 0}}}", (2, 28), "admission.r.at_least.gpus", "as much", "leave it"),
        ("name: a\norder: {by: feedback, then: feedback}", (2, 23), "order.then", "no rungs", "another"),
        ("name: a\nfeedback: {rungs: [2h, 1h]}", (2, 12), "feedback.rungs", "no edges", "that rise"),
        ("name: ''", (1, 7), "name", "empty", "one letter"),
        ("name: ~", (1, 7), "name", "no value", "write one"),
    ],
)
def test_a_fault_is_named_and_placed(text: str, place: tuple[int, int], path: str, message: str, cure: str):
    found = only(text)
    assert (found.line, found.column) == place
    assert found.path == path
    assert message in found.message
    assert cure in found.cure


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "the file is empty"),
        ("# nothing\n", 1, "the file is empty"),
        ("- a", 1, "the file is a list"),
        ("fcfs", 1, "the file is a plain value"),
        ("~", 1, "the file has no value"),
        ("name: a\n\tfit: pack", 2, "a tab"),
        ("name:\ta", 1, "a tab"),
        ("name: a\nfit: b: c", 2, "a second ': '"),
        ("name: a\nfit\nwhy: x", 3, "': '"),
        ("name: 'a", 1, "not YAML"),
        ("name: a\nfit: {by: pack", 2, "not YAML"),
        ("name: a\nfit: @x", 2, "cannot start any token"),
        ("name: &a x\nwhy: *a", 2, "an alias"),
        ("name: !!python/object:os.system x", 1, "a tag"),
        ("name: !x y", 1, "a tag"),
        ("name: a\n---\nname: b", 2, "a second document"),
        ("name: a\nwhy: " + "[" * 5000, 2, "nested deeper"),
        ("name: a\n" + "- " * 5000, 2, "not YAML"),
        ("{" * 30_000, 1, "nested deeper"),
        ("name: [" + "a," * 10_000 + "]", 1, "more than 5,000"),
        ("#" * 70_000, 0, "larger than 64 KiB"),
        ("name: a\nwhy: \x07", 2, "is not text"),
        ('name: "\\U00110000"', 0, "out of range"),
        ('name: "\\ud800"', 1, "half a character"),
        ("%YAML " + "9" * 5000 + ".1\n---\nname: a", 0, "out of range"),
        (b"name: a\nwhy: \xff", 2, "not UTF-8"),
        ("name: a".encode("utf-16"), 1, "not UTF-8"),
    ],
)
def test_a_text_that_is_no_such_file_is_refused(text: str | bytes, line: int, message: str):
    found = only(text)
    assert found.line == line
    assert message in found.message
    assert found.cure


def test_an_alias_bomb_is_refused_at_once():
    bomb = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
    assert {error.message for error in errors_of(bomb)} == {"an alias (*name) is not used here"}


def test_all_faults_are_told_in_the_order_of_the_file():
    text = "fit: x\norder: {by: y, ageing_bound: 5}\nclasses: {a: 1, b: [], c: {d: 1}}\nnope: 1"
    places = [(error.line, error.path) for error in errors_of(text)]
    assert places == [
        (1, "name"),
        (1, "fit"),
        (2, "order.by"),
        (2, "order.ageing_bound"),
        (3, "classes.a"),
        (3, "classes.b"),
        (3, "classes.c.d"),
        (4, "nope"),
    ]


def test_the_message_is_lines_that_an_editor_can_jump_to():
    with pytest.raises(PolicyError) as caught:
        load_policy("name: a\nfit: x\nordr: y", "dir/p.yaml")
    first, second = str(caught.value).splitlines()
    assert first.startswith("dir/p.yaml:2:6: fit: ")
    assert second.startswith("dir/p.yaml:3:1: ordr: ")


def test_long_and_odd_names_do_not_flood_the_message():
    found = only("name: a\nclasses: {" + "x" * 900 + ": 5}")
    assert len(str(found)) < 300
    assert "\n" not in str(only('name: a\nclasses: {"x\\ny": 5}'))


# -- warnings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "path", "message"),
    [
        ("name: a\norder: {by: shortest-remaining, ageing_bound: 0}", 2, "order.ageing_bound", "can starve"),
        ("name: a\norder: feedback", 2, "order.by", "nobody sinks"),
        ("name: a\nfeedback: {turn: 1h}", 2, "feedback", "no effect"),
        ("name: a\norder: {then: shortest}", 2, "order.then", "no effect"),
        ("name: a\norder:\n  by: expansion\n  ageing_bound: 0", 4, "order.ageing_bound", "can starve"),
        ("name: a\nbackfill: {depth: 0, order: shortest}", 2, "backfill.order", "no effect"),
        ("name: a\nbackfill: none\norder: {by: shortest, ageing_bound: 1d}", 2, "backfill.depth", "stand idle"),
        ("name: a\nclasses: {x: 1h, y: 0}", 2, "classes.x", "no effect under order fcfs"),
        ("name: a\norder: {by: deferred, per_doubling: 0}", 2, "order.per_doubling", "nothing is deferred"),
        ("name: a\norder: priority", 2, "order.by", "no class has a head start"),
        ("name: a\nestimate: {raise_steps: [5m, 1m]}", 2, "estimate.raise_steps", "adds nothing"),
        ("name: a\nshare: 7d", 2, "share.half_life", "there are none"),
        ("name: a\nqueues: {a: 2}", 2, "queues.a.weight", "no effect without a neighbour"),
        ("name: a\nqueues: {a: 1, a/b: {guarantee: {gpus: 1}}}", 2, "queues.a/b.guarantee.gpus", "only against its"),
        ("name: a\nqueues: {a: {approvers: ann}}", 2, "queues.a.approvers", "no limit here"),
        ("name: a\nclasses: {a: {level: 1}}", 2, "classes", "can starve"),
        ("name: a\nadmission: {r: {classes: vip}}", 2, "admission.r", "not listed under classes"),
        ("name: a\nadmission: {r: {utc_offset: 1h}}", 2, "admission.r.utc_offset", "without closed hours"),
        ("name: a\nestimate: {raise_steps: [0]}", 2, "estimate.raise_steps", "adds nothing"),
    ],
)
def test_what_is_probably_not_meant_is_warned_of(text: str, line: int, path: str, message: str):
    spec, errors, warnings = inspect_policy(text)
    assert spec is not None
    assert not errors
    assert [(w.line, w.path) for w in warnings] == [(line, path)]
    assert message in warnings[0].message


def test_a_policy_with_faults_gets_no_warnings():
    spec, errors, warnings = inspect_policy("name: a\norder: shortest\nfit: x")
    assert spec is None
    assert len(errors) == 1
    assert not warnings


# -- the built-in ones ---------------------------------------------------------------------------------


NAMES = [
    "conservative", "easy", "easy-sjbf", "easypp", "expansion",
    "fcfs", "priority", "shortest", "smallest-area", "tide",
]  # fmt: skip


def test_these_are_built_in():
    assert builtin_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_builtin_says_what_it_is_for_and_reads_back(name: str):
    spec = load_builtin(name)
    assert spec.name == name
    assert len(spec.why) > 20
    assert load_policy(dump_policy(spec), name) == spec


@pytest.mark.parametrize("name", NAMES)
def test_a_builtin_deserves_no_warning(name: str):
    text = (files("tidegate.wire") / "policies" / f"{name}.yaml").read_bytes()
    told = {warning.path.partition(".")[0] for warning in inspect_policy(text).warnings}
    assert told == set()


@pytest.mark.parametrize("name", ["fcfs", "easy", "easy-sjbf", "easypp"])
def test_what_reproduces_published_simulations_has_no_extras(name: str):
    spec = load_builtin(name)
    assert spec.order == Order()
    assert spec.fit == Fit()
    assert spec.backfill.depth == (0 if name == "fcfs" else 1)
    assert spec.estimate.raise_steps_ms == Estimate().raise_steps_ms


# -- by name or path -----------------------------------------------------------------------------------


def test_a_policy_is_read_by_name_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mine = tmp_path / "mine.yaml"
    mine.write_text("name: mine")
    (tmp_path / "easy").write_text("name: a file called easy")
    monkeypatch.chdir(tmp_path)
    assert read_policy("easy") == load_builtin("easy")
    assert read_policy("./easy").name == "a file called easy"
    assert read_policy(Path("easy")).name == "a file called easy"
    assert read_policy(str(mine)).name == read_policy(mine).name == "mine"


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("esy", "did you mean 'easy'? built-in policies: conservative, easy"),
        ("", "built-in policies"),
        ("missing.yaml", "check the path"),
        ("./missing", "check the path"),
        (".", "check the path"),
        ("a.\0", "check the path"),
    ],
)
def test_a_policy_that_is_not_there_is_refused(name: str, cure: str):
    with pytest.raises(PolicyError) as caught:
        read_policy(name)
    assert cure in caught.value.errors[0].cure
    assert caught.value.errors[0].line == 0
