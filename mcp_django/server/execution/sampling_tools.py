"""The tools that the client's model may use in a sample: what it is told of them, and running them.

A tool of the server's own stays what it is: the permission decision holds for it, guards and interceptors stand around
it. A function becomes a tool for this one sample. A definition has nothing to run: its use is handed back.
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
"""The name of a tool of the server's, the function behind one, any other function, a Tool, or a definition as the
protocol writes it: `{"name": …, "description": …, "inputSchema": {…}}`.
"""
_TOLD = frozenset({"name", "title", "description", "inputSchema"})
"""What a model is told of a tool; the rest is for clients."""


class Toolbox:
    """What the model of one sample may use."""

    def __init__(self, definitions: Sequence[Mapping[str, Any]], tools: Mapping[str, Tool]) -> None:
        self.definitions = list(definitions)
        """What the model is told, as the call's revision writes it."""
        self._tools = tools

    @classmethod
    async def of(cls, call: Call, offered: Sequence[Offered]) -> "Toolbox":
        """The tools in `offered` that the caller may use; the others are not shown to the model.

        Raises ValueError for a name that is unknown or given twice, TypeError for what is no tool, DeclarationError for
        a function that cannot be one.
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
        """Is this a definition, whose use is the handler's own affair?"""
        return name not in self._tools and any(definition["name"] == name for definition in self.definitions)

    async def run(self, call: Call, use: Mapping[str, Any], scope: str, outer: Conversation) -> dict[str, Any]:
        """The CallToolResult body of one use; a tool that the caller may not use is unknown to its model too. `scope`
        names the use within the `outer` conversation.

        Raises Suspended, MissingClientCapability and Overloaded.
        """
        conversation = Within(outer, scope)
        tool, arguments = self._tools.get(use["name"]), use["input"]
        unknown = InvalidParams(f"Unknown tool: {use['name'][:128]}")
        if tool is None:
            return tool_error(unknown.message)
        try:
            await permit(call, tool, unknown, arguments)
        except MCPError as problem:
            # Its model has no credential to step up with.
            return tool_error(unknown.message if isinstance(problem, InsufficientScope) else problem.message)
        if too_often := await ration(call, tool):
            return tool_error(too_often)
        body = await call_within(_inner(call, tool, arguments), tool, arguments, conversation)
        if conversation.suspended:
            raise Suspended  # whatever the tool made of it
        return body


class Within:
    """A conversation as a tool knows it that runs inside another call: its questions and `once` keys get names of their
    own, so that they mean the same in every round, whichever tools have their results by then.
    """

    def __init__(self, outer: Conversation, scope: str) -> None:
        self._outer, self._scope = outer, scope
        self.waits = outer.waits
        self.suspended = False
        """Does it wait for another round?"""

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
    """The call as the tool sees it. Its failures are not those of the call around it, and its progress is nobody's."""
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
            raise ValueError(f"tools= names {item!r}, which is no tool of this server")
        return tool
    if not callable(item):
        raise TypeError(f"tools= takes names, functions and definitions, not {type(item).__name__}")
    return next((tool for tool in registered if tool.handler.fn == item), None) or _made_of(item)


def _made_of(fn: Callable[..., Any]) -> Tool:
    """A function of a module is compiled once. One that a handler made is compiled anew: to keep it would be to keep
    what it has seen of a call.
    """
    local = not isinstance(fn, FunctionType) or "<locals>" in fn.__qualname__
    return build_tool(fn) if local else _kept(fn)


@lru_cache(maxsize=256)
def _kept(fn: Callable[..., Any]) -> Tool:
    return build_tool(fn)


def _named(definition: Mapping[str, Any] | None) -> str:
    """The name of a definition. Raises ValueError when it is none."""
    name, schema = (definition or {}).get("name"), (definition or {}).get("inputSchema")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"a tool's definition needs a name of 1 to 64 letters, digits, '_', '-' and '.', not {name!r}")
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise ValueError(f"the definition of the tool {name!r} needs an inputSchema of type object")
    return name
