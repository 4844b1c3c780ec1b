"""JSON Schemas of return annotations.

Serializers read methods and properties with such annotations. Only types that DRF's JSON encoder
(`rest_framework.utils.encoders`) encodes unambiguously are described.
"""

import types
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from mcp_django.extensions.schemas import JSONObject

_TYPE_SCHEMAS: dict[Any, JSONObject] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    Decimal: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    time: {"type": "string", "format": "time"},
    timedelta: {"type": "string"},
    UUID: {"type": "string", "format": "uuid"},
    type(None): {"type": "null"},
}


def get_return_schema(function: Callable[..., object] | None) -> JSONObject:
    """Return the schema of a function's return annotation, or {} if unknown."""
    try:
        return _build_schema(get_type_hints(function).get("return", Any)) if callable(function) else {}
    except (NameError, TypeError, AttributeError):
        return {}


def _build_schema(annotation: object) -> JSONObject:
    if isinstance(annotation, type) and annotation in _TYPE_SCHEMAS:
        return dict(_TYPE_SCHEMAS[annotation])
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal and all(isinstance(value, str | int | bool | None) for value in arguments):
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        branches = [_build_schema(argument) for argument in arguments]
        return {"anyOf": branches} if all(branches) else {}
    if annotation in (list, tuple, set) or origin in (list, set):
        items = _build_schema(arguments[0]) if arguments else {}
        return {"type": "array", "items": items} if items else {"type": "array"}
    return {"type": "object"} if annotation is dict or origin is dict else {}
