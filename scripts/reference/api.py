"""The reference of the public names: pages of classes and functions, with their signatures and docstrings."""

import importlib
import inspect
from collections.abc import Iterator, Sequence
from enum import EnumType
from typing import Any, Final, NamedTuple

from scripts.reference.sources import (
    MARK,
    Member,
    describe_alias,
    describe_attributes,
    escape_cell,
    get_function,
    list_members,
    list_options,
    read_return_type,
    write_docstring,
    write_signature,
)

FOLDER: Final = "api"
MAX_BODY_LINES: Final = 235
"""Lines of a page below its title and its introduction."""


class ApiPage(NamedTuple):
    """A page, and the names on it."""

    name: str
    title: str
    module: str
    guide: str
    """The page that explains the use, below `docs/`."""
    names: tuple[str, ...] = ()
    """Empty for all names of the module that no other page has."""


PAGES: Final = (
    ApiPage(
        "declarations",
        "Declarations",
        "mcp_django",
        "expose/tools.md",
        ("tool", "resource", "prompt", "completion", "Toolset", "register", "Depends", "Header", "ToolResult"),
    ),
    ApiPage("context", "Context", "mcp_django", "talk-back/context.md", ("Context",)),
    ApiPage(
        "model-toolsets",
        "Toolsets of models",
        "mcp_django",
        "expose/models.md",
        ("ModelToolset", "ModelInline", "action"),
    ),
    ApiPage(
        "codecs", "Codecs of columns", "mcp_django.orm", "expose/codecs.md", ("Codec", "get_codec", "register_codec")
    ),
    ApiPage("tree-toolsets", "Trees", "mcp_django.orm", "recipes/trees.md", ("TreeToolset",)),
    ApiPage(
        "model-registration",
        "Registration of models",
        "mcp_django.orm",
        "protect/object-permissions.md",
        ("register_model",),
    ),
    ApiPage("notifications", "Notifications", "mcp_django.notifications", "talk-back/publishing.md"),
    ApiPage("server", "Servers, callers and errors", "mcp_django", "run/several-servers.md"),
    ApiPage("types", "Types", "mcp_django.types", "expose/tools.md"),
    ApiPage("providers", "Providers", "mcp_django.providers", "expose/files.md"),
    ApiPage("observability", "Observability", "mcp_django.observability", "run/observability.md"),
    ApiPage("extensions", "Extensions", "mcp_django.extensions", "talk-back/extensions.md"),
    ApiPage("lowlevel", "Handlers of methods", "mcp_django.lowlevel", "run/several-servers.md"),
    ApiPage("testing", "Testing", "mcp_django.testing", "test/testing.md"),
    ApiPage("client", "Client", "mcp_django.client", "use-servers/client.md", ("Client", "Progress")),
    ApiPage(
        "blocking-client",
        "Client without an event loop",
        "mcp_django.client",
        "use-servers/client.md",
        ("BlockingClient", "get_client", "close_clients", "aclose_clients"),
    ),
    ApiPage("bridges", "Bridges, transports and errors of the client", "mcp_django.client", "use-servers/bridge.md"),
    ApiPage("apps", "Apps", "mcp_django.contrib.apps", "talk-back/apps.md"),
    ApiPage("openapi", "OpenAPI documents", "mcp_django.contrib.openapi", "expose/openapi.md"),
    ApiPage("rest", "Django REST framework", "mcp_django.contrib.rest", "expose/rest.md"),
    ApiPage("proxies", "Proxies", "mcp_django.contrib.proxies", "expose/proxies.md"),
    ApiPage(
        "extensions-primitives",
        "Primitives of providers (provisional)",
        "mcp_django.extensions.primitives",
        "expose/providers.md",
    ),
    ApiPage(
        "extensions-schemas",
        "Schemas of tools (provisional)",
        "mcp_django.extensions.schemas",
        "expose/providers.md",
    ),
    ApiPage(
        "extensions-html-pages",
        "HTML pages of extensions (provisional)",
        "mcp_django.extensions.html_pages",
        "talk-back/extensions.md",
    ),
    ApiPage(
        "extensions-http-client",
        "Guarded HTTP client (provisional)",
        "mcp_django.extensions.http_client",
        "expose/providers.md",
    ),
    ApiPage(
        "extensions-internal-requests",
        "Requests inside the process (provisional)",
        "mcp_django.extensions.internal_requests",
        "expose/providers.md",
    ),
)


class _Block(NamedTuple):
    """A heading with its text: the smallest part that a page holds as a whole."""

    lines: list[str]
    entry: str = ""
    """The name, for the index; empty for a member."""


def render_api() -> dict[str, str]:
    """Map paths below `docs/reference/` to pages."""
    rendered, index, shown = {}, [MARK, ""], {}

    for page, names in list_pages():
        blocks = [block for name in names for block in _render_name(page, name, shown)]
        parts = list(_split(blocks))
        entries = []
        for number, part in enumerate(parts, 1):
            path = f"{FOLDER}/{page.name}{'' if number == 1 else f'-{number}'}.md"
            rendered[path] = "\n".join(
                [*_render_head(page, number, len(parts)), *(line for block in part for line in block.lines)]
            )
            entries += [
                f"[`{block.entry}`]({path.split('/')[1]}#{block.entry.lower()})" for block in part if block.entry
            ]
        index.append(f"| [{page.title}]({page.name}.md) | `{page.module}` | {', '.join(entries)} |")

    head = ["# Public names", "", *index[:2], *_INDEX_HEAD]
    rendered[f"{FOLDER}/index.md"] = "\n".join([*head, *index[2:], ""])
    return {path: f"{text.rstrip()}\n" for path, text in rendered.items()}


