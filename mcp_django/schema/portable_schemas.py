"""Schemas of tools in the form that all clients take, made once for the list entry of each tool.

The server checks arguments and results by the schemas of the declarations. Clients receive schemas that accept the
same values, without the keywords that some clients treat differently:

- An output schema has no `format`. The server does not check formats, whereas clients on the official TypeScript SDK do
  (ajv-formats), and refuse the whole result for one blank e-mail address or one date without a time zone.
- Each array has `items`. VS Code refuses tools with arrays that have none (microsoft/vscode-copilot-chat,
  src/extension/tools/common/toolSchemaNormalizer.ts), and does not read `prefixItems`.
- An input schema has `properties`. OpenAI's API refuses functions without them (openai/openai-agents-python#449).
- Each schema has one type, and alternatives are branches of `anyOf`. The API of Gemini has no lists of types
  (zereight/gitlab-mcp#166).
"""

from collections.abc import Callable
from typing import Any

from mcp_django.schema.alternatives import ANY_VALUE_SCHEMA
from mcp_django.schema.validation.complexity import convert_children

Schema = dict[str, Any]

_STRING_KEYWORDS = frozenset({"minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"})
_NUMBER_KEYWORDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_ARRAY_KEYWORDS = frozenset(
    {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "additionalItems"}
)
_ARRAY_KEYWORDS |= {"minContains", "maxContains"}
_OBJECT_KEYWORDS = frozenset({"properties", "required", "additionalProperties", "patternProperties", "propertyNames"})
_OBJECT_KEYWORDS |= {"minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies"}
_KEYWORDS_BY_TYPE = {
    "string": _STRING_KEYWORDS,
    "number": _NUMBER_KEYWORDS,
    "integer": _NUMBER_KEYWORDS,
    "array": _ARRAY_KEYWORDS,
    "object": _OBJECT_KEYWORDS,
}
"""Keywords that apply to values of one type only."""


def build_portable_input(schema: Schema) -> Schema:
    """Return an input schema in the form for clients; the same object if nothing changes."""
    portable = _convert(schema, lambda part: _split_types(_add_items(part)))
    return portable if "properties" in portable else {**portable, "properties": {}}


def build_portable_output(schema: Schema) -> Schema:
    """Return an output schema in the form for clients; the same object if nothing changes."""
    return _convert(schema, lambda part: _split_types(_add_items(_remove_format(part))))


def _convert(schema: Schema, convert: Callable[[Schema], Schema]) -> Schema:
    """Return the schema with each of its parts converted."""
    return convert(convert_children(schema, lambda part: _convert(part, convert)))


def _remove_format(schema: Schema) -> Schema:
    if "format" not in schema:
        return schema
    return {keyword: value for keyword, value in schema.items() if keyword != "format"}


def _add_items(schema: Schema) -> Schema:
    """Return the schema of an array with `items` that accept each of its items."""
    items, prefix = schema.get("items"), schema.get("prefixItems")
    if not _is_array(schema) or isinstance(items, dict | list):
        return schema
    if items is False:
        length = len(prefix or ())
        schema = {**schema, "maxItems": min(schema.get("maxItems", length), length)}
    if prefix and schema.get("maxItems", len(prefix) + 1) <= len(prefix):
        # No item follows the prefix, so `items` are for the clients that do not read the prefix.
        return {**schema, "items": _build_choice(prefix)}
    return {**schema, "items": ANY_VALUE_SCHEMA}


def _split_types(schema: Schema) -> Schema:
    """Return a schema with a list of types as a choice, each with the keywords of its type."""
    types = schema.get("type")
    if not isinstance(types, list) or "anyOf" in schema or "unevaluatedItems" in schema:
        return schema
    if "unevaluatedProperties" in schema:
        return schema  # branches would hide the evaluated properties
    branches = [
        {"type": kind, **{key: schema[key] for key in schema if key in _KEYWORDS_BY_TYPE.get(kind, ())}}
        for kind in types
    ]
    moved = {"type", *(key for branch in branches for key in branch)}
    rest = {key: value for key, value in schema.items() if key not in moved}
    return {**(branches[0] if len(branches) == 1 else {"anyOf": branches}), **rest}


def _is_array(schema: Schema) -> bool:
    kind = schema.get("type")
    return kind == "array" or (isinstance(kind, list) and "array" in kind)


def _build_choice(prefix: list[Any]) -> Schema:
    """Return a schema that accepts a value of each position."""
    distinct: list[Any] = []
    for part in prefix:
        if not isinstance(part, dict):
            return ANY_VALUE_SCHEMA
        if part not in distinct:
            distinct.append(part)
    return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}
