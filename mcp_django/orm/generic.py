"""Generic tools: one set of tools for all models of a server.

Clients call `models_list(model="shop.Order", …)` instead of `order_list(…)`.

The schema of a generic tool depends on the caller: it lists the models on which the caller may use the tool. A model
that is hidden from the caller is treated like an unknown model. Each call is forwarded to the model's own tool, with
that tool's permission, guards, timeout and transaction.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, ClassVar

from mcp_django.orm.declaration.base import GENERIC_PREFIX
from mcp_django.orm.tools import TOOL_TEMPLATES
from mcp_django.orm.toolset import ModelToolset
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.log_text import get_logger
from mcp_django.schema import ANNOTATION_KEYWORDS, ANY_VALUE_SCHEMA, any_of_types
from mcp_django.server.composition.mounting import get_client_name
from mcp_django.server.composition.provider import Provider
from mcp_django.server.context.context import Context
from mcp_django.server.execution.invoke import delegate_to_tool
from mcp_django.server.primitives.base import Tool
from mcp_django.server.primitives.decorators import build_tool
from mcp_django.server.primitives.registry import Registry

logger = get_logger("mcp_django.server")
DESCRIBE_TOOL = "describe"
WRITE_TOOLS = ("create", "update")
MAX_CACHED_TOOLS = 256
"""Cached tools per server: one for each tool name and set of visible models."""

Schema = Mapping[str, Any]

_LIMIT_KEYWORDS = frozenset(
    {"format", "contentEncoding", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"}
)
_MISSING: Any = object()

ToolsByLabel = dict[str, Tool]
"""Tools with the same name by the label of their model, such as "shop.Order"."""


class GenericTools(Provider):
    """Provider of generic tools for the toolsets of a registry."""

    offers = frozenset({"tools"})

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._tool_cache: OrderedDict[tuple[str, tuple[str, ...]], Tool] = OrderedDict()
        self._snapshot: tuple[int, dict[str, ToolsByLabel], dict[str, ModelToolset]] = (0, {}, {})

    @property
    def version(self) -> Hashable:
        """Return a version that grows as toolsets are registered."""
        return len(self._registry.toolsets)

    async def tools(self, ctx: Context) -> Iterable[Tool]:
        """Return a tool for each name that the caller may use on at least one model."""
        return [tool for verb in self._get_tools_by_name() if (tool := await self._find_tool(verb, ctx)) is not None]

    async def tool(self, name: str, ctx: Context) -> Tool | None:
        """Return a generic tool, or None if the caller may not use it on any model."""
        verb = name.removeprefix(GENERIC_PREFIX)
        return await self._find_tool(verb, ctx) if verb != name and verb in self._get_tools_by_name() else None

    def _get_tools_by_name(self) -> dict[str, ToolsByLabel]:
        count, verbs, _ = self._snapshot
        if count != len(self._registry.toolsets):
            verbs = self._collect_tools()
        return verbs

    def _collect_tools(self) -> dict[str, ToolsByLabel]:
        toolsets = [one for one in self._registry.toolsets if isinstance(one, ModelToolset) and one.is_generic]
        by_label = {one.model._meta.label: one for one in sorted(toolsets, key=lambda one: one.model._meta.label)}
        verbs: dict[str, ToolsByLabel] = {}
        for label, toolset in by_label.items():
            for tool in toolset.get_provided_primitives():
                if self._registry.can_list(tool):
                    verbs.setdefault(tool.metadata["verb"], {})[label] = tool

        self._tool_cache.clear()
        self._snapshot = len(self._registry.toolsets), verbs, by_label
        return verbs

    async def _find_tool(self, verb: str, ctx: Context) -> Tool | None:
        models = await self._list_models(verb, ctx)
        if not models:
            return None
        tool = self._tool_cache.get((verb, models))
        if tool is None:
            tool = self._tool_cache[verb, models] = self._build_tool(verb, models)
            if len(self._tool_cache) > MAX_CACHED_TOOLS:
                self._tool_cache.popitem(last=False)
        return tool

    async def _list_models(self, verb: str, ctx: Context) -> tuple[str, ...]:
        """Return the labels of the models on which the caller may use a tool.

        Permission hooks of the project run here as for each call.
        """
        tools, authorizer = self._get_tools_by_name()[verb], ctx.server.ports.authorizer
        hidden = await authorizer.find_hidden_keys(
            ctx.principal, [tool for tool in tools.values() if authorizer.is_restricted(tool)]
        )
        visible = {label: tool for label, tool in tools.items() if tool.key not in hidden}

        hooks = {
            label: getattr(self._snapshot[2][label], hook)
            for label, tool in visible.items()
            if self._snapshot[2][label].is_overridden(hook := f"has_{tool.metadata['action']}_permission")
        }
        if hooks:
            denied = await ctx.server.ports.executor.run(_find_denied_models, hooks, ctx)
            visible = {label: tool for label, tool in visible.items() if label not in denied}

        return tuple(visible)

    def _build_tool(self, verb: str, models: Sequence[str]) -> Tool:
        tools = {label: self._get_tools_by_name()[verb][label] for label in models}
        timeouts = [tool.timeout for tool in tools.values()]
        generic_tool = build_tool(
            self._build_handler(verb, tools),
            f"{GENERIC_PREFIX}{verb}",
            description=TOOL_TEMPLATES[verb].generic_description,
            input_schema=_build_input_schema(verb, tools),
            annotations=_merge_annotations(list(tools.values())),
            atomic=False,  # the forwarded tool declares its own transaction
            single_use_state=any(tool.single_use_state for tool in tools.values()),
        )

        generic_tool.output = _build_output(verb, tools)
        generic_tool.timeout = None if None in timeouts else max(filter(None, timeouts))
        return generic_tool

    def _build_handler(self, verb: str, tools: ToolsByLabel) -> Callable[..., Any]:
        async def models(ctx: Context, **arguments: Any) -> Any:
            label = arguments.pop("model", None)
            if label is None:
                return {"models": await self._summarize_models(ctx, tools)}
            answer = await delegate_to_tool(ctx, tools[label], arguments)
            return {**answer, "writes": await self._describe_writes(label, ctx)} if verb == DESCRIBE_TOOL else answer

        return models

    async def _summarize_models(self, ctx: Context, tools: ToolsByLabel) -> list[JSONObject]:
        """Return the visible models and the tools that the caller may use on each."""
        verbs: dict[str, list[str]] = {label: [] for label in tools}
        for verb in self._get_tools_by_name():
            for label in await self._list_models(verb, ctx):
                if label in verbs:
                    verbs[label].append(get_client_name(ctx, f"{GENERIC_PREFIX}{verb}"))
        return [{"model": label, "title": self._get_title(label), "tools": names} for label, names in verbs.items()]

    async def _describe_writes(self, label: str, ctx: Context) -> JSONObject:
        """Return the argument schemas of the tools that write rows of a model."""
        schemas = {}
        for verb in WRITE_TOOLS:
            if verb in self._get_tools_by_name() and label in await self._list_models(verb, ctx):
                schema = self._get_tools_by_name()[verb][label].parameters.schema
                name = get_client_name(ctx, f"{GENERIC_PREFIX}{verb}")
                definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
                schemas[name] = {**definitions, "values": schema["properties"]["values"]}
        return schemas

    def _get_title(self, label: str) -> str:
        return str(self._snapshot[2][label].model._meta.verbose_name_plural)


def _find_denied_models(hooks: Mapping[str, Callable[[Context], bool]], ctx: Context) -> set[str]:
    """Return the labels of the models with a hook that denies the caller.

    A hook that raises is logged and denies access.
    """
    denied: set[str] = set()
    for label, hook in hooks.items():
        try:
            allowed = hook(ctx)
        except Exception:
            logger.exception("Permission hook failed, hiding the model: %s of the toolset of %s", hook.__name__, label)
            allowed = False
        if not allowed:
            denied.add(label)
    return denied


def _build_input_schema(verb: str, tools: ToolsByLabel) -> JSONObject:
    # The models' own tools check filters, and `describe` returns their types.
    merged = merge_argument_schemas([_omit_filter_types(tool.parameters.schema) for tool in tools.values()])
    model = {"type": "string", "enum": list(tools), "description": "The model, by its label."}
    required = [] if verb == DESCRIBE_TOOL else ["model", *merged["required"]]
    return {**merged, "properties": {"model": model, **merged["properties"]}, "required": required}


def _omit_filter_types(schema: Schema) -> Schema:
    properties = schema["properties"]
    if "filters" not in properties:
        return schema
    filters = {key: value for key, value in properties["filters"].items() if key != "properties"}
    return {**schema, "properties": {**properties, "filters": filters}}


@dataclass(frozen=True, eq=False)
class _UncheckedOutput:
    """Output without validation, because the forwarded tool validates its results."""

    schema: JSONObject
    is_wrapped: ClassVar[bool] = False

    def to_structured(self, value: Any) -> Any:
        """Return the result unchanged."""
        return value


def _build_output(verb: str, tools: ToolsByLabel) -> _UncheckedOutput | None:
    outputs = [tool.output for tool in tools.values()]
    if None in outputs:
        return None
    if verb == DESCRIBE_TOOL:
        return _UncheckedOutput({"type": "object"})
    return _UncheckedOutput(merge_result_schemas([output.schema for output in outputs if output is not None]))


def _merge_annotations(tools: Sequence[Tool]) -> dict[str, bool]:
    """Merge the annotations of several tools to the most cautious values."""
    hints = [{} if tool.annotations is None else tool.annotations.to_wire() for tool in tools]
    merged = {
        "readOnlyHint": all(one.get("readOnlyHint", False) for one in hints),
        "openWorldHint": any(one.get("openWorldHint", True) for one in hints),
    }
    if merged["readOnlyHint"]:
        return merged  # the other hints are about writes
    return {
        **merged,
        "idempotentHint": all(one.get("idempotentHint", False) for one in hints),
        "destructiveHint": any(one.get("destructiveHint", True) for one in hints),
    }


def merge_argument_schemas(schemas: Sequence[Schema]) -> JSONObject:
    """Merge the input schemas of several tools.

    The result accepts all arguments that any of the tools accepts. Each property keeps the constraints common to all
    tools that have it. Arguments required by all tools are required.
    """
    names = dict.fromkeys(name for schema in schemas for name in schema.get("properties", {}))
    return {
        "type": "object",
        "properties": {name: _merge_property(name, schemas) for name in names},
        "required": _intersect_required(schemas),
        "additionalProperties": False,
    }


def merge_result_schemas(schemas: Sequence[Schema]) -> JSONObject:
    """Merge the output schemas of several tools to their common part.

    Each result of these tools is valid under the merged schema.
    """
    first, *others = schemas
    names = [
        name for name in first.get("properties", {}) if all(name in other.get("properties", {}) for other in others)
    ]
    schema: JSONObject = {"type": "object", "properties": {name: _merge_property(name, schemas) for name in names}}
    return {**schema, "required": [name for name in _intersect_required(schemas) if name in names]}


def _intersect_required(schemas: Sequence[Schema]) -> list[str]:
    first, *others = schemas
    return [name for name in first.get("required", ()) if all(name in other.get("required", ()) for other in others)]


def _merge_property(name: str, schemas: Sequence[Schema]) -> JSONObject:
    owners = [schema for schema in schemas if name in schema.get("properties", {})]
    property_schemas = [schema["properties"][name] for schema in owners]
    has_no_reference = not any(_has_reference(schema) for schema in property_schemas)
    if has_no_reference and all(schema == property_schemas[0] for schema in property_schemas):
        return dict(property_schemas[0])
    merged = _merge_schemas(
        [_resolve_reference(one, schema) for one, schema in zip(property_schemas, owners, strict=True)]
    )
    # Keywords beside the reference describe the argument itself.
    return {
        **{
            key: property_schemas[0][key]
            for key in ANNOTATION_KEYWORDS
            if all(one.get(key, _MISSING) == property_schemas[0].get(key) for one in property_schemas)
        },
        **merged,
    }


def _merge_schemas(schemas: Sequence[Schema]) -> JSONObject:
    """Merge schemas to their common types, limits, items and keys.

    Items and properties are merged if all schemas have the same shape. `models_describe` returns the differences
    between models.
    """
    first = schemas[0]
    if all(schema == first for schema in schemas) and not _has_reference(first):
        return dict(first)
    merged = {
        key: first[key]
        for key in first
        if (key in ANNOTATION_KEYWORDS or key in _LIMIT_KEYWORDS)
        and all(other.get(key, _MISSING) == first[key] for other in schemas)
    }

    types = dict.fromkeys(kind for schema in schemas for kind in _iter_types(schema))
    if "" in types:
        return {**ANY_VALUE_SCHEMA, **merged}
    if "integer" in types and "number" in types:
        del types["integer"]

    if description := _get_common_sentences([schema.get("description", "") for schema in schemas]):
        merged["description"] = description
    if all("items" in schema for schema in schemas):
        merged["items"] = _merge_schemas([schema["items"] for schema in schemas])
    keys = first.get("properties", {}).keys()
    if keys and all(schema.get("properties", {}).keys() == keys for schema in schemas):
        merged["properties"] = {key: _merge_schemas([schema["properties"][key] for schema in schemas]) for key in keys}
        merged["required"] = _intersect_required(schemas)

    return {**({"type": next(iter(types))} if len(types) == 1 else any_of_types(*types)), **merged}


def _get_common_sentences(texts: Sequence[str]) -> str:
    """Return the leading sentences that all texts share."""
    sentences = zip(*(text.split(". ") for text in texts), strict=False)
    return ". ".join(same[0] for same in takewhile(lambda same: len(set(same)) == 1, sentences))


def _iter_types(schema: Schema) -> Iterator[str]:
    """Yield the types of a schema's values; "" means any type."""
    declared = schema.get("type")
    if declared is not None:
        yield from [declared] if isinstance(declared, str) else declared
        return
    for key in ("anyOf", "oneOf"):
        for branch in schema.get(key, ()):
            yield from _iter_types(branch)
    if "anyOf" not in schema and "oneOf" not in schema:
        yield ""


def _resolve_reference(schema: Schema, root: Schema) -> Schema:
    """Resolve a reference; keywords beside the reference take precedence."""
    seen: set[str] = set()
    while (name := str(schema.get("$ref", "")).removeprefix("#/$defs/")) and name not in seen:
        seen.add(name)
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**root.get("$defs", {}).get(name, {}), **siblings}
    return schema


def _has_reference(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "$ref" in value or any(_has_reference(inner) for inner in value.values())
    return isinstance(value, list) and any(_has_reference(inner) for inner in value)
