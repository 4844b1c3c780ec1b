"""Limits of the code of the package. A count may only become smaller: lower a limit when the code is below it."""

import ast
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent.parent / "mcp_django"
MAX_HELPER_PERCENT = {"server": 12.1}
"""Private functions with one caller, in percent of all functions; the aim is 10."""


def list_sources(room: str) -> list[str]:
    """List the sources of a room."""
    return [path.read_text(encoding="utf-8") for path in sorted((PACKAGE / room).rglob("*.py"))]


def count_helpers(sources: list[str]) -> tuple[int, int]:
    """Count the private functions with exactly one caller, and all functions.

    A function that is passed on as a value has to be a function, so it does not count.
    """
    helpers = total = 0
    for source in sources:
        nodes = list(ast.walk(ast.parse(source)))
        uses = Counter(name for node in nodes if (name := find_name(node)) is not None)
        called = [node.func for node in nodes if isinstance(node, ast.Call)]
        calls = Counter(name for func in called if (name := find_name(func)) is not None)
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                total += 1
                is_private = node.name.startswith("_") and not node.name.endswith("__")
                helpers += is_private and uses[node.name] == calls[node.name] == 1
    return helpers, total


def find_name(node: ast.AST) -> str | None:
    """Return the name of a variable or an attribute; None for other nodes."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def test_few_private_functions_have_one_caller() -> None:
    for room, limit in MAX_HELPER_PERCENT.items():
        helpers, total = count_helpers(list_sources(room))
        assert 100 * helpers / total <= limit, f"{room}: {helpers} of {total}; inline one, or name a concept"


def test_only_calls_count_as_callers() -> None:
    source = "def _a(): ...\ndef _b(): ...\ndef _c(): ...\ndef _d(): ...\n_a()\nrun(_b)\n_c()\n_c()\n"
    assert count_helpers([source]) == (1, 4)


def find_nested_conditions(source: str) -> list[int]:
    """Return the lines of conditional expressions that have another one as a part."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.IfExp)
        if any(isinstance(part, ast.IfExp) for part in ast.iter_child_nodes(node))
    ]


def test_conditional_expressions_are_not_nested() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line in find_nested_conditions(path.read_text(encoding="utf-8"))
    ]
    assert not found, "use `if` statements, `match`, or a table:\n" + "\n".join(found)


def test_nested_conditional_expressions_are_noticed() -> None:
    nested = ("x if a else y if b else z", "(x if a else y) if b else z", "x if (a if b else c) else y")
    assert [find_nested_conditions(source) for source in nested] == [[1], [1], [1]]
    for flat in ("x if a else y", "x if a else [y if b else z]", "f(x if a else y) if b else z"):
        assert find_nested_conditions(flat) == []