_INDEX_HEAD: Final = [
    "Import a name from the module in the second column. Names that are not listed here may change at any time.",
    "Members of a class that start with an underscore, and modules below those listed, are private too.",
    "",
    "| Page | Module | Names |",
    "|---|---|---|",
]


def list_pages() -> Iterator[tuple[ApiPage, Sequence[str]]]:
    """Yield the pages with their names. A name is on one page, even if several modules export it."""
    chosen = {id(getattr(importlib.import_module(page.module), name)) for page in PAGES for name in page.names}

    for page in PAGES:
        module = importlib.import_module(page.module)
        names = page.names or [name for name in sorted(module.__all__) if id(getattr(module, name)) not in chosen]
        chosen |= {id(getattr(module, name)) for name in names}
        yield page, names


def _render_head(page: ApiPage, number: int, count: int) -> list[str]:
    title = page.title if count == 1 else f"{page.title}, part {number} of {count}"
    lines = [
        f"# {title}",
        "",
        MARK,
        "",
        f"Import these names from `{page.module}`. [The guide](../../{page.guide}) shows their use.",
    ]
    if count > 1:
        others = [other for other in range(1, count + 1) if other != number]
        links = [f"[{other}]({page.name}{'' if other == 1 else f'-{other}'}.md)" for other in others]
        lines[-1] += f" Other parts: {', '.join(links)}."
    return [*lines, ""]


def _split(blocks: list[_Block]) -> Iterator[list[_Block]]:
    """Yield the blocks of each page. Pages have about the same length."""
    total = sum(len(block.lines) for block in blocks)
    length = total / (total // MAX_BODY_LINES + 1)
    part: list[_Block] = []
    for block in blocks:
        size = sum(len(one.lines) for one in part)
        if part and (size + len(block.lines) / 2 > length or size + len(block.lines) > MAX_BODY_LINES):
            yield part
            part = []
        part.append(block)
    yield part


def _render_name(page: ApiPage, name: str, shown: dict[tuple[type, str], str]) -> Iterator[_Block]:
    """Yield a block for a name, and one for each method of a class."""
    value = getattr(importlib.import_module(page.module), name)
    if not inspect.isclass(value) and not inspect.isfunction(inspect.unwrap(value)):
        alias, text = describe_alias(page.module, name)
        yield _Block([f"## {name}", "", "```text", f"{name} = {alias}", "```", "", text, ""], name)
        return

    lines = [f"## {name}", "", "```text", *write_signature(value, name).splitlines(), "```", ""]
    lines += [*write_docstring(value.__doc__).splitlines(), ""]
    if not inspect.isclass(value):
        yield _Block([*lines, *_render_options(inspect.unwrap(value))], name)
        return

    members = list(list_members(value))
    own = [member for member in members if (member.owner, member.name) not in shown]
    lines += _render_shared(name, members, shown)
    shown.update({(member.owner, member.name): name for member in own})
    yield _Block(lines + _render_attributes(value, own), name)
    for member in own:
        function = get_function(member.value)
        if function is not None:
            yield _Block(_render_method(name, member.name, function))


def _render_options(function: Any) -> list[str]:
    options = list_options(function)
    if not options:
        return []
    cells = [f"| `{key}` | `{escape_cell(kind)}` |" for key, kind in options.items()]
    return ["| Option | Type |", "|---|---|", *cells, ""]


def _render_shared(name: str, members: list[Member], shown: dict[tuple[type, str], str]) -> list[str]:
    """Name the members that an earlier class has described."""
    shared: dict[str, list[str]] = {}
    for member in members:
        if (member.owner, member.name) in shown:
            shared.setdefault(shown[member.owner, member.name], []).append(f"`{member.name}`")
    lines = []
    for other, names in shared.items():
        lines += [f"As in `{other}`: {', '.join(names)}.", ""]
    return lines


def _render_attributes(cls: type, members: list[Member]) -> list[str]:
    """Return a table of the attributes, properties and values of an enumeration."""
    rows = []
    for member in members:
        if get_function(member.value) is not None:
            continue
        kind, text = describe_attributes(member.owner).get(member.name, ("", ""))
        if isinstance(member.value, property) and member.value.fget is not None:
            text = " ".join(inspect.cleandoc(member.value.__doc__ or "").split())
            kind = read_return_type(member.value.fget)
        if isinstance(cls, EnumType):
            kind = repr(member.value.value if hasattr(member.value, "value") else member.value)
        if not text and not isinstance(cls, EnumType):
            continue  # The signature has its type.
        rows.append(
            f"| `{member.name}` | {f'`{escape_cell(kind)}`' if kind else ''} | {escape_cell(write_docstring(text))} |"
        )
    return ["| Attribute | Type | Description |", "|---|---|---|", *rows, ""] if rows else []


def _render_method(name: str, method: str, function: Any) -> list[str]:
    signature = write_signature(function, method).splitlines()
    code = [f"`{signature[0]}`"] if len(signature) == 1 else ["```text", *signature, "```"]
    return [f"### {name}.{method}", "", *code, "", *write_docstring(function.__doc__).splitlines(), ""]
