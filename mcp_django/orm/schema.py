"""JSON Schemas of a toolset's tools, built on first use.

By then all toolsets are registered. A schema is the same for every caller. Fields that a caller may not see are missing
from results. In arguments they are rejected like unknown names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.declaration.codecs import MAX_TEXT_CHARACTERS, make_nullable
from mcp_django.orm.declaration.exposed_fields import ExposedField
from mcp_django.orm.queries.visibility import MAX_FILTER_DEPTH, MAX_ORDER_FIELDS
from mcp_django.protocol.headers import HeaderParam
from mcp_django.schema import ArgumentError, OutputError, call_in_default_language
from mcp_django.schema.custom_schema import check_schema

Schema = dict[str, Any]
MAX_LISTED_CHOICES = 30
"""Maximum number of choices in a description; `describe` lists all of them."""


@dataclass(eq=False)
class _LazySchema:
    """Schema that is built and checked on first use."""

    kind: ClassVar[str]
    _build_schema: Callable[[], Schema]
    _source: str

    @cached_property
    def schema(self) -> Schema:
        """See ToolParameters and ToolOutput."""
        return call_in_default_language(self._build_schema)

    @cached_property
    def _checker(self) -> Any:
        return check_schema(self.schema, f"{self._source}: {self.kind} schema")


class ModelToolParameters(_LazySchema):
    """Arguments of a tool (`ToolParameters`); the handler receives them as one dict, `arguments`."""

    kind = "input"
    header_params: tuple[HeaderParam, ...] = ()

    def check(self, arguments: dict[str, Any]) -> None:
        """See ToolParameters."""
        if not self._checker.is_valid(arguments):
            raise ArgumentError(self._checker.describe_problems(arguments))

    def convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """See ToolParameters."""
        return {"arguments": arguments}


class ModelToolOutput(_LazySchema):
    """Structured result of a tool (`ToolOutput`), whose values are JSON already."""

    kind = "output"
    is_wrapped = False

    def to_structured(self, value: Any) -> Any:
        """See ToolOutput."""
        if not self._checker.is_valid(value):
            problems = self._checker.describe_problems(value, "key")
            raise OutputError(f"{self._source}: the result does not fit its output schema: {problems}")
        return value


def row_schema(toolset: BaseModelToolset) -> tuple[Schema, Schema]:
    """Return the schema of a row, and the definitions that it refers to.

    Fields are optional: a client may leave them out, and some may be hidden from the caller.
    """
    exposure = toolset.exposure
    definitions: Schema = {}
    properties: Schema = {"pk": {**value_schema(exposure.pk), "description": "the primary key"}}
    for item in exposure.fields.values():
        properties[item.name] = field_schema(item)
        if item.computed is not None:
            definitions |= item.computed.definitions
    row = {"type": "object", "properties": properties, "required": ["pk"], "additionalProperties": False}
    return row, definitions


def field_schema(item: ExposedField) -> Schema:
    """Return the schema of a field's value in a row."""
    description = describe_field(item)
    if item.computed is not None:
        return {**item.computed.schema, **description}
    value = reference_schema(item) if item.is_relation and item.target is not None else value_schema(item)
    if item.is_to_many:
        return {"type": "array", "items": value, **description}
    return {**(make_nullable(value) if item.is_nullable else value), **description}


def value_schema(item: ExposedField) -> Schema:
    """Return the schema of a field's comparable value; relations use the primary key."""
    return dict(item.codec.schema)


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

    field = item.model_field
    texts = [str(getattr(field, "help_text", "") or "")]
    if "description" in item.codec.schema and not item.is_relation:
        texts.append(str(item.codec.schema["description"]))

    choices = list(getattr(field, "flatchoices", None) or ())
    if choices:
        choice_text = "; ".join(f"{value}: {label}" for value, label in choices[:MAX_LISTED_CHOICES])
        texts.append(
            f"{choice_text}; and {len(choices) - MAX_LISTED_CHOICES} more"
            if len(choices) > MAX_LISTED_CHOICES
            else choice_text
        )
    text = ". ".join(part.strip().rstrip(".") for part in texts if part.strip())
    return {"description": text} if text else {}


def filters_schema(toolset: BaseModelToolset) -> Schema:
    """Return the schema of the `filters` argument.

    Unknown names pass the schema. They are rejected later with the same message as hidden names.
    """
    properties: Schema = {}
    for name, item in toolset.exposure.filters.items():
        lookups = [lookup for lookup in item.codec.lookups if lookup != "exact"]
        text = describe_field(item).get("description") or (item.key_description if item.is_relation else None)
        lookup_text = f"Also as {name}__<lookup>: {', '.join(lookups)}"
        properties[name] = {"description": f"{text}. {lookup_text}" if text else lookup_text}

    branches: Mapping[str, Any] = {"type": "array", "items": {"type": "object"}}
    return {
        "type": "object",
        "description": (
            "Conditions, all of which must hold: a field's name for equality, or name__lookup, such as "
            '{"price__gte": 10, "or": [{"name__icontains": "tea"}, {"not": {"stock": 0}}]}. in takes a list, range a '
            f"list of two, isnull true or false. and, or and not nest up to {MAX_FILTER_DEPTH} levels."
        ),
        "properties": {**properties, "and": branches, "or": branches, "not": {"type": "object"}},
    }


def search_schema(toolset: BaseModelToolset) -> Schema:
    """Return the schema of the `search` argument, or {} if the toolset has no search."""
    if not toolset.search_fields and not toolset.is_overridden("get_search_results"):
        return {}
    return {
        "search": {"type": "string", "maxLength": MAX_TEXT_CHARACTERS, "description": "Words that rows must contain"}
    }


def order_schema(toolset: BaseModelToolset) -> Schema:
    """Return the schema of the `order_by` argument."""
    names = ", ".join(toolset.exposure.ordering)
    return {
        "type": "array",
        "items": {"type": "string", "maxLength": 200},
        "maxItems": MAX_ORDER_FIELDS,
        "description": f"Fields to order by, descending with a leading -. Of: {names}",
    }


def fields_schema(toolset: BaseModelToolset) -> Schema:
    """Return the schema of the `fields` argument."""
    return {
        "type": "array",
        "items": {"type": "string", "maxLength": 200},
        "maxItems": 200,
        "description": f"What to show of each row, if not everything. Of: {', '.join(toolset.exposure.fields)}",
    }


def object_schema(properties: Schema, required: tuple[str, ...] = (), definitions: Schema | None = None) -> Schema:
    """Return the schema of an object without additional properties."""
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    if definitions:
        schema["$defs"] = definitions
    return schema
