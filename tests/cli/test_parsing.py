"""The command line as data: what is read, and that no text makes a traceback."""

import contextlib
import io
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli import job_options, values
from tidegate.cli.failure import FailureError, UsageError
from tidegate.cli.ids import expand, on_wire, shown, split, tasks_of
from tidegate.cli.main import MODULES, command_named, main, overview
from tidegate.cli.options import Command, Option, Options, count, flag, help_text, parse, wrap
from tidegate.cli.outcome import exit_code
from tidegate.cli.quick_json import dumps, loads
from tidegate.cli.run import RUN
from tidegate.cli.submit import SUBMIT
from tidegate.wire import api

NOON = 1_767_268_800_000  # 2026-01-01T12:00Z


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


SAMPLE = Command(
    "sample", "about", lambda _: 0,
    Option("--number -n", "N", "how many", count, default=1), Option("--word", "W", "words", many=True),
    flag("--loud -l", "!"),
    words="FILE...", most=2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "number", "word", "loud", "words"),
    [
        ([], 1, [], False, []),
        (["--number", "3", "a", "-l"], 3, [], True, ["a"]),
        (["-n", "3", "--number=4"], 4, [], False, []),
        (["--word=a=b", "--word", "--loud"], 1, ["a=b", "--loud"], False, []),
        (["--word", "", "-", "--", "-l"], 1, [""], False, ["-", "-l"]),
    ],
)
def test_words_are_read(argv: list[str], number: int, word: list[str], loud: bool, words: list[str]):
    said = parse(SAMPLE, argv)
    assert (said.number, said.word, said.loud, said.words) == (number, word, loud, words)


@pytest.mark.parametrize("argv", [["-n", "0"], ["-n"], ["--loud=1"], ["-x"], ["--numberr", "3"], ["a", "b", "c"]])
def test_wrong_words_are_refused(argv: list[str]):
    with pytest.raises(UsageError, match="tide sample"):
        parse(SAMPLE, argv)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_every_command_explains_itself_within_a_screen(name: str):
    text = help_text(command_named(name))
    assert text.startswith(f"usage: tide {name}")
    assert "examples:" in text
    assert max(map(len, text.partition("examples:")[0].splitlines())) <= 80
    assert name in overview()
    command = command_named(name)
    names = [one for option in command.options() for one in option.names]
    dests = [option.dest for option in command.options()]
    assert len(set(names)) == len(names)
    assert len(set(dests)) == len(dests)


@given(st.text(max_size=300), st.integers(1, 40))
def test_wrapping_loses_no_word(text: str, width: int):
    lines = wrap(text, width)
    assert " ".join(lines).split() == text.split()
    assert all(len(line) <= width or " " not in line for line in lines)


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("12", [(12, -1)]),
        ("12,13", [(12, -1), (13, -1)]),
        ("12-14", [(12, -1), (13, -1), (14, -1)]),
        ("12[5]", [(12, 5)]),
        ("12_5", [(12, 5)]),
        ("12[0-2,7],13", [(12, 0), (12, 1), (12, 2), (12, 7), (13, -1)]),
        ("12,12,12[5],12_5", [(12, -1), (12, 5)]),
    ],
)
def test_ids_are_read(text: str, tasks: list[tuple[int, int]]):
    assert tasks_of("show", [text]) == tasks


@pytest.mark.parametrize("text", ["", "x", "0", "-3", "12[", "12]", "12[x]", "12[5", "12_", "12_x", "5-3", "1-2-3",
                                  "9" * 99,
                                  "12[0-999999]", "1-999999", "12[1][2]", ",", "12,"])  # fmt: skip
def test_bad_ids_are_refused(text: str):
    with pytest.raises(UsageError):
        tasks_of("show", [text])


def test_tasks_are_written_for_people_and_for_queries():
    assert [shown(12), shown(12, -1), shown(12, 0)] == ["12", "12", "12[0]"]
    assert [on_wire((12, -1)), on_wire((12, 5))] == ["12", "12_5"]
    assert split("1[2,3],4") == ["1[2,3]", "4"]


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("+2h", NOON + 7_200_000),
        ("+0", NOON),
        ("12:30", NOON + 1_800_000),
        ("12:30:15", NOON + 1_815_000),
        ("12:00", NOON + 86_400_000),
        ("08:00", NOON + 72_000_000),
        ("2026-01-02T08:00", NOON + 72_000_000),
        ("2026-01-02T08:00:30+01:00", NOON + 68_430_000),
        ("2026-01-02 08:00", NOON + 72_000_000),
        ("2026-01-02", NOON + 43_200_000),
    ],
)
@pytest.mark.usefixtures("utc")
def test_moments_are_read(text: str, ms: int):
    assert values.moment(text, NOON) == ms


@pytest.mark.parametrize("text", ["", "soon", "+", "+2", "2h", "24:00", "12:60", "12:", "1:2:3:4", "2026-13-01",
                                  "-1:00", "0001-01-01", "1969-01-01", "+99999999w", "12.30", "٣:٠٠"])  # fmt: skip
@pytest.mark.usefixtures("utc")
def test_bad_moments_are_refused(text: str):
    with pytest.raises(ValueError, match=r"write|largest"):
        values.moment(text, NOON)


def test_the_next_clock_time_knows_summer_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        eve = 1_774_713_600_000  # 2026-03-28T16:00Z: in the night clocks go forward
        assert values.moment("08:00", eve) == eve + 14 * 3_600_000
    finally:
        monkeypatch.undo()
        time.tzset()


