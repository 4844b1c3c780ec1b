"""Low-level handlers: functions that implement list, call, read and get directly.

    provider = Handlers(list_tools=..., call_tool=...)

They serve primitives that no decorator can express. List functions return entries in the form of the protocol
(`{"name": ..., "inputSchema": {...}}`). Arguments are checked against the entry's schema before `call_tool` receives
them. Permissions, paging, revisions and errors work as for registered primitives.
"""

import inspect
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.protocol.types import Annotations, Icon, ToolAnnotations
from mcp_django.protocol.uri import UriTemplate
from mcp_django.schema import ArgumentError, DeclarationError
from mcp_django.server.callables import run_callable
from mcp_django.server.composition.provider import Provider
from mcp_django.server.context.context import Context
from mcp_django.server.injection.handler import Handler, describe_source
from mcp_django.server.primitives.base import Completion, Prompt, Resource, ResourceTemplate, Tool
from mcp_django.server.primitives.decorators import build_tool

T = TypeVar("T")
ListEntry = JSONMapping
ListFunction = Callable[..., Iterable[ListEntry] | Awaitable[Iterable[ListEntry]]]
MAX_COMPILED_ENTRIES = 2048
"""Maximum number of entries that stay compiled."""


class Handlers(Provider):
    """A provider made of functions.

    Each function may be sync or async. It takes the Context last, or leaves it out:

    `list_tools(ctx)`, `call_tool(name, arguments, ctx)`, `list_resources(ctx)`, `list_templates(ctx)`,
    `read_resource(uri, ctx)`, `list_prompts(ctx)`, `get_prompt(name, arguments, ctx)`, `complete(target, argument,
    value, arguments, ctx)`.

    A `read_resource` that returns None reports that the resource does not exist.
    """

    def __init__(
        self,
        *,
        list_tools: ListFunction | None = None,
        call_tool: Callable[..., object] | None = None,
        list_resources: ListFunction | None = None,
        list_templates: ListFunction | None = None,
        read_resource: Callable[..., object] | None = None,
        list_prompts: ListFunction | None = None,
        get_prompt: Callable[..., object] | None = None,
        complete: Callable[..., object] | None = None,
    ) -> None:
        pairs = {"tools": (list_tools, call_tool), "prompts": (list_prompts, get_prompt)}
        for capability, (list_function, run_function) in pairs.items():
            if (list_function is None) != (run_function is None):
                raise ValueError(f"{capability} need both a list function and the function that runs them")
        if read_resource is None and (list_resources is not None or list_templates is not None):
            raise ValueError("resources need a read_resource function in addition to the list function")

        self._list_tools = HandlerFunction.of(list_tools, ())
        self._call_tool = HandlerFunction.of(call_tool, ("name", "arguments"))
        self._list_resources = HandlerFunction.of(list_resources, ())
        self._list_templates = HandlerFunction.of(list_templates, ())
        self._read_resource = HandlerFunction.of(read_resource, ("uri",))
        self._list_prompts = HandlerFunction.of(list_prompts, ())
        self._get_prompt = HandlerFunction.of(get_prompt, ("name", "arguments"))
        self._complete = HandlerFunction.of(complete, ("target", "argument", "value", "arguments"))

        given = {
            "tools": list_tools,
            "resources": read_resource,
            "prompts": list_prompts,
            "completions": complete,
        }
        self.offers = frozenset(capability for capability, function in given.items() if function is not None)
        self._compiled: OrderedDict[tuple[str, bytes], Any] = OrderedDict()

    async def tools(self, ctx: Context) -> Iterable[Tool]:
        return await self._compile_list(self._list_tools, self._tool, ctx)

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        return await self._compile_list(self._list_resources, self._resource, ctx)

    async def templates(self, ctx: Context) -> Iterable[ResourceTemplate]:
        return await self._compile_list(self._list_templates, self._template, ctx)

    async def resource(self, uri: str, ctx: Context) -> Resource | None:
        if self._read_resource is None:
            return None
        listed = next((resource for resource in await self.resources(ctx) if resource.uri == uri), None)
        return listed or self._resource({"uri": uri, "name": uri})

    async def prompts(self, ctx: Context) -> Iterable[Prompt]:
        return await self._compile_list(self._list_prompts, self._prompt, ctx)

    async def complete(
        self, target: str, argument: str, value: str, arguments: Mapping[str, str], ctx: Context
    ) -> Completion | Sequence[str] | None:
        if self._complete is None:
            return None
        completion: Completion | Sequence[str] | None = await self._complete.run(
            ctx, target, argument, value, arguments
        )
        return completion

    async def _compile_list(
        self, list_function: "HandlerFunction | None", compile: Callable[[ListEntry], T], ctx: Context
    ) -> list[T]:
        """Return the compiled entries; an invalid one is reported and left out."""
        if list_function is None:
            return []
        registry, items = ctx.server.registry, []
        for entry in await list_function.run(ctx):
            name = str(entry.get("name", "")) if isinstance(entry, Mapping) else ""
            compiled = registry.try_build(partial(self._compile, compile, entry), list_function.source, name)
            if compiled is not None:
                items.append(compiled)
        return items

    def _compile(self, compile: Callable[[ListEntry], T], entry: ListEntry) -> T:
        """Return a compiled entry, cached by content: compiling validators is expensive."""
        key = compile.__name__, jsonrpc.dumps_sorted(entry)
        compiled: T | None = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = compile(entry)
            if len(self._compiled) > MAX_COMPILED_ENTRIES:
                self._compiled.popitem(last=False)
        return compiled

    def _tool(self, entry: ListEntry) -> Tool:
        name, call = str(entry["name"]), self._call_tool
        assert call is not None  # checked in __init__

        async def call_tool(mcp_context: Context, **arguments: object) -> Any:
            return await call.run(mcp_context, name, arguments)

        tool = build_tool(
            call_tool,
            name,
            description=str(entry.get("description") or name),
            input_schema=entry["inputSchema"],
            output_schema=entry.get("outputSchema"),
            annotations=ToolAnnotations.of(entry.get("annotations")) or ToolAnnotations(),
            meta=entry.get("_meta", {}),
        )
        tool.title, tool.source, tool.icons = entry.get("title"), call.source, _icons(entry)
        return tool

    def _resource(self, entry: ListEntry) -> Resource:
        uri, read = str(entry["uri"]), self._read_resource

        async def read_resource(ctx: Context) -> Any:
            return None if read is None else await read.run(ctx, uri)

        return Resource(
            **_read_common(entry),
            uri=uri,
            name=str(entry.get("name") or uri),
            mime_type=entry.get("mimeType"),
            size=entry.get("size"),
            annotations=Annotations.of(entry.get("annotations")),
            handler=Handler(read_resource, {"ctx": Context}),
            source="" if read is None else read.source,
        )

    def _template(self, entry: ListEntry) -> ResourceTemplate:
        def refuse() -> None:
            """Templates are only listed; `read_resource` serves the URIs they describe."""

        return ResourceTemplate(
            **_read_common(entry),
            template=UriTemplate(str(entry["uriTemplate"])),
            convert=dict,
            name=str(entry.get("name") or entry["uriTemplate"]),
            mime_type=entry.get("mimeType"),
            annotations=Annotations.of(entry.get("annotations")),
            handler=Handler(refuse),
            source="" if self._list_templates is None else self._list_templates.source,
        )

    def _prompt(self, entry: ListEntry) -> Prompt:
        name, get = str(entry["name"]), self._get_prompt
        assert get is not None  # checked in __init__

        async def get_prompt(ctx: Context, arguments: dict[str, str]) -> Any:
            return await get.run(ctx, name, arguments)

        return Prompt(
            **_read_common(entry),
            name=name,
            handler=Handler(get_prompt, {"ctx": Context}),
            source=get.source,
            parameters=ListedArguments([dict(argument) for argument in entry.get("arguments", ())]),
        )


