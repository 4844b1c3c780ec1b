"""JSON Schemas of a toolset's tools, built on first use.

By then all toolsets are registered. A schema is the same for every caller, so that lists of tools stay cacheable. It
names neither paths into other models nor these models, because a caller may not view them. `describe` names them to
callers with permission.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections

from mcp_django.aio.off_loop import run_off_loop
from mcp_django.forms.choices import (
    ValueChoice,
    build_choice_schema,
    describe_choices,
    join_sentences,
    list_choices,
)
from mcp_django.orm.arguments import describe_argument, describe_filters, is_described
from mcp_django.orm.codecs.parsing import MAX_TEXT_CHARACTERS
from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.declaration.exposed_fields import ExposedField, Exposure
from mcp_django.orm.declaration.writable_form import KEY_DESCRIPTION, serialize_choice
from mcp_django.orm.queries.visibility import MAX_ORDER_FIELDS
from mcp_django.protocol.headers import HeaderParam
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.schema import (
    ANY_VALUE_SCHEMA,
    ArgumentError,
    OutputError,
    SchemaChecker,
    call_in_default_language,
    convert_failures,
    make_nullable,
)
from mcp_django.schema.custom_schema import check_schema

Schema = dict[str, Any]
MAX_LISTED_CHOICES = 30
"""Maximum number of choices in a schema; `describe` lists all of them."""
NAME_SCHEMA: Schema = {"type": "string", "maxLength": 200}
"""Schema of a field's name."""


_BRANCHES_SCHEMA: Schema = {"type": "array", "items": {"type": "object"}}
_CHECKED_FILTERS_SCHEMA: Schema = {
    "type": "object",
    "properties": {"and": _BRANCHES_SCHEMA, "or": _BRANCHES_SCHEMA, "not": {"type": "object"}},
}


def _is_query_on_loop(error: BaseException | None) -> bool:
    """Return True if Django refused a query because an event loop runs, such as one for choices."""
    while error is not None and not isinstance(error, SynchronousOnlyOperation):
        error = error.__cause__
    return error is not None


@dataclass(eq=False)
class _LazySchema:
    """Schema that is built and checked on first use, from the exposed fields at that time."""

    kind: ClassVar[str]
    _build_schema: Callable[[Any], Schema]
    _toolset: BaseModelToolset
    _source: str
    _cached: tuple[Exposure | None, Schema] = (None, {})
    """Exposed fields, and the schema built from them; they change with registrations of related models."""

    @property
    def schema(self) -> Schema:
        """See ToolParameters and ToolOutput."""
        schema: Schema = self._get_cached("schema", self._build)
        return schema

    @property
    def checked_schema(self) -> Schema:
        """Schema that values are checked against."""
        return self.schema

    @property
    def _checker(self) -> SchemaChecker:
        checker: SchemaChecker = self._get_cached("checker", self._build_checker)
        return checker

    def _build(self) -> Schema:
        with convert_failures(self._toolset.source):
            build = partial(call_in_default_language, self._build_schema, self._toolset)
            try:
                return build()
            except Exception as error:
                if not _is_query_on_loop(error):
                    raise
            return run_off_loop(build, close=connections.close_all)

    def _build_checker(self) -> SchemaChecker:
        return check_schema(self.checked_schema, f"{self._source}: {self.kind} schema")

    def _get_cached(self, part: str, build: Callable[[], Any]) -> Any:
        exposure = self._toolset.exposure
        known, parts = self._cached
        if known is not exposure:
            self._cached = exposure, (parts := {})
        if part not in parts:
            parts[part] = build()
        return parts[part]


class ModelToolParameters(_LazySchema):
    """Arguments of a tool (`ToolParameters`); the handler receives them as one dict, `arguments`."""

    kind = "input"
    header_params: tuple[HeaderParam, ...] = ()

    @property
    def checked_schema(self) -> Schema:
        """Schema without the types of filters.

        `FilterBuilder` checks filters: it accepts null, and its messages explain lookups.
        """
        properties = self.schema["properties"]
        relaxed = {"filters": _CHECKED_FILTERS_SCHEMA} if "filters" in properties else {}
        return {**self.schema, "properties": {**properties, **relaxed}}

    def check(self, arguments: JSONObject) -> None:
        """See ToolParameters."""
        if not self._checker.is_valid(arguments):
            raise ArgumentError(self._checker.describe_problems(arguments))

    def convert(self, arguments: JSONObject) -> JSONObject:
        """See ToolParameters."""
        return {"arguments": arguments}


class ModelToolOutput(_LazySchema):
    """Structured result of a tool (`ToolOutput`), whose values are JSON already."""

    kind = "output"
    is_wrapped = False

    def to_structured(self, value: object) -> Any:
        """See ToolOutput."""
        if not self._checker.is_valid(value):
            problems = self._checker.describe_problems(value, "key")
            raise OutputError(f"{self._source}: the result does not fit its output schema: {problems}")
        return value


def row_schema(toolset: BaseModelToolset, *, is_described: bool) -> tuple[Schema, Schema]:
    """Return the schema of a row, and the definitions that it refers to.

    Fields are optional: a client may leave them out. Paths into other models are additional properties. The fields have
    descriptions unless `describe` returns them.
    """
    exposure = toolset.exposure
    definitions: Schema = {}
    properties: Schema = {"pk": value_schema(exposure.pk)}
    for item in exclude_paths(exposure.fields):
        properties[item.name] = field_schema(item, is_described=is_described)
        if item.computed is not None:
            definitions |= item.computed.definitions
    return {"type": "object", "properties": properties, "required": ["pk"]}, definitions


