"""The rows of docs/reference/coming-from.md, and the checks that each names in a comment.

    | `their.symbol` | What it is here <!-- has mcp_django.tool(timeout); does a_tool_runs_out_of_time --> |

- `has` imports a name, and finds the parameters or fields in brackets
- `set` finds a key of the `MCP` setting, below SERVERS, LIMITS and so on without the alias; `set KEY=value` its default
- `command` finds a management command
- `does` runs an exercise of this package
- `not` says that it is missing by design, and so takes a reason
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints, is_typeddict

from django.core.management import get_commands

from mcp_django.conf import options
from mcp_django.conf.clients import ClientSettings
from mcp_django.conf.issuers import Issuer

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "reference" / "coming-from.md"
COMMENT = re.compile(r"<!--(.*?)-->")
NAMED = re.compile(r"`(mcp_django(?:\.\w+)+)")
SECTIONS: dict[str, Any] = {
    "SERVERS": options.ServerSettings,
    "LIMITS": options.Limits,
    "RATES": options.Rates,
    "ISSUERS": Issuer,
    "CLIENTS": ClientSettings,
}
EXERCISES: dict[str, Callable[[], Any]] = {}


def exercise(function: Callable[[], Any]) -> Callable[[], Any]:
    """Register a function that shows something and fails where it does not hold."""
    assert function.__name__ not in EXERCISES
    EXERCISES[function.__name__] = function
    return function


class Row(NamedTuple):
    """One line of a table."""

    section: str
    theirs: str
    ours: str
    """Without the comment."""
    checks: tuple[str, ...]

    @property
    def verbs(self) -> set[str]:
        return {check.partition(" ")[0] for check in self.checks}


def rows(text: str) -> Iterator[Row]:
    """The rows of all tables, with the heading above them."""
    heading, in_table = "", False
    for line in text.splitlines():
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
        yield Row(heading, cells[0].strip(), cells[1].strip(), checks)


def named(path: str) -> Any:
    """What a dotted path names."""
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
    """The names that may be given to it; the keys of what it unpacks, too."""
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
    """Run one check of a row, whose verb is no `not`."""
    verb, _, rest = line.partition(" ")
    match verb:
        case "has":
            path, _, given = rest.rstrip(")").partition("(")
            found = named(path.strip())
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
            assert rest in EXERCISES, f"there is no exercise {rest}"
        case _:
            raise AssertionError(f"{line!r} is no check")
