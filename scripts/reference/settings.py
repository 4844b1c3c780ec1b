"""The reference of the `MCP` setting, from the dataclasses of its options.

Keys, types and defaults come from the dataclasses, descriptions from the docstrings below their fields.
"""

import ast
import functools
import inspect
import itertools
import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

from mcp_django.conf.clients import ClientAuth, ClientSettings
from mcp_django.conf.issuers import ClaimNames, IssuerSettings
from mcp_django.conf.mounts import MountSettings
from mcp_django.conf.options import ORM, Limits, Rates, ServerSettings, Settings
from mcp_django.conf.proxies import ProxySettings
from mcp_django.conf.readers import find_reader
from mcp_django.contrib.apps.preview.options import PreviewSettings
from mcp_django.contrib.control_room.alerts.options import AlertSettings
from mcp_django.contrib.control_room.options import CallSelection, MetricsSettings, RecordSettings
from mcp_django.contrib.memory.options import MemorySettings
from mcp_django.contrib.oauth.options import OAuthSettings
from mcp_django.contrib.playground.models import PlaygroundSettings
from mcp_django.contrib.tasks.options import TaskSettings
from scripts.reference import limits
from scripts.reference.sources import MARK

INTRODUCTION: Final = f"""\
# Settings

{MARK}

The package has one setting, the dictionary `MCP`. Every key is optional, unless its default is "required".
A list may be written as a tuple. Durations are numbers of seconds. Strings must not be empty.

[System checks](checks.md) report an invalid value and a misspelt key. While a value is invalid, nothing is served.

"""
CLIENTS_INTRODUCTION: Final = f"""\
# Settings of servers that the project uses

{MARK}

Name each server in `MCP["CLIENTS"]`, a dict from aliases to dicts. [Call another MCP
server](../use-servers/first-server.md) shows their use, and [Servers that require OAuth](../use-servers/oauth.md) the
credentials.

```python
MCP = {{
    "CLIENTS": {{
        "github": {{"URL": "https://api.example.com/mcp", "AUTH": {{"TYPE": "oauth"}}, "TIMEOUT": 30}},
        "files": {{"COMMAND": ["npx", "-y", "@modelcontextprotocol/server-filesystem", "."], "CWD": "/srv/files"}},
        "live": {{"URL": "wss://live.example.com/ws", "HEADERS": {{"X-Api-Key": "a key"}}}},
        "old": {{"URL": "https://old.example.com/sse", "TRANSPORT": "sse"}},
    }}
}}
```

An alias is a small letter, followed by small letters, digits, `-` and single `_`. It has at most 32 characters, because
it precedes `__` in the names of tools.

[System checks](checks.md#mcp_djangoe002) report unknown keys and invalid values. Secrets are left out of messages, logs
and every `repr`.

"""
ACCESS_INTRODUCTION: Final = f"""\
# Settings of identity providers and OAuth

{MARK}

These sections of the `MCP` setting configure [identity providers](../protect/identity-provider.md) and the
[authorization server](../protect/oauth.md).

"""


class Section(NamedTuple):
    """One dictionary of the setting, and the dataclass that holds its options."""

    title: str
    path: str
    """The dictionary, as an expression of Python."""
    options: type[Any]
    page: str = "settings.md"


