"""Tools for sampling requests: definitions for the client's model, and execution.

A tool of the server keeps its permission decision, guards and interceptors. A function becomes a tool for this one
request. The handler itself must run the uses of a plain definition.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import FunctionType
from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InsufficientScope, InvalidParams, MCPError
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.protocol.meta import PROGRESS_TOKEN
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.outcome import CallRecord
from mcp_django.server.composition.provider import find_provided_tool
from mcp_django.server.context.conversation import CallSuspended, ClientConversation, InputRequest
from mcp_django.server.context.sampling import OfferedTool, short_digest
from mcp_django.server.execution.invoke import call_nested_tool
from mcp_django.server.execution.permissions import check_permission, count_use
from mcp_django.server.primitives.base import Tool
from mcp_django.server.primitives.decorators import NAME_PATTERN, build_tool
from mcp_django.server.primitives.results import build_tool_error

_MODEL_FIELDS = frozenset({"name", "title", "description", "inputSchema"})
"""Fields of a tool that the model receives. The other fields are for clients."""


class Toolbox:
    """The tools of one sampling request."""

    def __init__(self, definitions: Sequence[JSONMapping], tools: Mapping[str, Tool]) -> None:
        self.definitions = list(definitions)
        """Definitions for the model, in the form of the call's revision."""
        self._tools = tools

    @classmethod
    async def build(cls, call: Call, offered: Sequence[OfferedTool]) -> "Toolbox":
        """Select the tools in `offered` that the caller may use.

        The model does not receive the other tools. Raises ValueError for an unknown or repeated name, TypeError for a
        value that cannot be a tool, and DeclarationError for a function that cannot be a tool.
        """
        definitions: dict[str, JSONMapping] = {}
        tools: dict[str, Tool] = {}

        for item in offered:
            definition = item if isinstance(item, Mapping) else None
            tool = None if definition is not None else await _find_tool(call, item)
            name = _check_definition(definition) if tool is None else tool.name
            if name in definitions or name in tools:
                raise ValueError(f"tools= has {name!r} twice; give one of them another name")
            if tool is None:
                definitions[name] = call.revision.shape_tool(dict(definition or {}))
                continue

            tools[name] = tool
            if await _is_allowed(call, tool):
                listed = tool.to_list_entry(call.revision)
                definitions[name] = {key: value for key, value in listed.items() if key in _MODEL_FIELDS}
        return cls(list(definitions.values()), tools)

    def is_definition_only(self, name: str) -> bool:
        """Return True for a plain definition, whose uses the handler must run."""
        return name not in self._tools and any(definition["name"] == name for definition in self.definitions)

    async def run(self, call: Call, use: JSONMapping, scope: str, outer: ClientConversation) -> JSONObject:
        """Run one use of a tool and return the CallToolResult body.

        A tool that the caller may not use is unknown to the model too. `scope` names the use within the `outer`
        conversation. Raises CallSuspended, MissingClientCapability and Overloaded.
        """
        conversation = NestedConversation(outer, scope)
        tool, arguments = self._tools.get(use["name"]), use["input"]
        unknown = InvalidParams(f"Unknown tool: {use['name'][:128]}")

        if tool is None:
            return build_tool_error(unknown.message)
        try:
            await check_permission(call, tool, unknown, arguments)
        except MCPError as problem:
            # The model has no credential for a step-up.
            return build_tool_error(unknown.message if isinstance(problem, InsufficientScope) else problem.message)
        if rate_error := await count_use(call, tool):
            return build_tool_error(rate_error)

        body = await call_nested_tool(_create_nested_call(call, tool, arguments), tool, arguments, conversation)
        if conversation.suspended:
            raise CallSuspended  # overrides the tool's own result
        return body


class NestedConversation:
    """The conversation of a tool that runs inside another call.

    Its requests and `run_once` keys have a prefix. They keep their names in every round, no matter which tools have
    results by then.
    """

    def __init__(self, outer: ClientConversation, scope: str) -> None:
        self._outer = outer
        self._scope = scope
        self.waits_for_response = outer.waits_for_response
        self.suspended = False
        """True if the tool waits for another round."""

    @property
    def replaying(self) -> bool:
        return self._outer.replaying

    async def request_input(self, request: InputRequest) -> Any:
        key = request.key or f"{request.method.partition('/')[0]}-{short_digest(request.identity_json)}"
        return await self._unless_suspended(self._outer.request_input(request._replace(key=f"{self._scope}.{key}")))

    async def run_once(self, key: str, run: Callable[[], Awaitable[object]], **how: Any) -> Any:
        return await self._unless_suspended(self._outer.run_once(f"{self._scope}.{key}", run, **how))

    async def _unless_suspended(self, step: Awaitable[object]) -> object:
        try:
            return await step
        except CallSuspended:
            self.suspended = True
            raise


def _create_nested_call(call: Call, tool: Tool, arguments: JSONObject) -> Call:
    """Create the call for the tool, with its own failures and without progress."""
    message = jsonrpc.Request(call.id or 0, "tools/call", {"name": tool.name, "arguments": arguments})
    meta = {key: value for key, value in call.meta.items() if key != PROGRESS_TOKEN}
    fate = CallRecord()
    fate.outer_record = call.record
    return replace(call, message=message, meta=meta, record=fate)


async def _is_allowed(call: Call, tool: Tool) -> bool:
    authorizer = call.server.ports.authorizer
    return not authorizer.is_restricted(tool) or (await authorizer.decide(call.principal, tool)).allowed


async def _find_tool(call: Call, item: object) -> Tool:
    registered = call.server.registry.tools
    if isinstance(item, Tool):
        return item
    if isinstance(item, str):
        tool = registered.get(item) or await find_provided_tool(call, item)
        if tool is None:
            raise ValueError(f"tools= names {item!r}, an unknown tool of this server")
        return tool
    if not callable(item):
        raise TypeError(f"tools= takes names, functions and definitions, not {type(item).__name__}")
    return next((tool for tool in registered if tool.handler.fn == item), None) or _compile_function(item)


def _compile_function(fn: Callable[..., object]) -> Tool:
    """Compile a function into a tool, cached for functions at module level.

    A function created by a handler is not cached, because the cache would keep its closure alive.
    """
    is_local = not isinstance(fn, FunctionType) or "<locals>" in fn.__qualname__
    return build_tool(fn) if is_local else _compile_cached(fn)


@lru_cache(maxsize=256)
def _compile_cached(fn: Callable[..., object]) -> Tool:
    return build_tool(fn)


def _check_definition(definition: JSONMapping | None) -> str:
    """Return the name of a definition. Raises ValueError for an invalid definition."""
    name, schema = (definition or {}).get("name"), (definition or {}).get("inputSchema")
    if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
        raise ValueError(f"a tool's definition needs a name of 1 to 64 letters, digits, '_', '-' and '.', not {name!r}")
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise ValueError(f"the definition of the tool {name!r} needs an inputSchema of type object")
    return name
