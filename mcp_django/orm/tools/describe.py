"""`describe`: the fields and options of a model that the caller may use.

Texts are in the caller's language.
"""

from django.utils.text import capfirst

from mcp_django.orm.arguments import describe_arguments
from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.declaration.exposed_fields import ExposedField
from mcp_django.orm.queries.pagination import get_default_order
from mcp_django.orm.queries.visibility import VisibilityScope
from mcp_django.orm.schema import Schema, list_column_choices, object_schema
from mcp_django.orm.tools.base import can_use_tool
from mcp_django.orm.writes.schema import describe_inlines
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.server.composition.mounting import get_client_name
from mcp_django.server.context.context import Context


def arguments_schema(toolset: BaseModelToolset) -> Schema:
    """Return the input schema of `describe`."""
    return object_schema({})


def result_schema(toolset: BaseModelToolset) -> Schema:
    """Return the output schema of `describe`."""
    properties = {"model": {"type": "string"}, "fields": {"type": "array", "items": {"type": "object"}}}
    return {"type": "object", "properties": properties, "required": ["model", "fields"]}


def describe_model(toolset: BaseModelToolset, ctx: Context, arguments: JSONObject) -> JSONObject:
    """Return the description of the model for the caller; runs no SQL."""
    exposure, meta = toolset.exposure, toolset.model._meta
    scope = VisibilityScope(toolset, ctx, "")
    tools = [name for name in toolset.tool_names if can_use_tool(toolset, name, ctx)]
    arguments_used = dict.fromkeys(
        argument for name in tools for argument in toolset.get_tool(name).parameters.schema["properties"]
    )
    usable_fields = {**exposure.fields, **{name: item for name, item in exposure.filters.items() if name != "pk"}}

    inlines = describe_inlines(toolset, ctx)
    return {
        "model": meta.label,
        "title": str(capfirst(meta.verbose_name_plural)),
        "description": toolset.description,
        "primary_key": exposure.pk.codec.kind,
        "fields": [_describe_field(scope, item) for item in usable_fields.values() if scope.can_use(item)],
        "search": [item.name for item, _ in exposure.search if scope.can_use(item)],
        "ordering": get_default_order(scope),
        "page_size": toolset.page_size,
        "max_limit": toolset.max_limit,
        "tools": [get_client_name(ctx, toolset.tool_name(name)) for name in tools],
        "arguments": describe_arguments(toolset, arguments_used),
        **({"inlines": inlines} if inlines else {}),
    }


def _describe_field(scope: VisibilityScope, item: ExposedField) -> Schema:
    exposure = scope.toolset.exposure
    if item.computed is not None:
        return {"name": item.name, "type": "computed", "description": item.computed.description, "shown": True}
    field = item.model_field
    description: Schema = {
        "name": item.name,
        "type": item.codec.kind,
        "title": str(capfirst(getattr(field, "verbose_name", item.name))),
        "nullable": item.is_nullable,
        "many": item.is_to_many,
        "shown": item.name in exposure.fields,
        "lookups": list(item.codec.lookups) if item.name in exposure.filters else [],
        "orderable": item.name in exposure.ordering,
    }

    if text := str(getattr(field, "help_text", "") or ""):
        description["description"] = text
    if choices := list_column_choices(item):
        description["choices"] = [{"value": choice.value, "label": choice.label} for choice in choices]
    if item.is_relation and item.target is not None and scope.can_view(item.target):
        description["refers_to"] = item.target.model._meta.label
    return description