SECTIONS: Final = (
    Section("Top level", "MCP", Settings),
    Section("SERVERS", 'MCP["SERVERS"][alias]', ServerSettings),
    Section("MOUNTS", 'MCP["SERVERS"][alias]["MOUNTS"][prefix]', MountSettings),
    Section("PROXIES", 'MCP["SERVERS"][alias]["PROXIES"][client alias]', ProxySettings),
    Section("CLIENTS", 'MCP["CLIENTS"][alias]', ClientSettings, "settings-clients.md"),
    Section("AUTH of a client", 'MCP["CLIENTS"][alias]["AUTH"]', ClientAuth, "settings-clients.md"),
    Section("ISSUERS", 'MCP["ISSUERS"][number]', IssuerSettings, "settings-access.md"),
    Section("CLAIMS of an issuer", 'MCP["ISSUERS"][number]["CLAIMS"]', ClaimNames, "settings-access.md"),
    Section("LIMITS", 'MCP["LIMITS"]', Limits, "limits.md"),
    Section("RATES", 'MCP["RATES"]', Rates, "limits.md"),
    Section("ORM", 'MCP["ORM"]', ORM, "settings-access.md"),
    Section("OAUTH", 'MCP["OAUTH"]', OAuthSettings, "settings-access.md"),
    Section("MEMORY", 'MCP["MEMORY"]', MemorySettings),
    Section("TASKS", 'MCP["TASKS"]', TaskSettings),
    Section("APPS_PREVIEW", 'MCP["APPS_PREVIEW"]', PreviewSettings),
    Section("RECORD", 'MCP["RECORD"]', RecordSettings),
    Section("METRICS", 'MCP["METRICS"]', MetricsSettings),
    Section("PLAYGROUND", 'MCP["PLAYGROUND"]', PlaygroundSettings),
    Section("ALERTS", 'MCP["ALERTS"]', AlertSettings),
)
INTRODUCTIONS: Final = {
    "settings.md": INTRODUCTION,
    "settings-clients.md": CLIENTS_INTRODUCTION,
    "settings-access.md": ACCESS_INTRODUCTION,
    "limits.md": limits.INTRODUCTION,
}
"""The beginning of each page."""
APPS: Final = {
    "OAUTH": "mcp_django.contrib.oauth",
    "MEMORY": "mcp_django.contrib.memory",
    "TASKS": "mcp_django.contrib.tasks",
    "APPS_PREVIEW": "mcp_django.contrib.apps",
    "RECORD": "mcp_django.contrib.control_room",
    "METRICS": "mcp_django.contrib.control_room",
    "PLAYGROUND": "mcp_django.contrib.playground",
    "ALERTS": "mcp_django.contrib.control_room",
}
"""Sections that exist only if an app is installed, with the app."""
NOT_KEYS: Final = {(ClientSettings, "alias")}
"""Fields that the reader of the setting fills in."""
REQUIRED: Final = {(IssuerSettings, "issuer"), (ClientAuth, "type")}
"""Keys without a useful default. The system checks refuse an entry without them."""
FACTORS: Final = ((1024 * 1024, "MiB"), (1024, "KiB"))
DURATIONS: Final = ((86400, "day"), (3600, "hour"), (60, "minute"))


def describe_fields(cls: type[Any]) -> dict[str, str]:
    """Return the docstring of each field of a dataclass, as one line."""
    body = _class_definition(cls).body
    found: dict[str, str] = {}

    for node, following in itertools.pairwise(body):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            found[node.target.id] = " ".join(str(following.value.value).split())

    return found


def _class_definition(cls: type[Any]) -> ast.ClassDef:
    tree = _parse_file(inspect.getsourcefile(cls) or "")
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__)


@functools.cache
def _parse_file(path: str) -> ast.Module:
    return ast.parse(Path(path).read_text(encoding="utf-8"))


