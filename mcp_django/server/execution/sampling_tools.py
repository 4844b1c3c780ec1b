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
from mcp_django.protocol.meta import PROGRESS_TOKEN
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.outcome import Fate
from mcp_django.server.client_requests.conversation import Conversation, Question, Suspended
from mcp_django.server.client_requests.sampling import digest
from mcp_django.server.composition.provider import provided_tool
from mcp_django.server.execution.invoke import call_within
from mcp_django.server.execution.permissions import permit, ration
from mcp_django.server.primitives.base import Tool
from mcp_django.server.primitives.decorators import NAME, build_tool
from mcp_django.server.primitives.results import tool_error

Offered = str | Callable[..., Any] | Tool | Mapping[str, Any]
"""A tool for a sampling request.

It is the name of a tool of the server, the function of one, any other function, a Tool, or a definition in wire form:
`{"name": …, "description": …, "inputSchema": {…}}`.
"""
_TOLD = frozenset({"name", "title", "description", "inputSchema"})
"""Fields of a tool that the model receives. The other fields are for clients."""


class Toolbox:
    """The tools of one sampling request."""

    def __init__(self, definitions: Sequence[Mapping[str, Any]], tools: Mapping[str, Tool]) -> None:
        self.definitions = list(definitions)
        """Definitions for the model, in the form of the call's revision."""
        self._tools = tools

    @classmethod
    async def of(cls, call: Call, offered: Sequence[Offered]) -> "Toolbox":
        """Select the tools in `offered` that the caller may use.

        The model does not receive the other tools. Raises ValueError for an unknown or repeated name, TypeError for a
        value that cannot be a tool, and DeclarationError for a function that cannot be a tool.
        """
        definitions: dict[str, Mapping[str, Any]] = {}
        tools: dict[str, Tool] = {}

        for item in offered:
            definition = item if isinstance(item, Mapping) else None
            tool = None if definition is not None else await _tool(call, item)
            name = _named(definition) if tool is None else tool.name
            if name in definitions or name in tools:
                raise ValueError(f"tools= has {name!r} twice; give one of them another name")
            if tool is None:
                definitions[name] = call.revision.shape_tool(dict(definition or {}))
                continue

            tools[name] = tool
            if await _may_use(call, tool):
                listed = tool.listed(call.revision)
                definitions[name] = {key: value for key, value in listed.items() if key in _TOLD}
        return cls(list(definitions.values()), tools)

    def hands_back(self, name: str) -> bool:
        """Return True for a plain definition, whose uses the handler must run."""
        return name not in self._tools and any(definition["name"] == name for definition in self.definitions)

    async def run(self, call: Call, use: Mapping[str, Any], scope: str, outer: Conversation) -> dict[str, Any]:
        """Run one use of a tool and return the CallToolResult body.

        A tool that the caller may not use is unknown to the model too. `scope` names the use within the `outer`
        conversation. Raises Suspended, MissingClientCapability and Overloaded.
        """
        conversation = Within(outer, scope)
        tool, arguments = self._tools.get(use["name"]), use["input"]
        unknown = InvalidParams(f"Unknown tool: {use['name'][:128]}")

        if tool is None:
            return tool_error(unknown.message)
        try:
            await permit(call, tool, unknown, arguments)
        except MCPError as problem:
            # The model has no credential for a step-up.
            return tool_error(unknown.message if isinstance(problem, InsufficientScope) else problem.message)
        if too_often := await ration(call, tool):
            return tool_error(too_often)

        body = await call_within(_inner(call, tool, arguments), tool, arguments, conversation)
        if conversation.suspended:
            raise Suspended  # overrides the tool's own result
        return body


class Within:
    """The conversation of a tool that runs inside another call.

    Its requests and `run_once` keys have a prefix. They keep their names in every round, no matter which tools have
    results by then.
    """

    def __init__(self, outer: Conversation, scope: str) -> None:
        self._outer, self._scope = outer, scope
        self.waits = outer.waits
        self.suspended = False
        """True if the tool waits for another round."""

    @property
    def replaying(self) -> bool:
        return self._outer.replaying

    async def ask(self, question: Question) -> Any:
        key = question.key or f"{question.method.partition('/')[0]}-{digest(question.known_by)}"
        return await self._unless_suspended(self._outer.ask(question._replace(key=f"{self._scope}.{key}")))

    async def once(self, key: str, run: Callable[[], Awaitable[Any]], **how: Any) -> Any:
        return await self._unless_suspended(self._outer.once(f"{self._scope}.{key}", run, **how))

    async def _unless_suspended(self, step: Awaitable[Any]) -> Any:
        try:
            return await step
        except Suspended:
            self.suspended = True
            raise


def _inner(call: Call, tool: Tool, arguments: dict[str, Any]) -> Call:
    """Create the call for the tool, with its own failures and without progress."""
    message = jsonrpc.Request(call.id or 0, "tools/call", {"name": tool.name, "arguments": arguments})
    meta = {key: value for key, value in call.meta.items() if key != PROGRESS_TOKEN}
    fate = Fate()
    fate.around = call.fate
    return replace(call, message=message, meta=meta, fate=fate)


async def _may_use(call: Call, tool: Tool) -> bool:
    authorizer = call.server.authorizer
    return not authorizer.guards(tool) or (await authorizer.decide(call.principal, tool)).allowed


async def _tool(call: Call, item: Any) -> Tool:
    registered = call.server.registry.tools
    if isinstance(item, Tool):
        return item
    if isinstance(item, str):
        tool = registered.get(item) or await provided_tool(call, item)
        if tool is None:
            raise ValueError(f"tools= names {item!r}, an unknown tool of this server")
        return tool
    if not callable(item):
        raise TypeError(f"tools= takes names, functions and definitions, not {type(item).__name__}")
    return next((tool for tool in registered if tool.handler.fn == item), None) or _made_of(item)


def _made_of(fn: Callable[..., Any]) -> Tool:
    """Compile a function into a tool, cached for functions at module level.

    A function created by a handler is not cached, because the cache would keep its closure alive.
    """
    local = not isinstance(fn, FunctionType) or "<locals>" in fn.__qualname__
    return build_tool(fn) if local else _kept(fn)


@lru_cache(maxsize=256)
def _kept(fn: Callable[..., Any]) -> Tool:
    return build_tool(fn)


def _named(definition: Mapping[str, Any] | None) -> str:
    """Return the name of a definition. Raises ValueError for an invalid definition."""
    name, schema = (definition or {}).get("name"), (definition or {}).get("inputSchema")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"a tool's definition needs a name of 1 to 64 letters, digits, '_', '-' and '.', not {name!r}")
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise ValueError(f"the definition of the tool {name!r} needs an inputSchema of type object")
    return name