def exclude_paths(fields: Mapping[str, ExposedField]) -> list[ExposedField]:
    """Return the fields of the model itself, without paths into other models."""
    return [item for item in fields.values() if not item.hops]


def format_field_names(toolset: BaseModelToolset, fields: Mapping[str, ExposedField]) -> str:
    """Return the names of the model's own fields for a description, unless `describe` returns them."""
    return "" if is_described(toolset) else f". Of: {', '.join(item.name for item in exclude_paths(fields))}"


def field_schema(item: ExposedField, *, is_described: bool) -> Schema:
    """Return the schema of a field's value in a row."""
    description = {} if is_described else describe_field(item)
    if item.computed is not None:
        return {**(item.computed.schema or ANY_VALUE_SCHEMA), **description}
    value = reference_schema(item) if item.is_relation and item.target is not None else value_schema(item)
    if item.is_to_many:
        return {"type": "array", "items": value, **description}
    return {**(make_nullable(value) if item.is_nullable else value), **description}


def value_schema(item: ExposedField) -> Schema:
    """Return the schema of a field's comparable value; relations use the primary key."""
    return {key: value for key, value in item.codec.schema.items() if key != "description"}


def reference_schema(item: ExposedField) -> Schema:
    """Return the schema of a related row."""
    return {
        "type": "object",
        "properties": {"pk": value_schema(item), "label": {"type": "string"}, "uri": {"type": "string"}},
        "required": ["pk"],
    }


def describe_field(item: ExposedField) -> Schema:
    """Return the description of a field, from its help text, codec and choices."""
    if item.computed is not None:
        return {"description": item.computed.description} if item.computed.description else {}

    field, codec = item.model_field, item.codec
    choices = list_column_choices(item)
    choice_text = describe_choices(choices[:MAX_LISTED_CHOICES])
    if choice_text and len(choices) > MAX_LISTED_CHOICES:
        choice_text = f"{choice_text}; and {len(choices) - MAX_LISTED_CHOICES} more"
    text = join_sentences(
        str(getattr(field, "help_text", "") or ""),
        "" if item.is_relation else str(codec.schema.get("description", "")),
        choice_text,
    )
    return {"description": text} if text else {}


def list_column_choices(item: ExposedField) -> list[ValueChoice]:
    """Return the choices of a column, with its values as rows show them."""
    declared = None if item.is_relation else getattr(item.model_field, "choices", None)
    return list_choices(declared or (), partial(serialize_choice, item.codec))


def filters_schema(toolset: BaseModelToolset) -> Schema:
    """Return the schema of the `filters` argument.

    It lists comparisons for equality. Other names pass the schema, and `FilterBuilder` rejects unknown and hidden names
    with the same message.
    """
    text = describe_filters(toolset)
    properties: Schema = {}
    for item in exclude_paths(toolset.exposure.filters):
        is_comparable = "exact" in item.codec.lookups
        name = item.name if is_comparable else f"{item.name}__isnull"
        description = {} if is_described(toolset) else _describe_filter(item)
        properties[name] = {**(_comparison_schema(item) if is_comparable else {"type": "boolean"}), **description}
    return {
        "type": "object",
        "description": text.short if is_described(toolset) else text.full,
        "properties": properties,
    }


def _comparison_schema(item: ExposedField) -> Schema:
    """Return the schema of a value that a field is compared with for equality."""
    choices = [choice for choice in list_column_choices(item) if choice.value is not None]
    if 0 < len(choices) <= MAX_LISTED_CHOICES:
        return {key: rule for key, rule in build_choice_schema(choices).items() if key != "description"}
    return value_schema(item) if item.codec.filter_schema is None else dict(item.codec.filter_schema)


def _describe_filter(item: ExposedField) -> Schema:
    lookups = [lookup for lookup in item.codec.lookups if lookup != "exact"]
    text = describe_field(item).get("description") or (KEY_DESCRIPTION if item.is_relation else None)
    lookup_text = f"Also as {item.name}__<lookup>: {', '.join(lookups)}"
    return {"description": f"{text}. {lookup_text}" if text else lookup_text}


def search_schema(toolset: BaseModelToolset) -> Schema:
    """Return the schema of the `search` argument, or {} if the toolset has no search."""
    if not toolset.search_fields and not toolset.is_overridden("get_search_results"):
        return {}
    return {"search": {"type": "string", "maxLength": MAX_TEXT_CHARACTERS, **describe_argument(toolset, "search")}}


def order_schema(toolset: BaseModelToolset) -> Schema:
    """Return the schema of the `order_by` argument."""
    text = describe_argument(toolset, "order_by")["description"]
    names = format_field_names(toolset, toolset.exposure.ordering)
    return {"type": "array", "items": NAME_SCHEMA, "maxItems": MAX_ORDER_FIELDS, "description": f"{text}{names}"}


def fields_schema(toolset: BaseModelToolset) -> Schema:
    """Return the schema of the `fields` argument."""
    text = describe_argument(toolset, "fields")["description"]
    names = format_field_names(toolset, toolset.exposure.fields)
    return {"type": "array", "items": NAME_SCHEMA, "maxItems": 200, "description": f"{text}{names}"}


def result_object_schema(
    properties: Schema, required: tuple[str, ...] = (), definitions: Schema | None = None
) -> Schema:
    """Return the schema of an object in a result; it may gain properties in later versions."""
    schema = object_schema(properties, required, definitions)
    del schema["additionalProperties"]
    return schema


def object_schema(properties: Schema, required: tuple[str, ...] = (), definitions: Schema | None = None) -> Schema:
    """Return the schema of an object without additional properties."""
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    if definitions:
        schema["$defs"] = definitions
    return schema
