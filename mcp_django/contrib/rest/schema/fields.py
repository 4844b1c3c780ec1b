"""JSON Schemas of serializer fields, for input and output.

Input schemas are as exact as the field's declaration. Output schemas contain only facts that are certain. Custom fields
may return anything. Null is allowed unless the column or the field excludes it.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from django.core import validators
from django.core.exceptions import FieldDoesNotExist
from django.db import models
from rest_framework import serializers
from rest_framework.fields import ISO_8601, Field, empty
from rest_framework.settings import api_settings

from mcp_django.contrib.http_tools.tools import Schema
from mcp_django.contrib.rest.schema.annotations import get_return_schema
from mcp_django.extensions.schemas import any_of_types, list_types, make_nullable, strip_null, to_json

MAX_CHOICE_LABELS = 20
"""Maximum number of choice labels in a description."""

Nested = Callable[[Field], Schema]
"""Function that describes an inner serializer."""
_DATE_FORMATS: tuple[tuple[type[Any], str, str], ...] = (
    (serializers.DateTimeField, "date-time", "DATETIME"),
    (serializers.DateField, "date", "DATE"),
    (serializers.TimeField, "time", "TIME"),
)
_PLAIN_SCHEMAS: tuple[tuple[type[Any], Schema], ...] = (
    (serializers.EmailField, {"type": "string", "format": "email"}),
    (serializers.URLField, {"type": "string", "format": "uri"}),
    (serializers.UUIDField, {"type": "string", "format": "uuid"}),
    (serializers.DurationField, {"type": "string"}),
    (serializers.BooleanField, {"type": "boolean"}),
    (serializers.IntegerField, {"type": "integer"}),
    (serializers.FloatField, {"type": "number"}),
    (serializers.CharField, {"type": "string"}),
    (serializers.IPAddressField, {"type": "string"}),
)
_UNPORTABLE = re.compile(r"\(\?P|\(\?[aiLmsux]+[-:)]|\(\?\(|\\[AZz]|\(\?<[=!]|\(\?>|[*+?}]\+")
"""Syntax with another or no meaning in ECMA 262.

