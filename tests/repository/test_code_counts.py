"""Counts of the engine's code that may only become smaller: lower a limit when the code is below it."""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent.parent / "mcp_django"
MAX_HELPER_PERCENT = {"server": 12.1}
"""Private functions with one caller, in percent of all functions; the aim is 10."""
MAX_ANY = {"server": 104.0}
"""Uses of the word `Any` for each 1,000 lines of code; the aim is 30."""
SPACES = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


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


def count_any(sources: list[str]) -> tuple[int, int]:
    """Count the uses of `Any`, and the lines of code without docstrings, comments and blank lines."""
    uses = lines = 0
    for source in sources:
        docstrings: set[int] = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.end_lineno is not None:
                docstrings.update(range(node.lineno, node.end_lineno + 1))
        code: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type not in SPACES and token.start[0] not in docstrings:
                code.update(range(token.start[0], token.end[0] + 1))
                uses += token.type == tokenize.NAME and token.string == "Any"
        lines += len(code)
    return uses, lines


def test_few_private_functions_have_one_caller() -> None:
    for room, limit in MAX_HELPER_PERCENT.items():
        helpers, total = count_helpers(list_sources(room))
        assert 100 * helpers / total <= limit, f"{room}: {helpers} of {total}; inline one, or name a concept"


def test_any_becomes_rarer() -> None:
    for room, limit in MAX_ANY.items():
        uses, lines = count_any(list_sources(room))
        assert 1000 * uses / lines <= limit, f"{room}: {uses} in {lines} lines"


def test_one_call_counts_and_a_value_does_not() -> None:
    source = "def _a(): ...\ndef _b(): ...\ndef _c(): ...\ndef _d(): ...\n_a()\nrun(_b)\n_c()\n_c()\n"
    assert count_helpers([source]) == (1, 4)


def test_docstrings_and_comments_are_no_code() -> None:
    assert count_any(['"""Any."""\n\nfrom typing import Any  # Any\n\nx: Any = (\n    1\n)\n']) == (2, 4)
