"""JSON Schemas of tools that write."""

from typing import Any

from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.declaration.codecs import make_nullable
from mcp_django.orm.declaration.inlines import ModelInline
from mcp_django.orm.schema import Schema, object_schema, row_schema, value_schema
from mcp_django.orm.writes.base import DRY_RUN, IDEMPOTENCY_KEY, IF_MATCH
from mcp_django.orm.writes.rows import VERSION_KEY, is_versioned

_COUNTS_SCHEMA = {"type": "object", "additionalProperties": {"type": "integer"}}


def create_schema(toolset: BaseModelToolset) -> Schema:
    """Return the input schema of `create`."""
    properties = {"values": values_schema(toolset, new=True), **inlines_schema(toolset, new=True)}
    return object_schema({**properties, "dry_run": DRY_RUN, "idempotency_key": IDEMPOTENCY_KEY}, ("values",))


def update_schema(toolset: BaseModelToolset) -> Schema:
    """Return the input schema of `update`."""
    return _build_change_schema(
        toolset, {"values": values_schema(toolset, new=False), **inlines_schema(toolset, new=False)}
    )


def delete_schema(toolset: BaseModelToolset) -> Schema:
    """Return the input schema of `delete`."""
    return _build_change_schema(toolset, {})


def _build_change_schema(toolset: BaseModelToolset, properties: Schema) -> Schema:
    key = {"pk": pk_schema(toolset)}
    options = {"if_match": IF_MATCH, "dry_run": DRY_RUN, "idempotency_key": IDEMPOTENCY_KEY}
    return object_schema({**key, **properties, **options}, ("pk",))


def pk_schema(toolset: BaseModelToolset) -> Schema:
    """Return the schema of the primary key argument."""
    return {**value_schema(toolset.exposure.pk), "description": f"The {toolset.model._meta.verbose_name}'s primary key"}


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


def inlines_schema(toolset: BaseModelToolset, *, new: bool) -> dict[str, Any]:
    """Return the `inlines` argument, or {} without inlines."""
    inlines = toolset.inline_toolsets
    if not inlines:
        return {}
    text = "Rows that belong to it, written in the same step"
    return {"inlines": {**object_schema({i.name: _build_inline_schema(i, new) for i in inlines}), "description": text}}


def _build_inline_schema(inline: ModelInline, new: bool) -> Schema:
    most = {"maxItems": inline.max_num}
    properties: Schema = {"add": {"type": "array", "items": values_schema(inline, new=True), **most}}
    if not new:
        entry = object_schema({"pk": pk_schema(inline), "values": values_schema(inline, new=False)}, ("pk", "values"))
        properties["change"] = {"type": "array", "items": entry, **most}
        if inline.can_delete:
            properties["delete"] = {"type": "array", "items": pk_schema(inline), **most}
    return object_schema(properties)


def saved_schema(toolset: BaseModelToolset, *, new: bool) -> Schema:
    """Return the output schema of `create` and `update`."""
    row, definitions = full_row_schema(toolset)
    pk = value_schema(toolset.exposure.pk)
    is_pk_provisional = new and toolset.model._meta.auto_field is not None
    if is_pk_provisional:
        row["properties"] = {**row["properties"], "pk": make_nullable(pk)}
        pk = {**make_nullable(pk), "description": "null after a dry run: the number is not known before"}

    item = {**make_nullable(row), "description": "The row as it is now; null if you may not see it"}
    properties: Schema = {"pk": pk, "item": item, "dry_run": {"type": "boolean"}}
    required = ["pk", "item", "dry_run"]
    if not new:
        properties["changed"] = {"type": "array", "items": {"type": "string"}, "description": "Fields that changed"}
        required.append("changed")

    if toolset.inline_toolsets:
        properties["inlines"] = {"type": "object", "additionalProperties": _COUNTS_SCHEMA}
    return object_schema(properties, tuple(required), definitions)


def deleted_schema(toolset: BaseModelToolset) -> Schema:
    """Return the output schema of `delete`."""
    properties: Schema = {
        "pk": value_schema(toolset.exposure.pk),
        "label": {"type": "string"},
        "deleted": {**_COUNTS_SCHEMA, "description": "Rows deleted with it, by kind"},
        "changed": {**_COUNTS_SCHEMA, "description": "Rows that lost their reference to it, by kind"},
        "dry_run": {"type": "boolean"},
    }
    return object_schema(properties, ("pk", "label", "deleted", "changed", "dry_run"))


def full_row_schema(toolset: BaseModelToolset) -> tuple[Schema, Schema]:
    """Return the schema of a row with inlines and version, and its definitions."""
    row, definitions = row_schema(toolset)
    properties = dict(row["properties"])
    for inline in toolset.inline_toolsets:
        inner, more = row_schema(inline)
        definitions = {**definitions, **more}
        properties[inline.name] = object_schema(
            {
                "items": {"type": "array", "items": inner},
                "more": {"type": "boolean", "description": "Are there others that are not shown?"},
            },
            ("items", "more"),
        )

    if is_versioned(toolset):
        properties[VERSION_KEY] = {"type": "string", "description": "Give it as if_match to change this version only"}
    return {**row, "properties": properties}, definitions
