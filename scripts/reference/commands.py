"""The reference of the management commands, from their parsers."""

import importlib
from argparse import Action
from typing import Any, Final

from django.core.management.base import BaseCommand

from scripts.reference.sources import MARK, ROOT, escape_cell, write_docstring

OWN_APP: Final = "mcp_django"
PATH: Final = "commands.md"
APPS_PATH: Final = "commands-apps.md"
INTRODUCTION: Final = f"""\
# Management commands

{MARK}

Run a command as `python manage.py NAME`. Each also has the options of every Django command, such as `--settings` and
`--verbosity`. `python -m mcp_django` is `mcp_stdio` with a stdout that settings and apps cannot write to
([stdio](../run/stdio.md)). [Commands of optional apps]({APPS_PATH}) have a page of their own.
"""
APPS_INTRODUCTION: Final = f"""\
# Commands of optional apps

{MARK}

Each of these [commands]({PATH}) needs the app that it names in `INSTALLED_APPS`.
"""
COMMON_DESTS: Final = {action.dest for action in BaseCommand().create_parser("manage.py", "common")._actions}


def list_commands() -> list[tuple[str, str]]:
    """Return pairs of an app and the name of its command; those of the package's own app come first."""
    paths = [path.relative_to(ROOT) for path in (ROOT / "mcp_django").rglob("management/commands/[!_]*.py")]
    found = [(".".join(path.parts[:-3]), path.stem) for path in paths]
    return sorted(found, key=lambda pair: (pair[0] != OWN_APP, pair))


def render_commands() -> dict[str, str]:
    """Map paths to pages: the commands of the package's own app, and those of the optional ones."""
    commands = list_commands()
    own = [pair for pair in commands if pair[0] == OWN_APP]
    return {
        PATH: _render_page(INTRODUCTION, own),
        APPS_PATH: _render_page(APPS_INTRODUCTION, [pair for pair in commands if pair not in own]),
    }


def _render_page(introduction: str, commands: list[tuple[str, str]]) -> str:
    lines = [introduction, "| Command | Purpose |", "|---|---|"]
    sections: list[str] = []
    for app, name in commands:
        command = importlib.import_module(f"{app}.management.commands.{name}").Command()
        lines.append(f"| [`{name}`](#{name}) | {escape_cell(command.help)} |")
        sections += _render_command(app, name, command)
    return "\n".join([*lines, "", *sections]).rstrip() + "\n"


def _render_command(app: str, name: str, command: BaseCommand) -> list[str]:
    actions = [
        action for action in command.create_parser("manage.py", name)._actions if action.dest not in COMMON_DESTS
    ]
    positional = [action for action in actions if not action.option_strings]
    usage = " ".join(
        ["manage.py", name, *map(_name_argument, positional), *(["[options]"] if actions != positional else [])]
    )

    lines = [f"## {name}", "", f"`{usage}`", ""]
    if app != OWN_APP:
        lines += [f"Requires `{app}` in `INSTALLED_APPS`.", ""]
    lines += [*write_docstring(type(command).__doc__).splitlines(), ""]
    if actions:
        lines += ["| Argument | Default | Meaning |", "|---|---|---|", *map(_render_action, actions), ""]
    return lines


def _render_action(action: Action) -> str:
    is_flag = action.nargs == 0
    name = ", ".join(action.option_strings) or _name_argument(action)
    if action.option_strings and not is_flag:
        name += f" {_name_value(action)}"
    default = "" if is_flag or action.default in (None, "", []) else f"`{_write_default(action.default)}`"
    if not action.option_strings and action.nargs != "?":
        default = "required"
    meaning = (action.help or "").replace("%%", "%")
    if action.choices is not None and action.dest != "server":
        choices = f"one of {', '.join(f'`{choice}`' for choice in action.choices)}"
        meaning = f"{meaning}; {choices}" if meaning else choices
    return f"| `{name}` | {default} | {escape_cell(meaning)} |"


def _name_argument(action: Action) -> str:
    name = action.dest.upper()
    return f"[{name}]" if action.nargs == "?" else f"{name}…" if action.nargs in ("*", "+") else name


def _name_value(action: Action) -> str:
    return str(action.metavar or action.dest).upper().removesuffix("S" if action.dest == "scopes" else "")


def _write_default(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
