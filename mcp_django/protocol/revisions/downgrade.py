"""Conversion of wire objects for revisions with fewer features.

Inputs are never changed; without changes, the same object is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

from mcp_django.protocol import jsonrpc

Wire = dict[str, Any]
"""A JSON object in wire form."""

_FORM_FIELDS: dict[str, tuple[str, ...]] = {
    "string": ("type", "title", "description", "minLength", "maxLength", "format"),
    "number": ("type", "title", "description", "minimum", "maximum"),
    "integer": ("type", "title", "description", "minimum", "maximum"),
    "boolean": ("type", "title", "description"),
}
_ENUM_FIELDS = ("type", "title", "description", "enum", "enumNames")


def keep_fields(item: Wire, fields: Set[str]) -> Wire:
    """Return `item` with only `fields`."""
    if item.keys() <= fields:
        return item
    return {key: value for key, value in item.items() if key in fields}


def add_field(item: Wire, key: str, value: Any) -> Wire:
    """Return `item` with `key` set to `value`, or without `key` for None."""
    if value is None:
        return {name: kept for name, kept in item.items() if name != key}
    return item if item.get(key) is value else {**item, key: value}


def shape_each(items: list[Wire], shape: Callable[[Wire], Wire]) -> list[Wire]:
    """Return `items`, each converted by `shape`."""
    changed, shaped = False, []
    for item in items:
        new = shape(item)
        changed = changed or new is not item
        shaped.append(new)
    return shaped if changed else items


def without_boolean_properties(schema: Wire) -> Wire:
    """Replace boolean subschemas under ``properties`` by objects, for older revisions."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not any(isinstance(value, bool) for value in properties.values()):
        return schema
    return {**schema, "properties": {name: _without_boolean(value) for name, value in properties.items()}}


def _without_boolean(schema: Any) -> Any:
    """Return an object that accepts the same values as a boolean schema; other schemas unchanged."""
    if not isinstance(schema, bool):
        return schema
    return {} if schema else {"not": {}}


def replace_block(block: Wire) -> Wire:
    """Replace a content block by an older type with the same information."""
    extras: Wire = {key: block[key] for key in ("annotations", "_meta") if key in block}
    if block["type"] == "audio":
        # Audio has no URI, but an embedded resource requires one. A data URI without data is used.
        contents = {"uri": f"data:{block['mimeType']}", "mimeType": block["mimeType"], "blob": block["data"]}
        return {"type": "resource", "resource": contents, **extras}
    if block["type"] == "resource_link":
        text = f"{block.get('title') or block['name']}: {block['uri']}"
        if block.get("description"):
            text = f"{text}\n{block['description']}"
        return {"type": "text", "text": text, **extras}
    raise ValueError(f"unknown content block type {block['type']!r}")


def with_text_of(content: list[Wire], value: Any) -> list[Wire]:
    """Return `content` with a text block that holds `value` as JSON.

    An existing block is enough. For a value wrapped as ``{"result": …}``, a text of the inner value is enough too.
    """
    said = [value, value["result"]] if isinstance(value, dict) and value.keys() == {"result"} else [value]
    for block in content:
        if block["type"] == "text" and any(_text_equals(block["text"], form) for form in said):
            return content
    return [*content, {"type": "text", "text": jsonrpc.dumps(value).decode()}]


def _text_equals(text: str, value: Any) -> bool:
    if isinstance(value, str) and text == value:
        return True
    try:
        # Compare as JSON text: in Python True equals 1, on the wire it does not.
        return jsonrpc.dumps_sorted(jsonrpc.loads(text)) == jsonrpc.dumps_sorted(value)
    except ValueError:
        return False


def form_property(name: str, field: Wire, defaults: Set[str]) -> Wire:
    """Convert one property of a form: ``enum`` and ``enumNames`` for choices.

    Only the types in `defaults` keep their default.

    Raises:
        ValueError: unsupported, such as a multiple choice.
    """
    kind = field.get("type")
    if kind not in _FORM_FIELDS:
        raise ValueError(f"form property {name!r}: the client's revision cannot express type {kind!r}")

    if kind == "string" and ("oneOf" in field or "enum" in field):
        shaped = {key: field[key] for key in _ENUM_FIELDS if key in field}
        if "oneOf" in field:
            shaped["enum"] = [choice["const"] for choice in field["oneOf"]]
            shaped["enumNames"] = [choice.get("title", choice["const"]) for choice in field["oneOf"]]
    else:
        shaped = {key: field[key] for key in _FORM_FIELDS[kind] if key in field}

    if "default" in field and kind in defaults:
        shaped["default"] = field["default"]
    return shaped