READERS: list[Callable[[str], Any]] = [
    values.cpus, values.time_limit, values.name, values.job_number, values.afters, values.pair, values.labels,
    values.resource, values.pattern, values.retry_rules, values.moment, job_options.array, count,
]  # fmt: skip
TYPED = st.text(alphabet="0123456789:-+.,=%[]_ abexitsgnalomu\0é", max_size=20) | st.text(max_size=60)


@given(TYPED)
def test_any_text_is_a_value_or_a_message(text: str):
    for reader in READERS:
        with contextlib.suppress(ValueError):
            reader(text)
    with contextlib.suppress(ValueError):
        expand(text, 1000)


WORDS = TYPED | st.sampled_from(
    ["--cpus", "--json", "--array", "--after", "--", "--time", "-n", "--state", "--help", "--home"]
)


@given(st.sampled_from(sorted(MODULES)), st.lists(WORDS, max_size=5))
def test_no_command_line_makes_a_traceback(name: str, words: list[str]):
    with contextlib.suppress(FailureError):
        parse(command_named(name), words)


@given(st.text(max_size=200), st.sampled_from([SUBMIT, RUN]))
def test_no_script_makes_a_traceback(text: str, command: Command):
    with contextlib.suppress(FailureError):
        job_options.directives_of("s", f"#!/bin/sh\n#TIDE {text}\n")
    with contextlib.suppress(FailureError):
        parse(command, text.split(" "))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20,
)  # fmt: skip


@given(JSON)
def test_json_reads_back(value: Any):
    assert loads(dumps(value).encode()) == value


@given(st.binary(max_size=40) | st.text(alphabet='{}[]",:0123456789.eE+-truefalsn \\u', max_size=30).map(str.encode))
def test_any_octets_are_json_or_a_value_error(octets: bytes):
    with contextlib.suppress(ValueError):
        loads(octets)


def test_json_works_without_its_c_parts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tidegate.cli.quick_json.make_scanner", None)
    assert loads(dumps({"a": [1, "ü"]}).encode()) == {"a": [1, "ü"]}
    with pytest.raises(ValueError, match="Expecting"):
        loads(b"{")


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ({"state": "COMPLETED", "exit_code": 0}, 0),
        ({"state": "FAILED", "exit_code": 75}, 75),
        ({"state": "FAILED", "signal": 9, "exit_code": None}, 137),
        ({"state": "TIMED_OUT", "signal": 15}, 143),
        ({"state": "TIMED_OUT", "exit_code": 0}, 1),
        ({"state": "CANCELLED"}, 1),
        ({"state": "DEPENDENCY_FAILED", "exit_code": None, "signal": None}, 1),
    ],
)
def test_exit_codes_are_those_of_a_shell(job: dict[str, Any], code: int):
    assert exit_code(job) == code


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"], ["--version"], ["help", "submit"], ["queue", "--help"],
                                   ["--home", "x", "queue", "-h"]])  # fmt: skip
def test_help_and_version_end_with_0(words: list[str]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(words) == 0
    assert "tide" in out.getvalue()


def options_of(*words: str) -> Options:
    return parse(SUBMIT, words)


def test_a_body_is_what_the_interface_takes():
    from msgspec import convert

    body = job_options.body_of(options_of("--cpus", "2", "--retries", "2", "--", "x"), ["x"])
    taken = convert(body, api.SubmitBody)
    assert (taken.cpus, taken.retry, taken.umask) == (2, api.RetryBody(times=2), job_options.umask())
    fields = {field.encode_name for field in __import__("msgspec").structs.fields(api.SubmitBody)}
    assert {field for _, field in job_options.PLAIN} <= fields


def test_no_more_is_said_than_the_server_takes():
    """Each bound of the command line is in the interface too, and one more is refused by both."""
    from msgspec import ValidationError, convert

    bounds = {
        "cpus": (str(job_options.CPUS_MAX), "cpus", job_options.CPUS_MAX),
        "memory": ("1048576T", "memory_mib", job_options.MEMORY_MAX_MIB),
        "nodes": (str(job_options.NODES_MAX), "nodes", job_options.NODES_MAX),
        "losses": (str(job_options.RETRIES_MAX), "losses_max", job_options.RETRIES_MAX),
        "grace": (f"{job_options.TIME_MAX_MS}ms", "grace_ms", job_options.TIME_MAX_MS),
        "time": (f"{job_options.TIME_MAX_MS}ms", "time_ms", job_options.TIME_MAX_MS),
    }
    more = {"memory": "1048577T", "grace": "9007199254740993ms", "time": "9007199254740993ms"}
    for option, (text, field, most) in bounds.items():
        body = job_options.body_of(options_of(f"--{option}", text, "--", "x"), ["x"])
        assert body[field] == most
        convert(body, api.SubmitBody)
        with pytest.raises(ValidationError):
            convert({**body, field: most + 1}, api.SubmitBody)
        with pytest.raises(FailureError, match="write at most"):
            options_of(f"--{option}", more.get(option, str(most + 1)), "--", "x")
    for option in ("--retries", "--gpus"):
        with pytest.raises(FailureError, match="write at most"):
            options_of(option, "99999999999", "--", "x")


def test_a_folder_that_is_gone_is_said(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FailureError, match="is gone"):
        job_options.folder_of(options_of("--", "x"))
    os.chdir(tmp_path)
