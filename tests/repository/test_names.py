"""The rules for names in CONTRIBUTING.md, as assertions."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.repository.test_architecture import list_nodes, modules, other_modules

# Django, and tools that find classes by name, prescribe these.
PRESCRIBED_CLASSES = {"Command", "Media", "Meta", "Migration"}
# A constant with a number names its unit, or the thing that it counts, bounds or is.
UNIT = re.compile(
    r"(?:^|_)(?:MAX|MIN)_"
    r"|_(?:SECONDS|MINUTES|DAYS|BYTES|BITS|CHARACTERS|CHARS|DIGITS|LINES|ROWS|LENGTH|SIZE|COUNT|DEPTH|RETRIES|THREADS)$"
    r"|_(?:RATIO|FACTOR|WEIGHT|BOUND|VERSION|STATUS|CODE|PORT|PRIORITY|PK)$"
    r"|_(?:BYTES|SECONDS)_PER_"
)
# Words of a private vocabulary. A name describes its subject in the words of MCP, Django, asyncio or an RFC.
BANNED_WORDS = re.compile(
    r"aboard|afterwards|anew|aside|boards?|crier|ears?|farewells?|fate|flights|fly|forgetful|grave|haste|hears?|heard"
    r"|held|here|landing|lanes?|ledger|nobody|parking|patience|pretend|rulebook|said|says?|shelf|shelves|somebody|stays?"
    r"|stubborn|tells?|telling|told|voice|warrant|whoever|wishes"
)


def words(name: str) -> list[str]:
    """Split an identifier into lower-case words."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    return [part.lower() for part in parts]


def definitions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of classes, functions, parameters, and constants and attributes of classes."""
    for node in list_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
    for body in [tree.body, *(node.body for node in list_nodes(tree) if isinstance(node, ast.ClassDef))]:
        for statement in body:
            for target in targets(statement):
                yield statement.lineno, target


def targets(statement: ast.stmt) -> list[str]:
    """List the names that a statement assigns."""
    if isinstance(statement, ast.AnnAssign):
        return [statement.target.id] if isinstance(statement.target, ast.Name) else []
    if not isinstance(statement, ast.Assign):
        return []
    return [node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)]


def banned_names(tree: ast.Module) -> list[str]:
    """List the definitions whose names hold a banned word."""
    return [f"{line}: {name}" for line, name in definitions(tree) if any(map(BANNED_WORDS.fullmatch, words(name)))]


def is_number(node: ast.expr | None) -> bool:
    """Return True if an expression is made of numbers alone."""
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def constants_without_unit(tree: ast.Module) -> list[str]:
    """List the numeric constants of a module whose names hold neither a unit nor a bound."""
    found = []
    for statement in tree.body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or not is_number(statement.value):
            continue
        names = [name for name in targets(statement) if name.isupper() and not UNIT.search(name)]
        found += [f"{statement.lineno}: {name}" for name in names]
    return found


def test_class_names_are_unique() -> None:
    places = defaultdict(list)
    for path, _, tree in modules():
        for node in list_nodes(tree):
            if isinstance(node, ast.ClassDef) and node.name not in PRESCRIBED_CLASSES:
                places[node.name.lstrip("_")].append(f"{path}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_names_use_the_words_of_the_field() -> None:
    found = [f"{path}:{name}" for path, _, tree in (*modules(), *other_modules()) for name in banned_names(tree)]
    assert found == [], "see the naming rules in CONTRIBUTING.md"


def test_numeric_constants_name_their_unit() -> None:
    found = [f"{path}:{name}" for path, _, tree in modules() for name in constants_without_unit(tree)]
    assert found == [], "add a unit (`_SECONDS`, `_BYTES`), or a bound (`MAX_`, `MIN_`)"


def test_attributes_are_assigned_one_by_one() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path, _, tree in modules()
        for node in list_nodes(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)
        if any("self." in ast.unparse(target) for target in node.targets[0].elts)
    ]
    assert found == []


def test_broken_naming_rules_are_noticed(subtests: pytest.Subtests) -> None:
    for source, banned, unitless in (
        ("def say(): ...", ["1: say"], []),
        ("class CallFlights: ...", ["1: CallFlights"], []),
        ("def f(told): ...", ["1: told"], []),
        ("def f(self): self.ears = 1", ["1: ears"], []),
        ("class A:\n    said: int = 1", ["2: said"], []),
        ("PATIENCE = 5.0", ["1: PATIENCE"], ["1: PATIENCE"]),
        ("TIMEOUT: float = 2 * 60", [], ["1: TIMEOUT"]),
        ("SEND_TIMEOUT_SECONDS = 5.0", [], []),
        ("MAX_ROWS = 4 * 1024", [], []),
        ("NAME = 'stay'", [], []),
        ("def earliest(): ...", [], []),
    ):
        with subtests.test(source=source):
            tree = ast.parse(source)
            assert banned_names(tree) == banned
            assert constants_without_unit(tree) == unitless
