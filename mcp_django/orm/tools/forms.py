"""`create_form` and `update_form`: the fields that the caller may fill in, with their values.

They write nothing. Clients with apps show a form, whose button calls `create` or `update`.
"""

from django.forms import MultiValueField
from django.utils.text import capfirst

from mcp_django.orm.codecs import get_codec
from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.declaration.exposed_fields import ExposedField
from mcp_django.orm.declaration.writable_form import WritableForm
from mcp_django.orm.queries.visibility import VisibilityScope
from mcp_django.orm.rows.schema import pk_schema
from mcp_django.orm.rows.versions import VERSION_KEY
from mcp_django.orm.schema import Schema, object_schema, result_object_schema
from mcp_django.orm.tools.base import can_use_tool
from mcp_django.orm.tools.rows import get_row
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.schema import any_of_types
from mcp_django.server.composition.mounting import get_client_name
from mcp_django.server.context.context import Context

_VALUES_SCHEMA: Schema = {"type": "object", "description": "Values to start with, by field; the user may change them"}


def create_arguments_schema(toolset: BaseModelToolset) -> Schema:
    """Return the input schema of `create_form`."""
    return object_schema({"values": _VALUES_SCHEMA})


def update_arguments_schema(toolset: BaseModelToolset) -> Schema:
    """Return the input schema of `update_form`."""
    return object_schema({"pk": pk_schema(toolset), "values": _VALUES_SCHEMA}, ("pk",))


def form_result_schema(toolset: BaseModelToolset) -> Schema:
    """Return the output schema of both."""
    properties: Schema = {
        "tool": {"type": "string", "description": "The tool that saves the values"},
        "pk": any_of_types("string", "integer", "null"),
        "if_match": any_of_types("string", "null"),
        "title": {"type": "string"},
        "fields": {"type": "array", "items": {"type": "object"}},
    }
    return result_object_schema(properties, ("tool", "title", "fields"))


def describe_create_form(toolset: BaseModelToolset, ctx: Context, arguments: JSONObject) -> JSONObject:
    """Return the form of a new row."""
    form = toolset.get_writable_form(ctx)
    row = {name: initial for name in form.fields if (initial := _get_initial(form, name)) is not None}
    return _describe_form(toolset, ctx, "create", form, row=row, suggested=arguments.get("values", {}))


def describe_update_form(toolset: BaseModelToolset, ctx: Context, arguments: JSONObject) -> JSONObject:
    """Return the form of a row, with the values that the caller may see.

    Raises:
        NotFound: the row is missing or hidden from the caller.
    """
    row = get_row(toolset, ctx, {"pk": arguments["pk"]}) if toolset.can_view(ctx) else {"pk": arguments["pk"]}
    suggested = arguments.get("values", {})
    form = toolset.get_writable_form(ctx)
    names = {name: value for name, value in form.values.items() if _has_current_value(toolset, form, name)}
    return {
        **_describe_form(toolset, ctx, "update", form._replace(values=names), row=row, suggested=suggested),
        "pk": row["pk"],
        "if_match": row.get(VERSION_KEY),
    }


def _has_current_value(toolset: BaseModelToolset, form: WritableForm, name: str) -> bool:
    """Return True if a row has the field's value as clients write it.

    The row cannot replace its own key, and rows that are written by their names are shown by their keys.
    """
    item = form.fields.get(name)
    is_named = item is not None and item.is_to_many and get_codec(item.model_field).to_form is not None
    return name != toolset.model._meta.pk.name and not is_named


def _describe_form(
    toolset: BaseModelToolset,
    ctx: Context,
    verb: str,
    form: WritableForm,
    *,
    row: JSONMapping,
    suggested: JSONMapping,
) -> JSONObject:
    if unknown := [name for name in suggested if name not in form.values]:
        raise ToolError(f"values: {unknown[0][:60]!r} is no field of this form; use {', '.join(form.values)}")
    scope = VisibilityScope(toolset, ctx, "")
    return {
        "tool": get_client_name(ctx, toolset.tool_name(verb)),
        "title": str(capfirst(toolset.model._meta.verbose_name)),
        "fields": [
            _describe_field(scope, form, name, row=row, suggested=suggested, is_new=verb == "create")
            for name in form.values
        ],
    }


def _describe_field(
    scope: VisibilityScope,
    form: WritableForm,
    name: str,
    *,
    row: JSONMapping,
    suggested: JSONMapping,
    is_new: bool,
) -> JSONObject:
    value, item = form.values[name], form.fields.get(name)
    label = value.label if item is None else getattr(item.model_field, "verbose_name", value.label)
    described: JSONObject = {
        "name": name,
        "title": str(capfirst(label)),
        "required": is_new and value.is_required,
        "schema": {key: rule for key, rule in value.schema.items() if key != "title"},
        "value": _get_key(row.get(name)),
    }
    if value.choices:
        described["choices"] = [{"value": choice.value, "label": choice.label} for choice in value.choices]
    if isinstance(row.get(name), dict) and "label" in row[name]:
        described["label"] = row[name]["label"]
    if name in suggested:
        described["suggested"] = suggested[name]
    if item is not None and (search_tool := _find_search_tool(scope, item)) is not None:
        described["search_tool"] = search_tool
    return described


def _get_key(value: object) -> object:
    """Return a value as clients write it: rows by their keys."""
    if isinstance(value, list):
        return [_get_key(one) for one in value]
    return value["pk"] if isinstance(value, dict) and "pk" in value else value


def _find_search_tool(scope: VisibilityScope, item: ExposedField) -> str | None:
    """Return the name of the tool that finds rows for a relation, or None."""
    target = item.target if item.is_relation and not item.is_to_many else None
    if target is None or target.is_generic or "list" not in target.tools or not target.exposure.search:
        return None
    if not scope.can_view(target) or not can_use_tool(target, "list", scope.ctx):
        return None
    return get_client_name(scope.ctx, target.tool_name("list"))


def _get_initial(form: WritableForm, name: str) -> object:
    """Return the JSON of the value that a new row has unless another one is given."""
    initial = form.form.base_fields[name].initial
    initial = initial() if callable(initial) else initial
    item = form.fields[name]
    if isinstance(form.form.base_fields[name], MultiValueField):  # whose initial value is a list of parts
        initial = item.model_field.get_default() if item.model_field.has_default() else None
    return None if initial is None or item.is_to_many else item.codec.serialize(initial)
