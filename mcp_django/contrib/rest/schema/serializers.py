"""Serializers as JSON Schema: the arguments that fill one, and the object that it makes of a row."""

from typing import Any

from rest_framework import serializers

from mcp_django.contrib.rest.schema.fields import Schema, given, is_stock, returned

DEPTH = 6
"""Serializers inside each other that are described; deeper ones are any object."""


def body_of(serializer: Any, depth: int = 0) -> Schema:
    """What may be given to a serializer: fields that are only read are left out."""
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
        return {**schema, "additionalProperties": True}  # the fields are what it makes of what is given
    return {**schema, "required": required} if required else schema


def answer_of(serializer: Any, depth: int = 0) -> Schema:
    """What a serializer makes of a row; {} where it may be anything."""
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
