"""The tests that are not about every door; `python -m tests.interaction.exceptions` writes them into README.md."""

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import django

HERE = Path(__file__).parent
README = HERE / "README.md"
BEGIN, END = "<!-- exceptions -->\n", "<!-- end -->\n"


def table() -> str:
    """Who is tested over which doors alone, and why, in Markdown."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for path in sorted(HERE.glob("test_*.py")):
        for name, mark in _marks(importlib.import_module(f"tests.interaction.{path.stem}")):
            rows.setdefault((path.stem, ", ".join(mark.args), mark.kwargs["reason"]), []).append(name)
    lines = ["| Tests | Doors | Reason |", "|---|---|---|"]
    for (module, doors, reason), names in rows.items():
        which = "all" if "" in names else ", ".join(f"`{name}`" for name in dict.fromkeys(names))
        lines.append(f"| {module}: {which} | {doors} | {reason} |")
    return "\n".join(lines) + "\n"


def _marks(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The marks of a module, under no name, and those of its tests and of their parameters."""
    for mark in _over(getattr(module, "pytestmark", [])):
        yield "", mark
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if not name.startswith("test_") or function.__module__ != module.__name__:
            continue
        marks = getattr(function, "pytestmark", [])
        sets = [one for mark in marks if mark.name == "parametrize" for one in mark.args[1]]
        for mark in [*_over(marks), *(mark for one in sets for mark in _over(getattr(one, "marks", ())))]:
            yield name.removeprefix("test_"), mark


def _over(marks: Any) -> Iterator[Any]:
    found = marks if isinstance(marks, list | tuple | set | frozenset) else [marks]
    yield from (getattr(mark, "mark", mark) for mark in found if mark.name == "over")


def written() -> str:
    """What README.md says."""
    return README.read_text().partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    django.setup()
    before, _, rest = README.read_text().partition(BEGIN)
    README.write_text(before + BEGIN + table() + END + rest.partition(END)[2])
