"""JSON Schemas of tools that write."""

from functools import partial

from mcp_django.orm.arguments import describe_argument, is_described
from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.declaration.inlines import ModelInline
from mcp_django.orm.rows.schema import brief_row_schema, pk_schema
from mcp_django.orm.schema import (
    ModelToolParameters,
    Schema,
    object_schema,
    result_object_schema,
    row_schema,
    value_schema,
)
from mcp_django.orm.writes.transaction import MAX_KEY_CHARACTERS
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.schema import call_in_default_language, make_nullable
from mcp_django.server.context.context import Context

_COUNTS_SCHEMA = {"type": "object", "additionalProperties": {"type": "integer"}}


def create_schema(toolset: BaseModelToolset) -> Schema:
    """Return the input schema of `create`."""
    properties = {"values": values_schema(toolset, new=True), **inlines_schema(toolset, new=True)}
    return object_schema({**properties, **dry_run_schema(toolset), **idempotency_schema(toolset)}, ("values",))


def update_schema(toolset: BaseModelToolset) -> Schema:
    """Return the input schema of `update`."""
    return _build_change_schema(
        toolset, {"values": values_schema(toolset, new=False), **inlines_schema(toolset, new=False)}
    )


def delete_schema(toolset: BaseModelToolset) -> Schema:
    """Return the input schema of `delete`."""
    return _build_change_schema(toolset, {})


def _build_change_schema(toolset: BaseModelToolset, properties: Schema) -> Schema:
    if_match = {"type": "string", "maxLength": 200, **describe_argument(toolset, "if_match")}
    options = {"if_match": if_match, **dry_run_schema(toolset), **idempotency_schema(toolset)}
    return object_schema({"pk": value_schema(toolset.exposure.pk), **properties, **options}, ("pk",))


def dry_run_schema(toolset: BaseModelToolset) -> Schema:
    """Return the argument `dry_run`."""
    return {"dry_run": {"type": "boolean", **describe_argument(toolset, "dry_run")}}


def idempotency_schema(toolset: BaseModelToolset) -> Schema:
    """Return the argument `idempotency_key`."""
    text = describe_argument(toolset, "idempotency_key")
    return {"idempotency_key": {"type": "string", "minLength": 1, "maxLength": MAX_KEY_CHARACTERS, **text}}


def values_schema(toolset: BaseModelToolset, *, new: bool) -> Schema:
    """Return the schema of values by field.

    It is based on `form`, even if the form class depends on the call.
    """
    fillable = toolset.declared_writable_form
    pk = toolset.model._meta.pk.name
    properties = {name: value.schema for name, value in fillable.values.items() if new or name != pk}
    extra = fillable.values.keys() - fillable.fields.keys()
    required = tuple(name for name, value in fillable.values.items() if value.is_required and (new or name in extra))
    text = "Values by field" if new else "The values to change, by field; others stay as they are"
    return {**object_schema(properties, required), "description": text}


def inlines_schema(toolset: BaseModelToolset, *, new: bool) -> JSONObject:
    """Return the `inlines` argument, or {} without inlines.

    `describe` returns the inlines that the caller may use. A toolset without `describe` names all of them.
    """
    inlines = toolset.inline_toolsets
    if not inlines:
        return {}
    schema: Schema = {"type": "object", "additionalProperties": {"type": "object"}}
    if not is_described(toolset):
        schema = object_schema({inline.name: build_inline_schema(inline, new=new) for inline in inlines})
    return {"inlines": {**schema, **describe_argument(toolset, "inlines")}}


def describe_inlines(toolset: BaseModelToolset, ctx: Context) -> Schema:
    """Return the schemas of a row and of changes, for the inlines that the caller may use."""
    return {
        inline.name: call_in_default_language(_describe_inline, toolset, inline)
        for inline in toolset.inline_toolsets
        if inline.can_use(ctx)
    }


def _describe_inline(toolset: BaseModelToolset, inline: ModelInline) -> Schema:
    row, definitions = row_schema(inline, is_described=False)
    changes = build_inline_schema(inline, new="update" not in toolset.tools)
    return {"row": {**row, **({"$defs": definitions} if definitions else {})}, "changes": changes}


def build_inline_schema(inline: ModelInline, *, new: bool) -> Schema:
    """Return the schema of the changes to the rows of an inline, for a new or for an existing parent row."""
    most = {"maxItems": inline.max_num}
    properties: Schema = {"add": {"type": "array", "items": values_schema(inline, new=True), **most}}
    if not new:
        entry = object_schema({"pk": pk_schema(inline), "values": values_schema(inline, new=False)}, ("pk", "values"))
        properties["change"] = {"type": "array", "items": entry, **most}
        if inline.can_delete:
            properties["delete"] = {"type": "array", "items": pk_schema(inline), **most}
    return object_schema(properties)


def get_inline_parameters(inline: ModelInline, *, new: bool) -> ModelToolParameters:
    """Return the cached parameters that check the changes to the rows of an inline."""
    key, cache = ("changes", new), inline.exposure.cache
    if key not in cache:
        cache[key] = ModelToolParameters(partial(build_inline_schema, new=new), inline, inline.source)
    parameters: ModelToolParameters = cache[key]
    return parameters


def saved_schema(toolset: BaseModelToolset, *, new: bool) -> Schema:
    """Return the output schema of `create` and `update`."""
    row, definitions = brief_row_schema(toolset)
    pk = value_schema(toolset.exposure.pk)
    is_pk_provisional = new and toolset.model._meta.auto_field is not None
    if is_pk_provisional:
        row["properties"] = {**row["properties"], "pk": make_nullable(pk)}
        pk = make_nullable(pk)

    item = make_nullable(row)
    properties: Schema = {"pk": pk, "item": item, "dry_run": {"type": "boolean"}}
    required = ["pk", "item", "dry_run"]
    if not new:
        properties["changed"] = {"type": "array", "items": {"type": "string"}}
        required.append("changed")

    if toolset.inline_toolsets:
        properties["inlines"] = {"type": "object", "additionalProperties": _COUNTS_SCHEMA}
    return result_object_schema(properties, tuple(required), definitions)


def deleted_schema(toolset: BaseModelToolset) -> Schema:
    """Return the output schema of `delete`."""
    properties: Schema = {
        "pk": value_schema(toolset.exposure.pk),
        "label": {"type": "string"},
        "deleted": {**_COUNTS_SCHEMA, "description": "Rows deleted with it"},
        "changed": {**_COUNTS_SCHEMA, "description": "Rows that lost their reference"},
        "dry_run": {"type": "boolean"},
    }
    return result_object_schema(properties, ("pk", "label", "deleted", "changed", "dry_run"))
