"""JSON Schemas of serializer fields, for input and output.

Input schemas are as exact as the field's declaration. Output schemas contain only facts that are certain. Custom fields
may return anything. Null is allowed unless the column or the field excludes it.
"""

from collections.abc import Callable
from typing import Any

from django.core import validators
from django.core.exceptions import FieldDoesNotExist
from django.db import models
from rest_framework import serializers
from rest_framework.fields import ISO_8601, empty
from rest_framework.settings import api_settings

from mcp_django.contrib.rest.schema.annotations import annotated
from mcp_django.contrib.rest.schema.regex import portable
from mcp_django.schema import to_json

Schema = dict[str, Any]
LABELS = 20
"""Maximum number of choice labels in a description."""

_FORMATS: tuple[tuple[type[Any], str], ...] = (
    (serializers.EmailField, "email"),
    (serializers.URLField, "uri"),
    (serializers.UUIDField, "uuid"),
    (serializers.DurationField, ""),
)
_TIMES: tuple[tuple[type[Any], str, str], ...] = (
    (serializers.DateTimeField, "date-time", "DATETIME"),
    (serializers.DateField, "date", "DATE"),
    (serializers.TimeField, "time", "TIME"),
)
FILE: Schema = {
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
    inner = schema.get("items", schema) if "items" in schema else schema
    return isinstance(inner, dict) and inner.get("properties") == FILE["properties"]


def given(field: Any, nested: Callable[[Any], Schema]) -> Schema:
    """Return the input schema of a field; `nested` describes inner serializers."""
    schema = _given(field, nested)
    _bound(field, schema)
    if field.allow_null:
        schema = nullable(schema)
    return _told(field, schema)


def _given(field: Any, nested: Callable[[Any], Schema]) -> Schema:
    if isinstance(field, serializers.BaseSerializer):
        return nested(field)
    if not is_stock(field, "to_internal_value"):
        return {}

    if isinstance(field, serializers.FileField):
        return dict(FILE)
    if isinstance(field, serializers.ManyRelatedField):
        schema: Schema = {"type": "array", "items": _given(field.child_relation, nested)}
        return schema if field.allow_empty else {**schema, "minItems": 1}
    if isinstance(field, serializers.RelatedField):
        return _relation(field)
    if isinstance(field, serializers.MultipleChoiceField):
        schema = {"type": "array", "items": _choice(field)}
        return schema if field.allow_empty else {**schema, "minItems": 1}
    if isinstance(field, serializers.ChoiceField):
        return _choice(field)
    if isinstance(field, serializers.DecimalField):
        return {"type": ["number", "string"], "description": _digits(field)}
    if isinstance(field, serializers.ListField):
        return _list(field, given(field.child, nested))
    if isinstance(field, serializers.DictField):
        return {"type": "object", "additionalProperties": given(field.child, nested)}

    for kind, form, setting in _TIMES:
        if isinstance(field, kind):
            taken = getattr(field, "input_formats", None) or getattr(api_settings, f"{setting}_INPUT_FORMATS")
            if any(str(one).lower() == ISO_8601 for one in taken):
                return {"type": "string", "format": form}
            return {"type": "string", "description": f"As {', '.join(map(str, taken))} (strftime)"}
    return _plain(field)


def returned(field: Any, nested: Callable[[Any], Schema]) -> Schema:
    """Return the output schema of a field."""
    schema = _returned(field, nested)
    return _told(field, nullable(schema) if _may_be_null(field) else schema, default=False)


def _returned(field: Any, nested: Callable[[Any], Schema]) -> Schema:
    if isinstance(field, serializers.BaseSerializer):
        return nested(field)
    if isinstance(field, serializers.SerializerMethodField):
        return annotated(getattr(field.parent, field.method_name, None))
    if isinstance(field, serializers.ReadOnlyField):
        return annotated(_attribute(field))
    if not is_stock(field, "to_representation"):
        return annotated(field.to_representation)

    if isinstance(field, serializers.FileField):
        return {"type": "string"}
    if isinstance(field, serializers.ManyRelatedField):
        return {"type": "array", "items": _returned(field.child_relation, nested)}
    if isinstance(field, serializers.RelatedField):
        return _relation(field)
    if isinstance(field, serializers.MultipleChoiceField):
        return {"type": "array"}
    if isinstance(field, serializers.ChoiceField):
        # A row may contain a former choice, which is returned unchanged.
        kinds = {type(value) for value in field.choices}
        schema: Schema = {"type": "string"} if kinds == {str} else {"type": "integer"} if kinds == {int} else {}
        return {**schema, "description": text} if (text := _labels(field)) else schema
    if isinstance(field, serializers.DecimalField):
        as_text = getattr(field, "coerce_to_string", api_settings.COERCE_DECIMAL_TO_STRING) or field.localize
        return {"type": "string" if as_text else "number"}

    if isinstance(field, serializers.ListField):
        return {"type": "array", "items": returned(field.child, nested)}
    if isinstance(field, serializers.DictField):
        return {"type": "object"}

    for kind, form, setting in _TIMES:
        if isinstance(field, kind):
            shape = getattr(field, "format", getattr(api_settings, f"{setting}_FORMAT"))
            is_iso = shape is None or str(shape).lower() == ISO_8601
            return {"type": "string", "format": form} if is_iso else {"type": "string"}
    return _plain(field)


def _plain(field: Any) -> Schema:
    for kind, form in _FORMATS:
        if isinstance(field, kind):
            return {"type": "string", "format": form} if form else {"type": "string"}
    if isinstance(field, serializers.BooleanField):
        return {"type": "boolean"}
    if isinstance(field, serializers.IntegerField):
        return {"type": "integer"}
    if isinstance(field, serializers.FloatField):
        return {"type": "number"}
    if isinstance(field, serializers.CharField | serializers.IPAddressField):
        return {"type": "string"}
    return {}  # JSONField, ModelField, and unknown fields


def column_schema(column: Any) -> Schema:
    """Return the schema of a model's column, for the common types of keys."""
    while isinstance(column, models.ForeignKey):
        column = column.target_field
    if isinstance(column, models.IntegerField):  # also covers AutoField
        return {"type": "integer"}
    if isinstance(column, models.UUIDField):
        return {"type": "string", "format": "uuid"}
    return {"type": "string"} if isinstance(column, models.CharField | models.TextField) else {}


def _relation(field: Any) -> Schema:
    model = getattr(field.queryset, "model", None) or _related_model(field)
    name = "" if model is None else str(model._meta.verbose_name)
    if isinstance(field, serializers.PrimaryKeyRelatedField):
        if field.pk_field is not None:
            return _plain(field.pk_field)
        return {**({} if model is None else column_schema(model._meta.pk)), "description": f"Primary key: {name}"}
    if isinstance(field, serializers.SlugRelatedField):
        column = _column(model, field.slug_field.replace("__", "."))
        return {**({} if column is None else column_schema(column)), "description": f"{field.slug_field}: {name}"}
    if isinstance(field, serializers.HyperlinkedRelatedField):
        address: Schema = {"type": "string", "format": "uri"}
        return {**address, "description": f"Address of the {name}"} if name else address
    return {"type": "string"} if isinstance(field, serializers.StringRelatedField) else {}


def _related_model(field: Any) -> Any:
    owner = field.parent if isinstance(field.parent, serializers.ManyRelatedField) else field
    column = _column(_model_of(owner), str(owner.source or ""))
    return getattr(column, "related_model", None)


def _choice(field: Any) -> Schema:
    values = [to_json(value) for value in field.choices]
    if getattr(field, "allow_blank", False) and "" not in values:
        values.append("")
    schema: Schema = {"enum": values} if values else {}
    if text := _labels(field):
        schema["description"] = text
    return schema


def _labels(field: Any) -> str:
    """Return the choices with labels that differ from their values."""
    told = [f"{value} ({label})" for value, label in field.choices.items() if str(value) != str(label)]
    more = "" if len(told) <= LABELS else " …"
    return f"{', '.join(told[:LABELS])}{more}"


def _list(field: Any, items: Schema) -> Schema:
    schema: Schema = {"type": "array", "items": items}
    for key, value in (("minItems", field.min_length), ("maxItems", field.max_length)):
        if value is not None:
            schema[key] = value
    return schema if field.allow_empty else {"minItems": 1, **schema}


def _digits(field: Any) -> str:
    parts = [] if field.max_digits is None else [f"up to {field.max_digits} digits"]
    parts += [] if field.decimal_places is None else [f"{field.decimal_places} of them after the point"]
    return f"A decimal number, {', '.join(parts)}" if parts else "A decimal number"


def _bound(field: Any, schema: Schema) -> None:
    """Add the limits of validators to the schema, in place."""
    kind = schema.get("type", ())
    kinds = {kind} if isinstance(kind, str) else set(kind)
    if "string" in kinds and isinstance(field, serializers.CharField) and not field.allow_blank:
        schema["minLength"] = 1

    for validator in field.validators:
        limit = getattr(validator, "limit_value", None)
        limit = limit() if callable(limit) else limit
        if isinstance(validator, validators.RegexValidator) and kinds == {"string"}:
            pattern = None if validator.inverse_match else portable(validator.regex)
            # A schema holds a single pattern, so only the first is used.
            if pattern is not None and not isinstance(validator, validators.URLValidator):
                schema.setdefault("pattern", pattern)
        elif isinstance(validator, validators.MaxLengthValidator | validators.MinLengthValidator):
            side = "max" if isinstance(validator, validators.MaxLengthValidator) else "min"
            noun = "Length" if "string" in kinds else "Items" if "array" in kinds else ""
            if noun:
                schema[f"{side}{noun}"] = limit
        elif isinstance(validator, validators.MaxValueValidator) and kinds & {"integer", "number"}:
            _limit(schema, "maximum", limit)
        elif isinstance(validator, validators.MinValueValidator) and kinds & {"integer", "number"}:
            _limit(schema, "minimum", limit)


def _limit(schema: Schema, key: str, limit: Any) -> None:
    number = float(limit) if not isinstance(limit, int) else limit
    schema[key] = int(number) if number == int(number) else number


def nullable(schema: Schema) -> Schema:
    """Return the schema with null allowed."""
    if not schema.keys() - {"description", "title"}:
        return schema  # accepts anything already
    kind = schema.get("type")
    if "enum" in schema:
        schema = {**schema, "enum": [*schema["enum"], *([] if None in schema["enum"] else [None])]}
        if kind is None:
            return schema
    if kind is None:
        return {"anyOf": [schema, {"type": "null"}]}
    kinds = [kind] if isinstance(kind, str) else list(kind)
    return {**schema, "type": kinds if "null" in kinds else [*kinds, "null"]}


def _told(field: Any, schema: Schema, *, default: bool = True) -> Schema:
    """Add the field's description and default."""
    said = [str(field.help_text)] if field.help_text else []
    if (more := schema.get("description")) and more not in said:
        said.append(more)
    told = {**schema, "description": ". ".join(said)} if said else schema

    if default and field.default is not empty and not callable(field.default):
        try:
            told = {**told, "default": to_json(field.default)}
        except TypeError:
            pass  # an object without JSON form, which no caller could send
    return told


def _may_be_null(field: Any) -> bool:
    if isinstance(field, serializers.SerializerMethodField | serializers.ReadOnlyField):
        return False  # the annotation includes null
    if isinstance(field, serializers.ManyRelatedField):
        return False
    column = _column(_model_of(field), str(field.source or ""))
    if column is not None and not field.allow_null:
        return bool(getattr(column, "null", True))
    return bool(field.allow_null or field.read_only or not field.required)


def _model_of(field: Any) -> Any:
    return getattr(getattr(field.parent, "Meta", None), "model", None)


def _column(model: Any, source: str) -> Any:
    """Return the column of a model, or None for paths and unknown names."""
    try:
        return None if model is None or source in ("", "*") else model._meta.get_field(source)
    except FieldDoesNotExist:
        return model._meta.pk if source == "pk" else None


def _attribute(field: Any) -> Any:
    """Return the method or property of the model that a field reads."""
    found = getattr(_model_of(field), str(field.source or ""), None)
    return found.fget if isinstance(found, property) else getattr(found, "func", found)


def is_stock(field: Any, method: str) -> bool:
    """Return True if a method of a field or serializer is DRF's own."""
    function = getattr(type(field), method, None)
    return str(getattr(function, "__module__", "")).startswith("rest_framework.")
