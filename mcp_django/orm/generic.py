"""Generic tools: one set of tools for all models of a server.

Clients call `models_list(model="shop.Order", …)` instead of `order_list(…)`.

The schema of a generic tool depends on the caller: it lists the models on which the caller may use the tool. A model
that is hidden from the caller is treated like an unknown model. Each call is forwarded to the model's own tool, with
that tool's permission, guards, timeout and transaction.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from mcp_django.orm.schema_union import arguments_of, result_of
from mcp_django.orm.toolset import ModelToolset
from mcp_django.server.composition.mounting import called
from mcp_django.server.composition.provider import Provider
from mcp_django.server.context.context import Context
from mcp_django.server.execution.invoke import pass_on
from mcp_django.server.primitives.base import Tool
from mcp_django.server.primitives.decorators import build_tool
from mcp_django.server.primitives.registry import Registry

PREFIX = "models_"
logger = logging.getLogger("mcp_django.server")
DESCRIBE = "describe"
WRITING = ("create", "update")
KEPT = 256
"""Cached tools per server: one for each tool name and set of visible models."""
_DESCRIPTIONS = {
    "describe": "Describe a model: its fields, what they may be filtered and ordered by, what may be done with it, and "
    "what values that takes. Without a model, list the models that there are.",
    "list": "List rows of a model, filtered, searched and in order, page by page.",
    "get": "Get one row of a model.",
    "count": "Count rows of a model.",
    "aggregate": "Count, sum up and average rows of a model, in groups.",
    "create": "Create a row of a model.",
    "update": "Change a row of a model.",
    "delete": "Delete a row of a model.",
    "history": "List the changes of a row of a model, the newest first.",
}

Verbs = dict[str, Tool]
"""Tools with the same name by the label of their model, such as "shop.Order"."""


class GenericTools(Provider):
    """Provider of generic tools for the toolsets of a registry."""

    offers = frozenset({"tools"})

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._kept: OrderedDict[tuple[str, tuple[str, ...]], Tool] = OrderedDict()
        self._known: tuple[int, dict[str, Verbs], dict[str, ModelToolset]] = (0, {}, {})

    @property
    def version(self) -> Hashable:
        """Return a version that grows as toolsets are registered."""
        return len(self._registry.toolsets)

    async def tools(self, ctx: Context) -> Iterable[Tool]:
        """Return a tool for each name that the caller may use on at least one model."""
        return [tool for verb in self._verbs() if (tool := await self._tool(verb, ctx)) is not None]

    async def tool(self, name: str, ctx: Context) -> Tool | None:
        """Return a generic tool, or None if the caller may not use it on any model."""
        verb = name.removeprefix(PREFIX)
        return await self._tool(verb, ctx) if verb != name and verb in self._verbs() else None

    def _verbs(self) -> dict[str, Verbs]:
        count, verbs, _ = self._known
        if count != len(self._registry.toolsets):
            verbs = self._collect()
        return verbs

    def _collect(self) -> dict[str, Verbs]:
        toolsets = [one for one in self._registry.toolsets if isinstance(one, ModelToolset) and one.is_generic]
        by_label = {one.model._meta.label: one for one in sorted(toolsets, key=lambda one: one.model._meta.label)}
        verbs: dict[str, Verbs] = {}
        for label, toolset in by_label.items():
            for verb in toolset.tools:
                verbs.setdefault(verb, {})[label] = toolset.verb(verb)

        self._kept.clear()
        self._known = len(self._registry.toolsets), verbs, by_label
        return verbs

    async def _tool(self, verb: str, ctx: Context) -> Tool | None:
        models = await self._models(verb, ctx)
        if not models:
            return None
        tool = self._kept.get((verb, models))
        if tool is None:
            tool = self._kept[verb, models] = self._make(verb, models)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return tool

    async def _models(self, verb: str, ctx: Context) -> tuple[str, ...]:
        """Return the labels of the models on which the caller may use a tool.

        Permission hooks of the project run here as for each call.
        """
        tools, authorizer = self._verbs()[verb], ctx.server.authorizer
        hidden = await authorizer.hidden(ctx.principal, [tool for tool in tools.values() if authorizer.guards(tool)])
        shown = {label: tool for label, tool in tools.items() if tool.key not in hidden}

        hooks = {
            label: getattr(self._known[2][label], hook)
            for label, tool in shown.items()
            if self._known[2][label].overrides(hook := f"has_{tool.metadata['action']}_permission")
        }
        if hooks:
            refused = await ctx.server.executor.run(_refused, hooks, ctx)
            shown = {label: tool for label, tool in shown.items() if label not in refused}

        return tuple(shown)

    def _make(self, verb: str, models: Sequence[str]) -> Tool:
        tools = {label: self._verbs()[verb][label] for label in models}
        timeouts = [tool.timeout for tool in tools.values()]
        made = build_tool(
            self._handler(verb, tools),
            f"{PREFIX}{verb}",
            description=_DESCRIPTIONS.get(verb) or f"{verb.replace('_', ' ').capitalize()}, of rows of a model.",
            input_schema=_input(verb, tools),
            annotations=_annotations(list(tools.values())),
            atomic=False,  # the forwarded tool declares its own transaction
            single_use_state=any(tool.single_use_state for tool in tools.values()),
        )

        made.output = _output(verb, tools)
        made.timeout = None if None in timeouts else max(filter(None, timeouts))
        return made

    def _handler(self, verb: str, tools: Verbs) -> Callable[..., Any]:
        async def models(ctx: Context, **arguments: Any) -> Any:
            label = arguments.pop("model", None)
            if label is None:
                return {"models": await self._summaries(ctx, tools)}
            answer = await pass_on(ctx, tools[label], arguments)
            return {**answer, "writes": await self._writes(label, ctx)} if verb == DESCRIBE else answer

        return models

    async def _summaries(self, ctx: Context, described: Verbs) -> list[dict[str, Any]]:
        """Return the visible models and the tools that the caller may use on each."""
        verbs: dict[str, list[str]] = {label: [] for label in described}
        for verb in self._verbs():
            for label in await self._models(verb, ctx):
                if label in verbs:
                    verbs[label].append(called(ctx, f"{PREFIX}{verb}"))
        return [{"model": label, "title": self._title(label), "tools": names} for label, names in verbs.items()]

    async def _writes(self, label: str, ctx: Context) -> dict[str, Any]:
        """Return the argument schemas of the tools that write rows of a model."""
        found = {}
        for verb in WRITING:
            if verb in self._verbs() and label in await self._models(verb, ctx):
                schema = self._verbs()[verb][label].parameters.schema
                given = {name: said for name, said in schema["properties"].items() if name in ("values", "inlines")}
                name = called(ctx, f"{PREFIX}{verb}")
                found[name] = {key: schema[key] for key in ("$defs",) if key in schema} | given
        return found

    def _title(self, label: str) -> str:
        return str(self._known[2][label].model._meta.verbose_name_plural)


def _refused(hooks: Mapping[str, Callable[[Context], bool]], ctx: Context) -> set[str]:
    """Return the labels of the models with a hook that denies the caller.

    A hook that raises is logged and denies access.
    """
    refused: set[str] = set()
    for label, hook in hooks.items():
        try:
            allowed = hook(ctx)
        except Exception:
            logger.exception("Permission hook failed, hiding the model: %s of the toolset of %s", hook.__name__, label)
            allowed = False
        if not allowed:
            refused.add(label)
    return refused


def _input(verb: str, tools: Verbs) -> dict[str, Any]:
    merged = arguments_of([tool.parameters.schema for tool in tools.values()])
    model = {"type": "string", "enum": list(tools), "description": "The model, by its label."}
    required = [] if verb == DESCRIBE else ["model", *merged["required"]]
    return {**merged, "properties": {"model": model, **merged["properties"]}, "required": required}


class _PassedOn:
    """Output without validation, because the forwarded tool validates its results."""

    wrapped = False

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    def structured(self, value: Any) -> Any:
        """Return the result unchanged."""
        return value


def _output(verb: str, tools: Verbs) -> _PassedOn | None:
    outputs = [tool.output for tool in tools.values()]
    if None in outputs:
        return None
    if verb == DESCRIBE:
        return _PassedOn({"type": "object"})
    return _PassedOn(result_of([output.schema for output in outputs if output is not None]))


def _annotations(tools: Sequence[Tool]) -> dict[str, bool]:
    """Merge the annotations of several tools to the most cautious values."""
    said = [{} if tool.annotations is None else tool.annotations.to_wire() for tool in tools]
    everyone = {key: all(one.get(key, False) for one in said) for key in ("readOnlyHint", "idempotentHint")}
    anyone = {key: any(one.get(key, True) for one in said) for key in ("destructiveHint", "openWorldHint")}
    return {**everyone, **anyone}