@dataclass(frozen=True, slots=True)
class HandlerFunction:
    """A function of `Handlers`, with or without a parameter for the Context."""

    function: Callable[..., object]
    takes_context: bool

    @classmethod
    def of(cls, function: Callable[..., object] | None, parameters: Sequence[str]) -> "HandlerFunction | None":
        """Inspect a function that takes `parameters` and possibly the Context.

        Raises DeclarationError for another signature.
        """
        if function is None:
            return None
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return cls(function, takes_context=True)  # a built-in function has no signature

        count = len(parameters)
        for takes_context in (True, False):
            try:
                signature.bind(*range(count + takes_context))
            except TypeError:
                continue
            if not takes_context or _is_context_parameter(signature, count):
                return cls(function, takes_context)
        wanted = ", ".join((*parameters, "ctx"))
        raise DeclarationError(f"{describe_source(function)}: must take ({wanted}), or the same without ctx")

    @property
    def source(self) -> str:
        """Place of the function, for messages."""
        return describe_source(self.function)

    async def run(self, ctx: Context, *values: object) -> Any:
        """Call the function with the values."""
        arguments = (*values, ctx) if self.takes_context else values
        return await run_callable(self.function, ctx.server.ports.executor, *arguments)


def _is_context_parameter(signature: inspect.Signature, position: int) -> bool:
    """Return True if the parameter at a position is meant for the Context.

    An optional parameter of another type is the author's own.
    """
    parameters = list(signature.parameters.values())
    parameter = parameters[min(position, len(parameters) - 1)]
    if parameter.default is parameter.empty or parameter.annotation is parameter.empty:
        return True
    return "Context" in str(parameter.annotation)


@dataclass(frozen=True, slots=True)
class ListedArguments:
    """Prompt arguments as declared in the list entry."""

    arguments: list[JSONObject]

    def convert(self, values: dict[str, str]) -> dict[str, Any]:
        known = {argument["name"]: argument.get("required", False) for argument in self.arguments}
        unknown = [name for name in values if name not in known]
        missing = [name for name, required in known.items() if required and name not in values]
        if unknown or missing:
            problems = [f"unknown argument {name!r}" for name in unknown] + [
                f"missing argument {name!r}" for name in missing
            ]
            raise ArgumentError("; ".join(problems[:5]))
        return {"arguments": dict(values)}


def _read_common(entry: ListEntry) -> JSONObject:
    """Return the options that all kinds of entries have."""
    return {
        "title": entry.get("title"),
        "description": entry.get("description"),
        "icons": _icons(entry),
        "meta": entry.get("_meta", {}),
    }


def _icons(entry: ListEntry) -> tuple[Icon, ...]:
    return tuple(map(Icon.of, entry.get("icons", ())))
