"""The house rules, each a function from source to findings. Nothing here reads a file.

A finding is "line: what"; whoever read the file puts its name in front.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

FUNCTION_LINES_MAX = 60
FUNCTION_LINES_P95_MAX = 40
FILE_LINES_MAX = 500

RULE_OPENING = "The rule: "

# Spelled so that this file does not match itself.
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|X[X]X)\b")
MACHINE_PATH = re.compile(r"(?<![\w.*-])/(?:work|root|home|Users)/")

MATH_ON_INTEGERS = frozenset({"comb", "factorial", "gcd", "isqrt", "lcm", "perm", "prod"})
NUMPY = frozenset({"np", "numpy"})
NUMPY_FLOAT_BY_DEFAULT = frozenset({"empty", "ones", "zeros"})
NUMPY_FLOAT = re.compile(
    r"float\w*|double|half|inf|nan|average|mean|quantile|std|var|divide|true_divide|reciprocal|power"
    r"|cbrt|exp|linspace|log|log2|log10|sqrt"
)
FLOAT_METHODS = frozenset({"mean", "std", "true_divide", "var"})
BACK_DOORS = {
    "hash": "differs between runs (hash seed)",
    "id": "differs between runs (addresses)",
    "input": "waits for a person",
    "open": "reads the disk",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def length(function: Function) -> int:
    """Lines from `def` to the last line of the body, docstring included, decorators not."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def percentile(lengths: Iterable[int], percent: int) -> int:
    """The smallest length that at least `percent` of all do not exceed; 0 of none."""
    ordered = sorted(lengths)
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else 0


def long_functions(tree: ast.AST) -> list[str]:
    return [
        f"{function.lineno}: {function.name} has {length(function)} lines, at most {FUNCTION_LINES_MAX}"
        for function in functions(tree)
        if length(function) > FUNCTION_LINES_MAX
    ]


def long_file(source: str) -> list[str]:
    lines = source.count("\n")
    return [f"{lines}: {lines} lines, at most {FILE_LINES_MAX}"] if lines > FILE_LINES_MAX else []


def matches(pattern: re.Pattern[str], source: str) -> list[str]:
    return [
        f"{number}: {found.group()}"
        for number, line in enumerate(source.splitlines(), 1)
        for found in pattern.finditer(line)
    ]


def calls(tree: ast.AST, name: str) -> list[str]:
    """Calls of `name`, bare or as an attribute of anything."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called)) if called == name:
                found.append(f"{node.lineno}: {name}()")
    return found


def unruly_room(tree: ast.Module) -> list[str]:
    opening = ast.get_docstring(tree) or ""
    return [] if opening.startswith(RULE_OPENING) else [f"1: docstring does not open with {RULE_OPENING!r}"]


def floats(tree: ast.AST) -> list[str]:
    """Where a float is born: literals, true division, `float`, float functions of math and numpy."""
    return [f"{getattr(node, 'lineno', 0)}: {what}" for node in ast.walk(tree) if (what := _float_born(node))]


def _float_born(node: ast.AST) -> str | None:
    match node:
        case ast.Constant(value=float() | complex() as value):
            return f"literal {value!r}"
        case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
            return "true division; use // and say which way it rounds"
        case ast.Name(id="float"):
            return "float"
        case ast.Attribute(value=ast.Name(id="math"), attr=name) if name not in MATH_ON_INTEGERS:
            return f"math.{name}"
        case ast.ImportFrom(module="math", names=names) if {n.name for n in names} - MATH_ON_INTEGERS:
            return "import of a float function of math"
        case ast.Call(func=ast.Attribute(value=ast.Name(id=base), attr=name), args=[_], keywords=words) if (
            base in NUMPY and name in NUMPY_FLOAT_BY_DEFAULT and "dtype" not in {word.arg for word in words}
        ):
            return f"{base}.{name} without dtype makes floats"
        case ast.Attribute(value=ast.Name(id=base), attr=name) if base in NUMPY and NUMPY_FLOAT.fullmatch(name):
            return f"{base}.{name}"
        case ast.Call(func=ast.Attribute(attr=name)) if name in FLOAT_METHODS:
            return f".{name}()"
        case _:
            return None


def back_doors(tree: ast.AST) -> list[str]:
    """What a pure room could reach without an import that the contracts would see."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in BACK_DOORS:
                found.append(f"{node.lineno}: {name}() {BACK_DOORS[name]}")
            case ast.Attribute(value=ast.Name(id=base), attr="random") if base in NUMPY:
                found.append(f"{node.lineno}: {base}.random is chance")
            case ast.ImportFrom(module=str() as module) if module.startswith("numpy.random"):
                found.append(f"{node.lineno}: numpy.random is chance")
    return found


def eager_imports(tree: ast.Module, banned: str) -> list[str]:
    """Imports of `banned` that run when the module is loaded, that is, outside every function."""
    found = []
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, Function | ast.Lambda) or _is_for_types_only(node):
            continue
        pending.extend(ast.iter_child_nodes(node))
        if any(name == banned or name.startswith(banned + ".") for name in _import_names(node)):
            found.append(f"{getattr(node, 'lineno', 0)}: {banned} imported when the module is loaded")
    return found


def _is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _import_names(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str() as module, names=names):
            return [module, *(f"{module}.{alias.name}" for alias in names)]
        case _:
            return []


def mentioned_modules(tree: ast.AST, known: Iterable[str]) -> set[str]:
    """The `known` modules that a file imports, or names whole in a string ("pkg.mod" or "pkg.mod:name")."""
    names: set[str] = set()
    for node in ast.walk(tree):
        names.update(_import_names(node))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value.partition(":")[0])
    return names & set(known)


def dead_modules(trees: Mapping[str, ast.AST], entries: Iterable[str]) -> list[str]:
    """The modules that no chain of imports reaches from `entries`. Importing a.b.c loads a and a.b."""
    alive: set[str] = set()
    pending = list(entries)
    while pending:
        module = pending.pop()
        if module in alive or module not in trees:
            continue
        alive.add(module)
        pending.extend(mentioned_modules(trees[module], trees))
        if "." in module:
            pending.append(module.rpartition(".")[0])
    return sorted(set(trees) - alive)
