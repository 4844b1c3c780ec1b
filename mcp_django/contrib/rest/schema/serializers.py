"""JSON Schemas of serializers: the input of a body, and the output for a row."""

from rest_framework import serializers

from mcp_django.contrib.http_tools.tools import Schema
from mcp_django.contrib.rest.schema.fields import (
    build_array_schema,
    build_input_schema,
    build_output_schema,
    is_drf_method,
)

MAX_NESTING_DEPTH = 6
"""Maximum nesting of described serializers; deeper ones accept any object."""


def build_body_schema(serializer: object, depth: int = 0) -> Schema:
    """Return the input schema of a serializer, without read-only fields."""
    if isinstance(serializer, serializers.ListSerializer):
        return build_array_schema(serializer, build_body_schema(serializer.child, depth))
    if depth >= MAX_NESTING_DEPTH or not isinstance(serializer, serializers.Serializer):
        return {"type": "object"} if isinstance(serializer, serializers.Serializer) else {}

    properties: dict[str, Schema] = {}
    required: list[str] = []
    for name, field in serializer.fields.items():
        if field.read_only or isinstance(field, serializers.HiddenField):
            continue
        properties[name] = build_input_schema(field, lambda inner: build_body_schema(inner, depth + 1))
        if field.required and not getattr(serializer.root, "partial", False):
            required.append(name)

    schema: Schema = {"type": "object", "properties": properties}
    if not is_drf_method(serializer, "to_internal_value"):
        return {**schema, "additionalProperties": True}  # its fields describe the validated data, not the input
    return {**schema, "required": required} if required else schema


def build_response_schema(serializer: object, depth: int = 0) -> Schema:
    """Return the output schema of a serializer, or {} if unknown."""
    if isinstance(serializer, serializers.ListSerializer):
        is_drf_method_used = is_drf_method(serializer, "to_representation")
        return {"type": "array", "items": build_response_schema(serializer.child, depth)} if is_drf_method_used else {}
    if not isinstance(serializer, serializers.Serializer) or not is_drf_method(serializer, "to_representation"):
        return {}
    if depth >= MAX_NESTING_DEPTH:
        return {"type": "object"}
    shown = {name: field for name, field in serializer.fields.items() if not field.write_only}
    properties = {
        name: build_output_schema(field, lambda inner: build_response_schema(inner, depth + 1))
        for name, field in shown.items()
    }
    return {"type": "object", "properties": properties}
