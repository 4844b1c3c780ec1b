"""Rewriting wire objects for revisions that lack something.

Inputs are never changed; where nothing has to change, the same object comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

from mcp_django.protocol import jsonrpc

Wire = dict[str, Any]
"""A JSON object as it goes over the wire."""

_FORM_FIELDS: dict[str, tuple[str, ...]] = {
    "string": ("type", "title", "description", "minLength", "maxLength", "format"),
    "number": ("type", "title", "description", "minimum", "maximum"),
    "integer": ("type", "title", "description", "minimum", "maximum"),
    "boolean": ("type", "title", "description"),
}
_ENUM_FIELDS = ("type", "title", "description", "enum", "enumNames")


def keep(item: Wire, fields: Set[str]) -> Wire:
    """Return `item` with only `fields`."""
    if item.keys() <= fields:
        return item
    return {key: value for key, value in item.items() if key in fields}


def put(item: Wire, key: str, value: Any) -> Wire:
    """Return `item` with `key` set to `value`, or without it where `value` is None."""
    if value is None:
        return {name: kept for name, kept in item.items() if name != key}
    return item if item.get(key) is value else {**item, key: value}


def each(items: list[Wire], shape: Callable[[Wire], Wire]) -> list[Wire]:
    """Return `items` shaped one by one."""
    changed, shaped = False, []
    for item in items:
        new = shape(item)
        changed = changed or new is not item
        shaped.append(new)
    return shaped if changed else items


def without_boolean_properties(schema: Wire) -> Wire:
    """Spell boolean subschemas right under ``properties`` as objects: older schemas want objects there."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not any(isinstance(value, bool) for value in properties.values()):
        return schema
    spelled = {
        name: ({} if value else {"not": {}}) if isinstance(value, bool) else value for name, value in properties.items()
    }
    return {**schema, "properties": spelled}


def replace_block(block: Wire) -> Wire:
    """Say with an older content block what `block` says."""
    extras: Wire = {key: block[key] for key in ("annotations", "_meta") if key in block}
    if block["type"] == "audio":
        # Audio has no address of its own; a data URI without data stands in for the one an embedded resource must have.
        contents = {"uri": f"data:{block['mimeType']}", "mimeType": block["mimeType"], "blob": block["data"]}
        return {"type": "resource", "resource": contents, **extras}
    if block["type"] == "resource_link":
        text = f"{block.get('title') or block['name']}: {block['uri']}"
        if block.get("description"):
            text = f"{text}\n{block['description']}"
        return {"type": "text", "text": text, **extras}
    raise ValueError(f"content blocks have no type {block['type']!r}")


def with_text_of(content: list[Wire], value: Any) -> list[Wire]:
    """Return `content` with a text block that holds `value` as JSON, unless one does already.

    A value wrapped as ``{"result": …}`` is also said by what is in the wrapper.
    """
    said = [value, value["result"]] if isinstance(value, dict) and value.keys() == {"result"} else [value]
    for block in content:
        if block["type"] == "text" and any(_says(block["text"], form) for form in said):
            return content
    return [*content, {"type": "text", "text": jsonrpc.dumps(value).decode()}]


def _says(text: str, value: Any) -> bool:
    if isinstance(value, str) and text == value:
        return True
    try:
        # Compared as JSON text: in Python True is 1, on the wire it is not.
        return jsonrpc.dumps_sorted(jsonrpc.loads(text)) == jsonrpc.dumps_sorted(value)
    except ValueError:
        return False


def form_property(name: str, field: Wire, defaults: Set[str]) -> Wire:
    """Write one property of a form with ``enum`` and ``enumNames`` for choices, and defaults for `defaults` types only.

    Raises:
        ValueError: it cannot be said, as for a choice of several.
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
