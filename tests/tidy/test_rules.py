"""Each house rule is seen to catch what it is for, and to let its neighbours pass."""

import ast

import pytest

from tests.tidy import rules


def lines_of(findings: list[str]) -> list[int]:
    return [int(finding.partition(":")[0]) for finding in findings]


def function_of(lines: int) -> ast.Module:
    return ast.parse("@decorated\ndef f():\n" + "    pass\n" * (lines - 1))


def test_a_function_may_have_sixty_lines_and_no_more() -> None:
    assert rules.long_functions(function_of(60)) == []
    assert lines_of(rules.long_functions(function_of(61))) == [2]


def test_a_method_inside_a_function_counts_for_both() -> None:
    nested = "def outer():\n    class C:\n        async def inner(self):\n" + "            pass\n" * 60
    assert lines_of(rules.long_functions(ast.parse(nested))) == [1, 3]


def test_a_file_may_have_five_hundred_lines_and_no_more() -> None:
    assert rules.long_file("x\n" * 500) == []
    assert len(rules.long_file("x\n" * 501)) == 1


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [([], 0), ([7], 7), (range(1, 21), 19), (range(1, 101), 95), ([1] * 18 + [50, 60], 50)],
)
def test_percentile(lengths: list[int], expected: int) -> None:
    assert rules.percentile(lengths, 95) == expected


def test_unfinished_work_is_found_as_a_whole_word() -> None:
    planted = "a = 1  # TO" + "DO: later\nFIXMEUP = 2\n# X" + "XX\nmktemp = 'f.XXXXXX'\n"
    assert lines_of(rules.matches(rules.UNFINISHED, planted)) == [1, 3]


@pytest.mark.parametrize("top", ["work", "root", "home", "Users"])
def test_a_path_of_one_machine_is_found(top: str) -> None:
    assert rules.matches(rules.MACHINE_PATH, f'log = "/{top}/someone/x"') == [f"1: /{top}/"]
    assert rules.matches(rules.MACHINE_PATH, f"src/{top}/x  ../{top}/x  /{top}") == []


@pytest.mark.parametrize("call", ["sleep(1)", "time.sleep(1)", "await asyncio.sleep(0)"])
def test_a_call_is_found_bare_or_as_an_attribute(call: str) -> None:
    assert rules.calls(ast.parse(f"async def f():\n    {call}"), "sleep") == ["2: sleep()"]
    assert rules.calls(ast.parse("sleep = 1\nasleep(2)\n'sleep()'"), "sleep") == []


def test_a_room_opens_with_its_rule() -> None:
    assert rules.unruly_room(ast.parse('"""The rule: state in, values out."""')) == []
    assert len(rules.unruly_room(ast.parse('"""Helpers."""'))) == 1
    assert len(rules.unruly_room(ast.parse("x = 1"))) == 1


@pytest.mark.parametrize(
    "planted",
    [
        "x = 0.5",
        "x = 1e3",
        "x = 1j",
        "x = a / b",
        "x /= 2",
        "x = float(y)",
        "x: float",
        "def f(a: int | float) -> None: ...",
        "def f() -> list[float]: ...",
        "math.ceil(x)",
        "math.inf",
        "from math import exp",
        "np.float64(1)",
        "np.zeros(4)",
        "np.empty((2, 3), order='C')",
        "numpy.true_divide(a, b)",
        "column.mean()",
    ],
)
def test_a_float_is_found_where_it_is_born(planted: str) -> None:
    assert rules.floats(ast.parse(planted)) != []


@pytest.mark.parametrize(
    "innocent",
    [
        "x = a // b",
        "x = 1 << 20",
        "'a / b is 0.5'",
        "math.isqrt(x)",
        "from math import gcd, lcm",
        "np.zeros(4, dtype=np.int64)",
        "np.zeros(4, np.int64)",
        "np.full(4, 7)",
        "column.sum()",
    ],
)
def test_integers_pass_as_integers(innocent: str) -> None:
    assert rules.floats(ast.parse(innocent)) == []


@pytest.mark.parametrize(
    "planted",
    ["open('x')", "hash(x)", "id(x)", "input()", "np.random.rand()", "from numpy.random import rand"],
)
def test_a_back_door_is_found(planted: str) -> None:
    assert lines_of(rules.back_doors(ast.parse(planted))) == [1]


@pytest.mark.parametrize("innocent", ["queue.open()", "job.id", "draft.hash(x)", "def __hash__(self): ..."])
def test_a_method_of_that_name_is_no_back_door(innocent: str) -> None:
    assert rules.back_doors(ast.parse(innocent)) == []


@pytest.mark.parametrize(
    "planted",
    [
        "import tidegate.app",
        "from tidegate import app",
        "from tidegate.app import serve",
        "if x:\n    import tidegate.app.server",
        "class C:\n    from tidegate import app",
    ],
)
def test_an_import_at_load_is_found(planted: str) -> None:
    assert len(rules.eager_imports(ast.parse(planted), "tidegate.app")) == 1


def test_an_import_inside_a_function_is_late() -> None:
    late = "import tidegate.apparatus\ndef f():\n    from tidegate.app import serve"
    assert rules.eager_imports(ast.parse(late), "tidegate.app") == []


def test_dead_modules_are_those_out_of_reach() -> None:
    sources = {
        "pkg": "",
        "pkg.main": "from pkg import a\nNAMED = 'pkg.engines.slurm:Slurm'",
        "pkg.a": "def late():\n    from pkg.b import value",
        "pkg.b": "value = 1",
        "pkg.engines": "import pkg.engines.table",
        "pkg.engines.table": "",
        "pkg.engines.slurm": "'the words pkg.dead in a sentence do not count'",
        "pkg.dead": "import pkg.island",
        "pkg.island": "import pkg.dead",
    }
    trees = {name: ast.parse(source) for name, source in sources.items()}
    assert rules.dead_modules(trees, ["pkg.main"]) == ["pkg.dead", "pkg.island"]
