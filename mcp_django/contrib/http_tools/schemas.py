"""Schemas of operations: conversions that documents and serializers have in common."""

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]
DESCRIPTIVE_KEYWORDS = ("description", "title")


def make_nullable(schema: Schema, *, lifts_description: bool = False) -> Schema:
    """Return the schema with null allowed.

    With `lifts_description` the description of an alternative moves to the root.
    """
    if not schema.keys() - set(DESCRIPTIVE_KEYWORDS):
        return schema  # accepts anything already
    kind = schema.get("type")
    if "enum" in schema and None not in schema["enum"]:
        schema = {**schema, "enum": [*schema["enum"], None]}
    if kind is None and "enum" in schema:
        return schema
    if kind is None:
        about = {key: schema[key] for key in DESCRIPTIVE_KEYWORDS if key in schema and lifts_description}
        rest = {key: value for key, value in schema.items() if key not in about}
        return {"anyOf": [rest, {"type": "null"}], **about}
    kinds = kind if isinstance(kind, list) else [kind]
    return {**schema, "type": kinds if "null" in kinds else [*kinds, "null"]}


def move_exclusive_limits(schema: Mapping[str, Any], translated: Schema) -> None:
    """Translate the flags of OpenAPI 3.0 for exclusive limits, in place."""
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if schema.get(exclusive) is True and limit in translated:
            translated[exclusive] = translated.pop(limit)
        elif schema.get(exclusive) is False:
            translated.pop(exclusive, None)


def wrap_schema(schema: Schema, *, is_required: bool) -> Schema:
    """Return the schema of an object with the value under "result"."""
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    wrapped: Schema = {"type": "object", "properties": {"result": inner}}
    if is_required:
        wrapped["required"] = ["result"]
    return {**wrapped, "$defs": schema["$defs"]} if "$defs" in schema else wrapped