It covers named groups, flags, conditions, look-behind and inner anchors.
"""
FILE_SCHEMA: Schema = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "The file's name, such as cover.png", "minLength": 1},
        "content": {"type": "string", "contentEncoding": "base64", "description": "The file's bytes in base64"},
        "content_type": {"type": "string", "description": "Its media type; guessed from the name when left out"},
    },
    "required": ["name", "content"],
    "additionalProperties": False,
}
"""Schema of a file argument."""


def is_file(schema: Schema) -> bool:
    """Return True for the schema of a file or of a list of files."""
    inner = strip_null(schema)
    items = inner.get("items")
    if isinstance(items, Mapping):
        inner = strip_null(items)
    return bool(inner.get("properties") == FILE_SCHEMA["properties"])


def build_input_schema(field: Field, nested: Nested) -> Schema:
    """Return the input schema of a field; `nested` describes inner serializers."""
    schema = _build_bare_schema(field, nested, is_input=True)
    _add_limits(field, schema)
    if field.allow_null:
        schema = make_nullable(schema)
    return _add_description(field, schema)


def build_output_schema(field: Field, nested: Nested) -> Schema:
    """Return the output schema of a field."""
    schema = _build_bare_schema(field, nested, is_input=False)
    return _add_description(field, make_nullable(schema) if _can_be_null(field) else schema, default=False)


def _build_bare_schema(field: Field, nested: Nested, *, is_input: bool) -> Schema:
    """Return the schema of a field without null and description."""
    if isinstance(field, serializers.BaseSerializer):
        return nested(field)
    if not is_input and isinstance(field, serializers.SerializerMethodField):
        return get_return_schema(getattr(field.parent, field.method_name, None))
    if not is_input and isinstance(field, serializers.ReadOnlyField):
        return get_return_schema(_find_attribute(field))
    if not is_drf_method(field, "to_internal_value" if is_input else "to_representation"):
        return {} if is_input else get_return_schema(field.to_representation)

    build = next((build for kind, build in _FIELD_SCHEMAS if isinstance(field, kind)), _build_plain_schema)
    return build(field, nested, is_input)


def _build_plain_schema(field: Field, nested: Nested, is_input: bool) -> Schema:
    # Unknown are JSONField, ModelField, and fields of the project.
    return dict(next((schema for kind, schema in _PLAIN_SCHEMAS if isinstance(field, kind)), {}))


def _build_file_schema(field: Field, nested: Nested, is_input: bool) -> Schema:
    # A row without a file shows null, also if the column is not nullable.
    return dict(FILE_SCHEMA) if is_input else make_nullable({"type": "string"})


def _build_many_related_schema(field: Field, nested: Nested, is_input: bool) -> Schema:
    schema: Schema = {"type": "array", "items": _build_bare_schema(field.child_relation, nested, is_input=is_input)}
    return schema if field.allow_empty or not is_input else {**schema, "minItems": 1}


def _build_multiple_choice_schema(field: Field, nested: Nested, is_input: bool) -> Schema:
    if not is_input:
        return {"type": "array"}
    schema: Schema = {"type": "array", "items": _build_choice_schema(field, nested, is_input)}
    return schema if field.allow_empty else {**schema, "minItems": 1}


def _build_choice_schema(field: Field, nested: Nested, is_input: bool) -> Schema:
    if is_input:
        values = [to_json(value) for value in field.choices]
        if getattr(field, "allow_blank", False) and "" not in values:
            values.append("")
        schema: Schema = {"enum": values} if values else {}
    else:
        # A row may contain a former choice, which is returned unchanged.
        kinds = {type(value) for value in field.choices}
        schema = {}
        if kinds == {str}:
            schema["type"] = "string"
        elif kinds == {int}:
            schema["type"] = "integer"

    # Labels that differ from their values are described.
    labels = [f"{value} ({label})" for value, label in field.choices.items() if str(value) != str(label)]
    more = "" if len(labels) <= MAX_CHOICE_LABELS else " …"
    text = f"{', '.join(labels[:MAX_CHOICE_LABELS])}{more}"
    return {**schema, "description": text} if text else schema


def _build_decimal_schema(field: Field, nested: Nested, is_input: bool) -> Schema:
    if not is_input:
        as_text = getattr(field, "coerce_to_string", api_settings.COERCE_DECIMAL_TO_STRING) or field.localize
        return {"type": "string" if as_text else "number"}
    parts = ["A decimal number"]
    parts += [] if field.max_digits is None else [f"up to {field.max_digits} digits"]
    parts += [] if field.decimal_places is None else [f"{field.decimal_places} of them after the point"]
    return {**any_of_types("number", "string"), "description": ", ".join(parts)}


def _build_list_schema(field: Field, nested: Nested, is_input: bool) -> Schema:
    if not is_input:
        return {"type": "array", "items": build_output_schema(field.child, nested)}
    return build_array_schema(field, build_input_schema(field.child, nested))


def build_array_schema(field: Field, items: Schema) -> Schema:
    """Return the input schema of a list field or a list serializer."""
    limits = {"minItems": field.min_length, "maxItems": field.max_length}
    schema = {"type": "array", "items": items, **{key: value for key, value in limits.items() if value is not None}}
    return schema if field.allow_empty else {"minItems": 1, **schema}


def _build_dict_schema(field: Field, nested: Nested, is_input: bool) -> Schema:
    if not is_input:
        return {"type": "object"}
    return {"type": "object", "additionalProperties": build_input_schema(field.child, nested)}


def _build_date_schema(field: Field, nested: Nested, is_input: bool) -> Schema:
    form, setting = next((form, setting) for kind, form, setting in _DATE_FORMATS if isinstance(field, kind))
    if is_input:
        formats = getattr(field, "input_formats", None) or getattr(api_settings, f"{setting}_INPUT_FORMATS")
        if any(str(one).lower() == ISO_8601 for one in formats):
            return {"type": "string", "format": form}
        return {"type": "string", "description": f"As {', '.join(map(str, formats))} (strftime)"}
    shape = getattr(field, "format", getattr(api_settings, f"{setting}_FORMAT"))
    is_iso = shape is None or str(shape).lower() == ISO_8601
    return {"type": "string", "format": form} if is_iso else {"type": "string"}


def get_column_schema(column: Any) -> Schema:
    """Return the schema of a model's column, for the common types of keys."""
    while isinstance(column, models.ForeignKey):
        column = column.target_field
    if isinstance(column, models.IntegerField):  # also covers AutoField
        return {"type": "integer"}
    if isinstance(column, models.UUIDField):
        return {"type": "string", "format": "uuid"}
    return {"type": "string"} if isinstance(column, models.CharField | models.TextField) else {}


def _build_relation_schema(field: Field, nested: Nested, is_input: bool) -> Schema:
    model = getattr(field.queryset, "model", None) or _find_related_model(field)
    name = "" if model is None else str(model._meta.verbose_name)
    if isinstance(field, serializers.PrimaryKeyRelatedField):
        if field.pk_field is not None:
            return _build_plain_schema(field.pk_field, nested, is_input)
        return {**({} if model is None else get_column_schema(model._meta.pk)), "description": f"Primary key: {name}"}
    if isinstance(field, serializers.SlugRelatedField):
        column = _find_column(model, field.slug_field.replace("__", "."))
        return {**({} if column is None else get_column_schema(column)), "description": f"{field.slug_field}: {name}"}
    if isinstance(field, serializers.HyperlinkedRelatedField):
        address: Schema = {"type": "string", "format": "uri"}
        return {**address, "description": f"Address of the {name}"} if name else address
    return {"type": "string"} if isinstance(field, serializers.StringRelatedField) else {}


