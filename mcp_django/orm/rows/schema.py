"""JSON Schemas of rows and of their keys."""

from mcp_django.orm.arguments import is_described
from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.rows.versions import VERSION_KEY, is_versioned
from mcp_django.orm.schema import Schema, result_object_schema, row_schema, value_schema


def pk_schema(toolset: BaseModelToolset) -> Schema:
    """Return the schema of the primary key argument."""
    return {**value_schema(toolset.exposure.pk), "description": f"The {toolset.model._meta.verbose_name}'s primary key"}


def brief_row_schema(toolset: BaseModelToolset) -> tuple[Schema, Schema]:
    """Return the schema of a row outside of `get`, and its definitions.

    The schema of `get` has the fields. Without that tool, the fields are here.
    """
    if "get" not in toolset.tools:
        return full_row_schema(toolset)
    return {"type": "object", "properties": {"pk": value_schema(toolset.exposure.pk)}, "required": ["pk"]}, {}


def full_row_schema(toolset: BaseModelToolset) -> tuple[Schema, Schema]:
    """Return the schema of a row with inlines and version, and its definitions."""
    row, definitions = row_schema(toolset, is_described=is_described(toolset))
    properties = dict(row["properties"])
    # `describe` names the inlines to callers who may use them.
    for inline in () if is_described(toolset) else toolset.inline_toolsets:
        inner, more = row_schema(inline, is_described=False)
        definitions = {**definitions, **more}
        properties[inline.name] = result_object_schema(
            {
                "items": {"type": "array", "items": inner},
                "more": {"type": "boolean"},
            },
            ("items", "more"),
        )

    if is_versioned(toolset):
        properties[VERSION_KEY] = {"type": "string"}
    return {**row, "properties": properties}, definitions
