"""Rows of the pages in docs/coming-from, and the checks in their comments.

    | `their.symbol` | Its counterpart here <!-- has mcp_django.tool(timeout); does log_messages_have_a_threshold --> |

- `has` imports a name, and finds the parameters or fields in brackets
- `set` finds a key of the `MCP` setting, below SERVERS, LIMITS and so on without the alias; `set KEY=value` its default
- `command` finds a management command
- `does` names a test of this folder, without its `test_`
- `not` marks a symbol that is missing by design, and so needs a reason
"""

import dataclasses
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints, is_typeddict

import pytest
from django.core.management import get_commands

from mcp_django.conf import options
from mcp_django.conf.clients import ClientSettings
from mcp_django.conf.issuers import IssuerSettings

PAGES = sorted((Path(__file__).resolve().parent.parent.parent / "docs" / "coming-from").glob("*.md"))
COMMENT = re.compile(r"<!--(.*?)-->")
NAMED = re.compile(r"`(mcp_django(?:\.\w+)+)")
LOGGERS = {"mcp_django.calls"}
SECTIONS: dict[str, Any] = {
    "SERVERS": options.ServerSettings,
    "LIMITS": options.Limits,
    "RATES": options.Rates,
    "ISSUERS": IssuerSettings,
    "CLIENTS": ClientSettings,
}
MOST_LEFT_OUT = 10
TESTS = {
    found
    for path in Path(__file__).parent.glob("test_*.py")
    if path.stem not in ("test_origins", "test_is_it_for_me")
    for found in re.findall(r"^(?:async )?def test_(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
}


class Row(NamedTuple):
    """One line of a table."""

    page: str
    section: str
    theirs: str
    ours: str
    """The second cell, without the comment."""
    checks: tuple[str, ...]

    @property
    def verbs(self) -> set[str]:
        return {check.partition(" ")[0] for check in self.checks}


def rows(page: Path) -> Iterator[Row]:
    """Yield the rows of all tables of two columns on a page, with the heading above them."""
    heading, in_table = "", False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        if not line.startswith("|"):
            in_table = False
            continue
        if not in_table or set(line) <= set("|- "):  # the names of the columns, and the line below them
            in_table = True
            continue
        checks = tuple(check.strip() for found in COMMENT.findall(line) for check in found.split(";"))
        cells = re.split(r"(?<!\\)\|", COMMENT.sub("", line).strip().strip("|"))
        assert len(cells) == 2, f"a row has two cells: {line[:100]}"
        yield Row(page.stem, heading, cells[0].strip(), cells[1].strip(), checks)


def import_path(path: str) -> Any:
    """Import the object at a dotted path."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = _member(found, name)
        return found
    raise AssertionError(f"{path} names nothing")


def _member(found: Any, name: str) -> Any:
    if dataclasses.is_dataclass(found) and name in {field.name for field in dataclasses.fields(found)}:
        return found
    return getattr(found, name)


def parameters(found: Any) -> set[str]:
    """List the names of its parameters, and the keys of a dictionary that it unpacks."""
    if is_typeddict(found):
        return set(get_type_hints(found))
    names: set[str] = set()
    function = found.__init__ if inspect.isclass(found) and "__init__" in vars(found) else found
    for parameter in inspect.signature(function).parameters.values():
        names.add(parameter.name)
        if parameter.kind is parameter.VAR_KEYWORD:
            unpacked = get_type_hints(function)[parameter.name]
            names |= set(get_type_hints(unpacked.__args__[0])) if hasattr(unpacked, "__args__") else set()
    return names


def check(line: str) -> None:
    """Run one check of a row, other than `not`."""
    verb, _, rest = line.partition(" ")
    match verb:
        case "has":
            path, _, given = rest.rstrip(")").partition("(")
            found = import_path(path.strip())
            missing = {name.strip() for name in given.split(",") if name.strip()} - (
                parameters(found) if given else set()
            )
            assert not missing, f"{path} has no {', '.join(sorted(missing))}"
        case "set":
            key, _, default = rest.partition("=")
            section, _, name = key.rpartition(".")
            fields = {
                field.name.upper(): field for field in dataclasses.fields(SECTIONS.get(section, options.Settings))
            }
            assert name in fields, f"there is no setting {key}"
            assert not default or str(fields[name].default) == default, f"{key} is {fields[name].default}"
        case "command":
            assert rest in get_commands(), f"there is no command {rest}"
        case "does":
            assert rest in TESTS, f"there is no test {rest}"
        case _:
            raise AssertionError(f"{line!r} is no check")


ROWS = [row for page in PAGES if page.stem != "index" for row in rows(page)]


def test_checks_of_rows_hold(subtests: pytest.Subtests) -> None:
    for row in ROWS:
        with subtests.test(page=row.page, section=row.section, theirs=row.theirs):
            assert row.theirs
            assert row.ours
            for line in row.checks:
                if line != "not":
                    check(line)
            for path in set(NAMED.findall(row.ours)) - LOGGERS:
                import_path(path)
            assert ("not" in row.verbs) == ("**By design not**" in row.ours)


def test_examples_are_named_by_rows() -> None:
    named = {line.removeprefix("does ") for row in ROWS for line in row.checks if line.startswith("does ")}
    here = set(re.findall(r"^def test_(\w+)", Path(__file__).read_text(encoding="utf-8"), re.MULTILINE))
    assert named == TESTS - here


def test_rows_are_unique_in_every_section_and_few_are_left_out() -> None:
    left_out = [row for row in ROWS if "not" in row.verbs]
    assert len(left_out) <= MOST_LEFT_OUT
    assert all("because" in row.ours for row in left_out)

    assert [
        key for key, times in Counter((row.page, row.section, row.theirs) for row in ROWS).items() if times > 1
    ] == []


def test_a_check_that_does_not_hold_fails(subtests: pytest.Subtests) -> None:
    for line, reason in (
        ("has mcp_django.no_such_name", "no_such_name"),
        ("has mcp_django.tool(no_such_option)", "no_such_option"),
        ("set SERVERS.NO_SUCH", "no setting"),
        ("set LIMITS.EVENTS=7", "EVENTS is 1000"),
        ("command no_such_command", "no command"),
        ("does no_such_thing", "no test"),
        ("", "no check"),
    ):
        with subtests.test(line=line), pytest.raises((AssertionError, AttributeError), match=reason):
            check(line)
