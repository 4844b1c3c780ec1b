"""`get`: one row by its primary key."""

from typing import TYPE_CHECKING, Any

from mcp_django.orm.fields.exposed_fields import Purpose
from mcp_django.orm.queries.serialize import plan_of, read, selected
from mcp_django.orm.schema import Schema, fields_schema, object_schema, value_schema
from mcp_django.orm.tools.base import Reading, build_verb, named
from mcp_django.orm.writes.etags import version_columns
from mcp_django.orm.writes.result import completed
from mcp_django.orm.writes.schema import full_row_schema
from mcp_django.protocol.errors import NotFound
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import Tool

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset


def build(toolset: "ModelToolset") -> Tool:
    """Build the tool that gets one row."""
    return build_verb(
        toolset,
        "get",
        get_row,
        description=f"Get one {named(toolset.model)} by its primary key.",
        arguments=arguments_schema,
        result=result_schema,
    )


def arguments_schema(toolset: "ModelToolset") -> Schema:
    """Return the input schema of `get`."""
    return object_schema({"pk": pk_schema(toolset), "fields": fields_schema(toolset)}, ("pk",))


def pk_schema(toolset: "ModelToolset") -> Schema:
    """Return the schema of the primary key argument."""
    return {**value_schema(toolset.exposure.pk), "description": f"The primary key of the {named(toolset.model)}"}


def result_schema(toolset: "ModelToolset") -> Schema:
    """Return the output schema of `get`: row, inlines, and version if writable."""
    row, definitions = full_row_schema(toolset)
    return {**row, "$defs": definitions} if definitions else row


def get_row(toolset: "ModelToolset", ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the row.

    Raises:
        NotFound: the row is missing or hidden from the caller.
    """
    with Reading(toolset, ctx) as reading:
        scope = reading.scope
        names = arguments.get("fields")
        if names is not None:
            names = {scope.resolve(name, Purpose.READ).name for name in names}

        key = key_of(toolset, arguments["pk"])
        if toolset.overrides("has_view_permission"):
            obj = reading.rows.filter(pk=key).first()
            if obj is None or not toolset.has_view_permission(ctx, obj):
                raise absent(toolset, arguments["pk"])

        plan = plan_of(toolset, scope, names)
        columns = version_columns(toolset)
        rows = selected(scope, reading.rows, plan, columns).filter(pk=key)[:1]
        items, values = read(scope, rows, plan, columns)
        if not items:
            raise absent(toolset, arguments["pk"])

        own = values[0][len(plan.columns) :]
        return completed(toolset, ctx, items[0], values[0][0], own, using=reading.database, whole=names is None)


def key_of(toolset: "ModelToolset", value: Any) -> Any:
    """Parse a primary key from JSON.

    Raises:
        NotFound: the value is not a valid key.
    """
    codec = toolset.exposure.pk.codec
    assert codec is not None  # a primary key is always a column
    try:
        return codec.decode(value)
    except ValueError:
        raise absent(toolset, value) from None


def absent(toolset: "ModelToolset", value: Any) -> NotFound:
    """Build the error for a missing or hidden row."""
    return NotFound(f"There is no {named(toolset.model)} with the primary key {str(value)[:100]!r}")
