"""Generic tools: four tools for all operations of an API.

`api_search` finds operations, `api_describe` returns the arguments of one, `api_read` and `api_call` run it. Each call
is forwarded to the operation's own tool, with that tool's permission, scopes, policies, rate, guards, timeout and
transaction. An operation that is hidden from the caller is treated like an unknown one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args
from weakref import WeakKeyDictionary

from mcp_django.contrib.http_tools.operation_search import CatalogEntry, search_operations
from mcp_django.extensions.calls import Context
from mcp_django.extensions.errors import DeclarationError, ToolError
from mcp_django.extensions.primitives import Registry, Tool, build_tool, delegate_to_tool, get_client_name
from mcp_django.types import ToolAnnotations

OperationStyle = Literal["per_operation", "generic"]
"""Values of the option `style`."""
DEFAULT_PREFIX = "api_"
DEFAULT_MAX_FOUND = 20
MAX_FOUND = 50
"""Maximum operations in one result of a search."""

_OPERATION = {"type": "string", "description": "Name of the operation, from a search."}
_SEARCH_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "maxLength": 500, "description": "Words; without them, all operations by name."},
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": DEFAULT_MAX_FOUND},
        "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "Operations to skip."},
    },
    "additionalProperties": False,
}
_SEARCH_OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "operations": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        },
        "total": {"type": "integer"},
    },
    "required": ["operations", "total"],
}
_DESCRIBE_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {"operation": _OPERATION},
    "required": ["operation"],
    "additionalProperties": False,
}
_RUN_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "operation": _OPERATION,
        "arguments": {
            "type": "object",
            "description": "Arguments of the operation, as described for it.",
            "additionalProperties": True,
        },
    },
    "required": ["operation"],
    "additionalProperties": False,
}


class OperationCatalog:
    """Operations of generic tools, by name."""

    def __init__(self, prefix: str = "") -> None:
        """Create an empty catalog; `prefix` is that of the toolset."""
        self.own_prefix = "" if prefix else DEFAULT_PREFIX
        """Prefix of the generic tools in addition to that of the toolset."""
        self.prefix = prefix or DEFAULT_PREFIX
        """Prefix of the generic tools for clients."""
        self._entries: dict[str, CatalogEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Iterable[CatalogEntry]:
        """All operations."""
        return self._entries.values()

    def add(self, entry: CatalogEntry) -> None:
        """Add an operation. Raises DeclarationError if its name is taken."""
        taken = self._entries.get(entry.tool.name)
        if taken is not None:
            raise DeclarationError(
                f"operation {entry.tool.name!r} of {entry.tool.source} is already registered by {taken.tool.source}"
            )
        self._entries[entry.tool.name] = entry

    async def list_visible(self, ctx: Context) -> list[CatalogEntry]:
        """Return the operations that are not hidden from the caller."""
        authorizer = ctx.server.ports.authorizer
        restricted = [entry.tool for entry in self.entries if authorizer.is_restricted(entry.tool)]
        hidden = await authorizer.find_hidden_keys(ctx.principal, restricted) if restricted else frozenset[str]()
        return [entry for entry in self.entries if entry.tool.key not in hidden]

    async def get(self, name: str, ctx: Context) -> CatalogEntry:
        """Return an operation. Raises ToolError if it is unknown to the caller."""
        entry = self._entries.get(name)
        if entry is not None and ctx.server.ports.authorizer.is_restricted(entry.tool):
            hidden = await ctx.server.ports.authorizer.find_hidden_keys(ctx.principal, [entry.tool])
            entry = None if entry.tool.key in hidden else entry
        if entry is None:
            search = get_client_name(ctx, f"{self.prefix}search")
            raise ToolError(f"Unknown operation: {name[:200]}; find its name with {search}")
        return entry


_SERVER_CATALOGS: WeakKeyDictionary[Registry, OperationCatalog] = WeakKeyDictionary()
"""Catalogs of the operations that are exposed one by one, by registry."""


def check_style(style: Any, source: str) -> OperationStyle:
    """Return the value of the option `style`. Raises DeclarationError."""
    found: OperationStyle | None = next((known for known in get_args(OperationStyle) if known == style), None)
    if found is None:
        raise DeclarationError(f"{source}: style={style!r} is invalid; use {' or '.join(get_args(OperationStyle))}")
    return found


def get_server_catalog(registry: Registry) -> OperationCatalog:
    """Return the catalog of a server; its generic tools are registered when the project is complete."""
    catalog = _SERVER_CATALOGS.get(registry)
    if catalog is None:
        catalog = _SERVER_CATALOGS[registry] = OperationCatalog()
        registry.defer(partial(_register_generic_tools, registry, catalog))
    return catalog


def _register_generic_tools(registry: Registry, catalog: OperationCatalog) -> None:
    for tool in build_generic_tools(catalog, subject="this project", open_world=False):
        registry.add(partial(replace, tool), tool.source, tool.name)


def build_generic_tools(catalog: OperationCatalog, *, subject: str, open_world: bool | None) -> list[Tool]:
    """Build the generic tools of a catalog, without the prefix of a toolset.

    `subject` names the API in their descriptions. `open_world` is the annotation of the tools that run operations.
    """

    async def search(ctx: Context, **arguments: Any) -> Any:
        found = search_operations(await catalog.list_visible(ctx), arguments.get("query", ""))
        offset, limit = arguments.get("offset", 0), arguments.get("limit", DEFAULT_MAX_FOUND)
        page = found[offset : offset + limit]
        return {"operations": [_summarize(entry, catalog, ctx) for entry in page], "total": len(found)}

    async def describe(ctx: Context, **arguments: Any) -> Any:
        entry = await catalog.get(arguments["operation"], ctx)
        return await ctx.server.ports.executor.run(_describe, entry, _summarize(entry, catalog, ctx))

    async def read(ctx: Context, **arguments: Any) -> Any:
        entry = await catalog.get(arguments["operation"], ctx)
        if not entry.is_reading:
            call_name = get_client_name(ctx, f"{catalog.prefix}call")
            raise ToolError(f"{entry.tool.name} is not read-only; run it with {call_name}")
        return await delegate_to_tool(ctx, entry.tool, arguments.get("arguments", {}), sets_target=True)

    async def call(ctx: Context, **arguments: Any) -> Any:
        entry = await catalog.get(arguments["operation"], ctx)
        return await delegate_to_tool(ctx, entry.tool, arguments.get("arguments", {}), sets_target=True)

    looking = ToolAnnotations(read_only=True, open_world=False)
    reading = ToolAnnotations(read_only=True, open_world=open_world)
    writing = ToolAnnotations(read_only=False, destructive=True, idempotent=False, open_world=open_world)
    search_name, describe_name = f"{catalog.prefix}search", f"{catalog.prefix}describe"

    return [
        build_tool(
            search,
            f"{catalog.own_prefix}search",
            description=f"Find operations of {subject} by words, the best first.",
            input_schema=_SEARCH_INPUT,
            output_schema=_SEARCH_OUTPUT,
            annotations=looking,
            atomic=False,
        ),
        build_tool(
            describe,
            f"{catalog.own_prefix}describe",
            description=f"Describe an operation of {subject}: its arguments, its result, and the tool that runs it.",
            input_schema=_DESCRIBE_INPUT,
            output_schema={"type": "object"},
            annotations=looking,
            atomic=False,
        ),
        _build_runner(
            read,
            f"{catalog.own_prefix}read",
            catalog,
            f"Run a read-only operation of {subject}. Find it with {search_name}, and its arguments with "
            f"{describe_name}.",
            reading,
        ),
        _build_runner(
            call,
            f"{catalog.own_prefix}call",
            catalog,
            f"Run an operation of {subject} that may change data. Find it with {search_name}, and its arguments with "
            f"{describe_name}.",
            writing,
        ),
    ]


def _build_runner(
    run: Callable[..., Any], name: str, catalog: OperationCatalog, description: str, annotations: ToolAnnotations
) -> Tool:
    # The forwarded tool declares its own transaction.
    tool = build_tool(
        run, name, description=description, input_schema=_RUN_INPUT, annotations=annotations, atomic=False
    )
    tools: Sequence[Tool] = [entry.tool for entry in catalog.entries]
    timeouts = [one.timeout for one in tools if one.timeout is not None]
    tool.timeout = max(timeouts, default=None)
    tool.single_use_state = any(one.single_use_state for one in tools)
    return tool


def _summarize(entry: CatalogEntry, catalog: OperationCatalog, ctx: Context) -> dict[str, Any]:
    runner = get_client_name(ctx, f"{catalog.prefix}{'read' if entry.is_reading else 'call'}")
    request = f"{entry.method.upper()} {entry.path}".strip()
    return {"name": entry.tool.name, "request": request, "summary": entry.summary, "tool": runner}


def _describe(entry: CatalogEntry, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Describe an operation; its schemas may be built now."""
    listed = entry.tool.wire
    description: dict[str, Any] = {
        **summary,
        "description": listed.get("description", ""),
        "arguments": listed["inputSchema"],
    }
    output = None if entry.get_output is None else entry.get_output()
    result = listed.get("outputSchema", None if output is None else output.schema)
    if result is not None:
        description["result"] = result
    return description