def describe_type(hint: Any) -> str:
    """Return the type as a project writes it: lists instead of tuples, dictionaries instead of options."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return describe_type(arguments[0])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe_type(part) for part in arguments))
    if hint is types.NoneType:
        return "None"
    if origin is tuple:
        return f"list of {describe_type(arguments[0])}"
    if origin is not None and issubclass(origin, Mapping):
        value = describe_type(arguments[1])
        return "dict" if value == "any value" else f"dict of {value}"
    if hint is Any:
        return "any value"
    if is_dataclass(hint):
        return _link_section(hint)
    return str(hint.__name__) if hint.__module__ == "builtins" else "str"


def _link_section(cls: Any) -> str:
    found = next((section for section in SECTIONS if section.options is cls), None)
    return "str" if found is None else f"[dict]({_link(found)})"


def _link(section: Section) -> str:
    return f"{section.page}#{section.title.lower().replace(' ', '-')}"


def describe_values(hint: Any) -> str:
    """Return the rule for values: the message with which the reader of the option refuses an invalid one.

    An empty string means that the type is the whole rule.
    """
    if get_origin(hint) is not Annotated:
        return ""
    read, rule = find_reader(hint, ""), ""

    for invalid in (object(), [object()]):
        try:
            read(invalid)
        except ValueError as refused:
            rule = re.sub(r"^must (be|have) ", "", str(refused))
        else:
            return ""
        if rule != "a list":
            break

    return "" if "empty" in rule else rule


def describe_default(section: type[Any], option: "Field[Any]", description: str) -> str:
    """Return the default as a project would write it, with its unit where it is a large number."""
    if (section, option.name) in REQUIRED or (option.default is MISSING and option.default_factory is MISSING):
        return "required"
    value = option.default if option.default_factory is MISSING else option.default_factory()
    if is_dataclass(value) and type(value) in {section.options for section in SECTIONS}:
        return "`{}`"
    return _format_value(value) + _describe_size(value, description)


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(
            f'"{key}": {_quote(item) if isinstance(item, float) else "{}"}' for key, item in value.items()
        )
        return f"`{{{inner}}}`"
    if type(value) is tuple:
        return "`[" + ", ".join(_quote(item) for item in value) + "]`"
    return f"`{_quote(value)}`"


def _quote(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, CallSelection):
        return str(value).replace("'", '"')
    return str(value) if value is None or isinstance(value, int | float) else f'"{value}"'


def _describe_size(value: Any, description: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value:
        return ""
    if isinstance(value, int) and "bytes" in description.lower():
        for factor, unit in FACTORS:
            if value % factor == 0:
                return f" ({value // factor} {unit})"
    if isinstance(value, float):
        for factor, unit in DURATIONS:
            if value % factor == 0 and value > factor:
                return f" ({int(value // factor)} {unit}s)"
            if value == factor:
                return f" (1 {unit})"
    return ""


def render_section(section: Section) -> str:
    """Return a heading, the purpose of the section and the table of its keys."""
    hints = get_type_hints(section.options, include_extras=True)
    descriptions = describe_fields(section.options)
    lines = [f"## {section.title}", "", f"`{section.path}`", ""]

    if section.title in APPS:
        lines += [f"This section exists if `{APPS[section.title]}` is in `INSTALLED_APPS`.", ""]
    has_effects = section.page == limits.PATH
    titles = ["Key", "Type and values", "Default", "Description", *(["Beyond it"] if has_effects else [])]
    lines += [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]

    for option in fields(section.options):
        if (section.options, option.name) in NOT_KEYS:
            continue
        description = descriptions.get(option.name, "")
        kind, rule = describe_type(hints[option.name]), describe_values(hints[option.name])
        values = f"{kind}: {rule}" if rule and kind != "bool" else kind
        cells = (
            f"`{option.name.upper()}`",
            values,
            describe_default(section.options, option, description),
            description,
            *([limits.EFFECTS[option.name.upper()]] if has_effects else []),
        )
        lines.append("| " + " | ".join(_escape(cell) for cell in cells) + " |")

    return "\n".join(lines) + "\n"


def _escape(cell: str) -> str:
    parts = cell.replace("|", "\\|").split("`")
    return "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(parts))


def render_settings() -> dict[str, str]:
    """Map the paths of the pages to their texts."""
    contents = "\n".join(f"- [{section.title}]({_link(section)}): `{section.path}`" for section in SECTIONS)
    pages = {}
    for path, introduction in INTRODUCTIONS.items():
        sections = [render_section(section) for section in SECTIONS if section.page == path]
        start = f"{introduction}{contents}\n\n" if path == "settings.md" else introduction
        pages[path] = start + "\n".join(sections)
    return pages
