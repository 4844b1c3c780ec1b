"""The number of `Any` in rooms whose values should have types. The bounds only shrink."""

import ast

import pytest

from tests.repository.test_architecture import list_nodes, modules

# Room -> the most names `Any` per 1,000 lines, imports included. Lower a bound when its room has fewer.
MAX_ANY_PER_1000_LINES = {"contrib/rest": 35, "orm": 35, "server": 30}
MAX_SLACK = 3
"""A bound lies at most this far above the count, so that it follows each improvement."""


def count_any(tree: ast.Module) -> int:
    """Count the names `Any` of a module, its import included."""
    names = sum(isinstance(node, ast.Name) and node.id == "Any" for node in list_nodes(tree))
    imported = (alias.name for node in list_nodes(tree) if isinstance(node, ast.ImportFrom) for alias in node.names)
    return names + sum(name == "Any" for name in imported)


@pytest.mark.parametrize("room", MAX_ANY_PER_1000_LINES)
def test_any_is_used_within_its_bound(room: str) -> None:
    found = [(count_any(tree), source.count("\n")) for path, source, tree in modules() if path.startswith(f"{room}/")]
    rate = 1000 * sum(count for count, _ in found) / sum(lines for _, lines in found)
    assert rate <= MAX_ANY_PER_1000_LINES[room]
    assert rate > MAX_ANY_PER_1000_LINES[room] - MAX_SLACK, "lower the bound of this room"


def test_each_any_is_counted() -> None:
    source = "from typing import Any, cast\ndef f(a: Any, b: dict[str, Any]) -> object: return cast(Any, a)"
    assert count_any(ast.parse(source)) == 4