def _find_related_model(field: Field) -> Any:
    owner = field.parent if isinstance(field.parent, serializers.ManyRelatedField) else field
    column = _find_column(_get_model(owner), str(owner.source or ""))
    return getattr(column, "related_model", None)


def _add_limits(field: Field, schema: Schema) -> None:
    """Add the limits of validators to the schema, in place."""
    kinds = set(list_types(schema))
    if "string" in kinds and isinstance(field, serializers.CharField) and not field.allow_blank:
        schema["minLength"] = 1

    for validator in field.validators:
        limit = getattr(validator, "limit_value", None)
        limit = limit() if callable(limit) else limit
        if isinstance(validator, validators.RegexValidator) and kinds == {"string"}:
            pattern = None if validator.inverse_match else convert_to_ecma(validator.regex)
            # A schema holds a single pattern, so only the first is used.
            if pattern is not None and not isinstance(validator, validators.URLValidator):
                schema.setdefault("pattern", pattern)
        elif isinstance(validator, validators.MaxLengthValidator | validators.MinLengthValidator):
            side = "max" if isinstance(validator, validators.MaxLengthValidator) else "min"
            if "string" in kinds:
                schema[f"{side}Length"] = limit
            elif "array" in kinds:
                schema[f"{side}Items"] = limit
        elif isinstance(validator, validators.MaxValueValidator) and kinds & {"integer", "number"}:
            _set_limit(schema, "maximum", limit)
        elif isinstance(validator, validators.MinValueValidator) and kinds & {"integer", "number"}:
            _set_limit(schema, "minimum", limit)


def convert_to_ecma(regex: Any) -> str | None:
    """Return the pattern of a compiled expression, or None without an equivalent."""
    if regex.flags & ~(re.UNICODE | re.ASCII):
        return None
    pattern = str(regex.pattern)

    start = pattern.startswith(("^", r"\A"))
    pattern = pattern.removeprefix(r"\A").removeprefix("^")
    for end in (r"\Z", r"\z", "$"):
        if pattern.endswith(end) and not pattern.endswith(f"\\{end}"):
            pattern = f"{pattern.removesuffix(end)}$"
            break

    if _UNPORTABLE.search(pattern):
        return None
    # RegexValidator searches, as `pattern` does.
    return f"^{pattern}" if start else pattern


def _set_limit(schema: Schema, key: str, limit: Any) -> None:
    number = float(limit) if not isinstance(limit, int) else limit
    schema[key] = int(number) if number == int(number) else number


def _add_description(field: Field, schema: Schema, *, default: bool = True) -> Schema:
    """Add the field's description and default."""
    texts = [str(field.help_text)] if field.help_text else []
    if (more := schema.get("description")) and more not in texts:
        texts.append(more)
    described = {**schema, "description": ". ".join(texts)} if texts else schema

    if default and field.default is not empty and not callable(field.default):
        try:
            described = {**described, "default": to_json(field.default)}
        except TypeError:
            pass  # an object without JSON form, which no caller could send
    return described


def _can_be_null(field: Field) -> bool:
    if isinstance(field, serializers.SerializerMethodField | serializers.ReadOnlyField):
        return False  # the annotation includes null
    if isinstance(field, serializers.ManyRelatedField):
        return False
    column = _find_column(_get_model(field), str(field.source or ""))
    if column is not None and not field.allow_null:
        return bool(getattr(column, "null", True))
    return bool(field.allow_null or field.read_only or not field.required)


def _get_model(field: Field) -> Any:
    return getattr(getattr(field.parent, "Meta", None), "model", None)


def _find_column(model: Any, source: str) -> Any:
    """Return the column of a model, or None for paths and unknown names."""
    try:
        return None if model is None or source in ("", "*") else model._meta.get_field(source)
    except FieldDoesNotExist:
        return model._meta.pk if source == "pk" else None


def _find_attribute(field: Field) -> Any:
    """Return the method or property of the model that a field reads."""
    found = getattr(_get_model(field), str(field.source or ""), None)
    return found.fget if isinstance(found, property) else getattr(found, "func", found)


def is_drf_method(field: Field, method: str) -> bool:
    """Return True if a method of a field or serializer is DRF's own."""
    function = getattr(type(field), method, None)
    return str(getattr(function, "__module__", "")).startswith("rest_framework.")


_FIELD_SCHEMAS: tuple[tuple[Any, Callable[[Field, Nested, bool], Schema]], ...] = (
    (serializers.FileField, _build_file_schema),
    (serializers.ManyRelatedField, _build_many_related_schema),
    (serializers.RelatedField, _build_relation_schema),
    (serializers.MultipleChoiceField, _build_multiple_choice_schema),
    (serializers.ChoiceField, _build_choice_schema),
    (serializers.DecimalField, _build_decimal_schema),
    (serializers.ListField, _build_list_schema),
    (serializers.DictField, _build_dict_schema),
    (tuple(kind for kind, _, _ in _DATE_FORMATS), _build_date_schema),
)
"""Schema functions of both directions, by the type of the field; the first one matches."""
