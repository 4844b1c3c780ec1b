"""JSON Schemas of serializers: the input of a body, and the output for a row."""

from typing import Any

from rest_framework import serializers

from mcp_django.contrib.rest.schema.fields import Schema, given, is_stock, returned

DEPTH = 6
"""Maximum nesting of described serializers; deeper ones accept any object."""


def body_of(serializer: Any, depth: int = 0) -> Schema:
    """Return the input schema of a serializer, without read-only fields."""
    if isinstance(serializer, serializers.ListSerializer):
        return _many(serializer, body_of(serializer.child, depth))
    if depth >= DEPTH or not isinstance(serializer, serializers.Serializer):
        return {"type": "object"} if isinstance(serializer, serializers.Serializer) else {}

    properties: dict[str, Schema] = {}
    required: list[str] = []
    for name, field in serializer.fields.items():
        if field.read_only or isinstance(field, serializers.HiddenField):
            continue
        properties[name] = given(field, lambda inner: body_of(inner, depth + 1))
        if field.required and not getattr(serializer.root, "partial", False):
            required.append(name)

    schema: Schema = {"type": "object", "properties": properties}
    if not is_stock(serializer, "to_internal_value"):
        return {**schema, "additionalProperties": True}  # its fields describe the validated data, not the input
    return {**schema, "required": required} if required else schema


def answer_of(serializer: Any, depth: int = 0) -> Schema:
    """Return the output schema of a serializer, or {} if unknown."""
    if isinstance(serializer, serializers.ListSerializer):
        stock = is_stock(serializer, "to_representation")
        return {"type": "array", "items": answer_of(serializer.child, depth)} if stock else {}
    if not isinstance(serializer, serializers.Serializer) or not is_stock(serializer, "to_representation"):
        return {}
    if depth >= DEPTH:
        return {"type": "object"}
    shown = {name: field for name, field in serializer.fields.items() if not field.write_only}
    properties = {name: returned(field, lambda inner: answer_of(inner, depth + 1)) for name, field in shown.items()}
    return {"type": "object", "properties": properties}


def _many(serializer: Any, items: Schema) -> Schema:
    schema: Schema = {"type": "array", "items": items}
    limits = {"minItems": serializer.min_length, "maxItems": serializer.max_length}
    schema |= {key: value for key, value in limits.items() if value is not None}
    return schema if serializer.allow_empty else {"minItems": 1, **schema}
