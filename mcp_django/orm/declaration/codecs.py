"""Codecs of model columns: JSON Schema, conversion, lookups and aggregates.

A `Codec` is created once for each exposed column. Custom field classes use the codec of the Django class that they
extend. Other custom fields are shown as text and can only be compared with null.
"""

import base64
import datetime as dt
import ipaddress
import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from django.core.exceptions import SuspiciousOperation
from django.db import models
from django.db.backends.utils import format_number
from django.utils.duration import duration_iso_string

from mcp_django.orm.declaration.datetimes import (
    create_datetime_formatter,
    format_datetime,
    parse_date_value,
    parse_datetime_value,
    parse_duration_value,
    parse_time_value,
)
from mcp_django.schema import to_json

MAX_TEXT_CHARACTERS = 1000
"""Maximum length in characters of a text to compare with."""
_INTEGER_BOUND = 1 << 63
_EQUALITY_LOOKUPS = {"exact": "value", "in": "list", "isnull": "boolean"}
_TEXT_LOOKUPS = dict.fromkeys(("iexact", "contains", "icontains", "startswith", "istartswith"), "text")
_ORDER_LOOKUPS = {**dict.fromkeys(("gt", "gte", "lt", "lte"), "value"), "range": "pair"}
_DATE_LOOKUPS = dict.fromkeys(("year", "month", "day"), "integer")
_NULL_LOOKUPS = {"isnull": "boolean"}
LOOKUPS = frozenset({*_EQUALITY_LOOKUPS, *_TEXT_LOOKUPS, *_ORDER_LOOKUPS, *_DATE_LOOKUPS, "date"})
"""All lookups that any field supports."""
METRIC_LOOKUPS = ("exact", "gt", "gte", "lt", "lte")
"""Lookups of a metric."""
NUMBER_AGGREGATES = frozenset({"count", "sum", "avg", "min", "max"})
COUNT_AGGREGATES = frozenset({"count"})
RANGE_AGGREGATES = frozenset({"count", "min", "max"})


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Codec:
    """Conversion of one column's values from and to JSON; null is never passed to it."""

    kind: str
    """Type name for clients, such as "text", "integer", "decimal" or "date"."""
    schema: Mapping[str, Any]
    """JSON Schema of a shown value."""
    encode: Callable[[Any], Any] | None = None
    """Function from a database value to JSON; None if the value is JSON already."""
    encode_factory: "Callable[[], Callable[[Any], Any]] | None" = None
    """Factory of an `encode` function for many values, if that is faster."""
    decode: Callable[[Any], Any]
    """Function from JSON to a value to compare with.

    It raises ValueError with a message for the client.
    """
    lookups: Mapping[str, str]
    """Supported Django lookups, each with the kind of its operand.

    Kinds are value, list, pair, text, integer, boolean and date.
    """
    is_orderable: bool = True
    """True if rows can be ordered and grouped by the column."""
    aggregates: frozenset[str] = COUNT_AGGREGATES
    """Supported aggregate functions."""

    def serialize(self, value: Any) -> Any:
        """Return a database value or None as JSON."""
        return value if value is None or self.encode is None else self.encode(value)


def _reject_comparison(value: Any) -> Any:
    raise ValueError("values of this field cannot be compared")


COMPUTED_CODEC = Codec(kind="computed", schema={}, decode=_reject_comparison, lookups={}, is_orderable=False)
"""Codec of a field that the database does not contain."""


def get_codec(field: "models.Field[Any, Any]") -> Codec:
    """Return the codec of a concrete field; foreign keys use their target field."""
    while isinstance(field, models.ForeignObject):
        field = field.target_field
    if isinstance(field, models.GeneratedField):
        return get_codec(cast("models.Field[Any, Any]", field.output_field))
    if field.get_internal_type() == "ArrayField":
        return _build_array_codec(field)
    codec = (
        next((make(field) for kind, make in _CODEC_BUILDERS if isinstance(field, kind)), None) or _build_opaque_codec()
    )
    if field.choices and codec.kind == "text":
        return replace(codec, lookups=_EQUALITY_LOOKUPS)
    return codec


def parse_text_value(value: Any) -> str:
    """Return a text to compare with.

    Raises:
        ValueError: the value is not text, too long, or contains NUL.
    """
    if type(value) is not str:
        raise ValueError("give a text")
    if len(value) > MAX_TEXT_CHARACTERS:
        raise ValueError(f"longer than {MAX_TEXT_CHARACTERS} characters")
    if "\0" in value:
        raise ValueError("a text cannot contain a NUL character")
    return value


def parse_integer_value(value: Any) -> int:
    """Return an integer of 64 bits.

    Raises:
        ValueError: the value is not an integer, or out of range.
    """
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise ValueError("give an integer")
    if not -_INTEGER_BOUND <= value < _INTEGER_BOUND:
        raise ValueError("out of range of 64 bits")
    return value


def parse_boolean_value(value: Any) -> bool:
    """Return a boolean.

    Raises:
        ValueError: the value is not a boolean.
    """
    if type(value) is not bool:
        raise ValueError("give true or false")
    return value


def _build_text_codec(field: Any) -> Codec:
    if hasattr(field, "from_db_value"):
        # The column's content differs from its value, so comparing and ordering would give wrong results.
        return replace(_build_opaque_codec(), kind="text")
    return Codec(
        kind="text",
        schema={"type": "string"},
        decode=parse_text_value,
        lookups=_EQUALITY_LOOKUPS | _TEXT_LOOKUPS,
        aggregates=RANGE_AGGREGATES,
    )


def _build_integer_codec(field: Any) -> Codec:
    return Codec(
        kind="integer",
        schema={"type": "integer"},
        decode=parse_integer_value,
        lookups=_EQUALITY_LOOKUPS | _ORDER_LOOKUPS,
        aggregates=NUMBER_AGGREGATES,
    )


def _build_boolean_codec(field: Any) -> Codec:
    return Codec(
        kind="boolean",
        schema={"type": "boolean"},
        decode=parse_boolean_value,
        lookups={"exact": "value", "isnull": "boolean"},
    )


def _build_float_codec(field: Any) -> Codec:
    def decode(value: Any) -> float:
        if type(value) not in (int, float):
            raise ValueError("give a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise ValueError("out of range")
        return number

    def encode(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return Codec(
        kind="number",
        schema={"type": ["number", "null"]},
        encode=encode,
        decode=decode,
        lookups=_EQUALITY_LOOKUPS | _ORDER_LOOKUPS,
        aggregates=NUMBER_AGGREGATES,
    )


def _build_decimal_codec(field: Any) -> Codec:
    digits, places = field.max_digits, field.decimal_places

    def decode(value: Any) -> Decimal:
        if type(value) not in (int, float, str) or len(str(value)[:101]) > 100:
            raise ValueError("give a number, or its text such as '12.50'")

        try:
            number = Decimal(str(value))
            if not number.is_finite() or abs(number.adjusted()) > 100:
                raise ValueError("out of range")
            if digits is not None:
                # The column's form field would reject it, and database adapters would fail on it.
                format_number(number, digits, places)
        except InvalidOperation:
            raise ValueError("not a decimal number of this field's size") from None
        return number

    schema = {"type": "string", "description": "a decimal number, as text to stay exact"}
    return Codec(
        kind="decimal",
        schema=schema,
        encode=_format_decimal,
        decode=decode,
        lookups=_EQUALITY_LOOKUPS | _ORDER_LOOKUPS,
        aggregates=NUMBER_AGGREGATES,
    )


def _format_decimal(value: Any) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _build_date_codec(field: Any) -> Codec:
    return Codec(
        kind="date",
        schema={"type": "string", "format": "date"},
        encode=dt.date.isoformat,
        decode=parse_date_value,
        lookups=_EQUALITY_LOOKUPS | _ORDER_LOOKUPS | _DATE_LOOKUPS,
        aggregates=RANGE_AGGREGATES,
    )


def _build_datetime_codec(field: Any) -> Codec:
    return Codec(
        kind="date-time",
        schema={"type": "string", "format": "date-time"},
        encode=format_datetime,
        encode_factory=create_datetime_formatter,
        decode=parse_datetime_value,
        lookups=_EQUALITY_LOOKUPS | _ORDER_LOOKUPS | _DATE_LOOKUPS | {"date": "date"},
        aggregates=RANGE_AGGREGATES,
    )


def _build_time_codec(field: Any) -> Codec:
    return Codec(
        kind="time",
        schema={"type": "string", "description": "a time of day, such as 14:30:00"},
        encode=dt.time.isoformat,
        decode=parse_time_value,
        lookups=_EQUALITY_LOOKUPS | _ORDER_LOOKUPS,
        aggregates=RANGE_AGGREGATES,
    )


def _build_duration_codec(field: Any) -> Codec:
    return Codec(
        kind="duration",
        schema={"type": "string", "description": "a duration (ISO 8601), such as P1DT02H30M00S"},
        encode=duration_iso_string,
        decode=parse_duration_value,
        lookups=_EQUALITY_LOOKUPS | _ORDER_LOOKUPS,
        aggregates=NUMBER_AGGREGATES,
    )


def _build_uuid_codec(field: Any) -> Codec:
    def decode(value: Any) -> uuid.UUID:
        if type(value) is not str or len(value) > 50:
            raise ValueError("give a UUID")
        try:
            return uuid.UUID(value)
        except ValueError:
            raise ValueError("not a UUID") from None

    return Codec(
        kind="uuid", schema={"type": "string", "format": "uuid"}, encode=str, decode=decode, lookups=_EQUALITY_LOOKUPS
    )


def _build_address_codec(field: Any) -> Codec:
    def decode(value: Any) -> str:
        try:
            return str(ipaddress.ip_address(parse_text_value(value)))
        except ValueError:
            raise ValueError("not an IP address") from None

    return Codec(kind="ip-address", schema={"type": "string"}, encode=str, decode=decode, lookups=_EQUALITY_LOOKUPS)


def _build_json_codec(field: Any) -> Codec:
    return Codec(
        kind="json", schema={}, encode=to_json, decode=_reject_comparison, lookups=_NULL_LOOKUPS, is_orderable=False
    )


def _build_binary_codec(field: Any) -> Codec:
    return Codec(
        kind="binary",
        schema={"type": "string", "contentEncoding": "base64"},
        encode=lambda value: base64.b64encode(bytes(value)).decode("ascii"),
        decode=_reject_comparison,
        lookups=_NULL_LOOKUPS,
        is_orderable=False,
    )


def _build_file_codec(field: Any) -> Codec:
    storage = field.storage

    def encode(value: Any) -> dict[str, Any] | None:
        name = str(value)
        if not name:
            return None
        try:
            url = storage.url(name)
        except (NotImplementedError, ValueError, SuspiciousOperation):
            url = None  # the storage has no URLs
        return {"name": name, "url": url}

    schema = {
        "type": ["object", "null"],
        "properties": {"name": {"type": "string"}, "url": {"type": ["string", "null"]}},
        "required": ["name", "url"],
    }
    return Codec(
        kind="file", schema=schema, encode=encode, decode=_reject_comparison, lookups=_NULL_LOOKUPS, is_orderable=False
    )


def _build_array_codec(field: Any) -> Codec:
    inner = get_codec(field.base_field)
    items = {"type": "array", "items": make_nullable(inner.schema)}
    return Codec(
        kind="list",
        schema=items,
        encode=lambda value: [inner.serialize(item) for item in value],
        decode=_reject_comparison,
        lookups=_NULL_LOOKUPS,
        is_orderable=False,
    )


def _build_opaque_codec() -> Codec:
    return Codec(
        kind="other",
        schema={"type": "string"},
        encode=str,
        decode=_reject_comparison,
        lookups=_NULL_LOOKUPS,
        is_orderable=False,
    )


def make_nullable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with null allowed."""
    kind = schema.get("type")
    if kind is None:
        return {"anyOf": [dict(schema), {"type": "null"}]} if schema else {}
    kinds = [kind] if isinstance(kind, str) else list(kind)
    return {**schema, "type": kinds if "null" in kinds else [*kinds, "null"]}


_CODEC_BUILDERS: tuple[tuple[type["models.Field[Any, Any]"], Callable[[Any], Codec]], ...] = (
    (models.FileField, _build_file_codec),
    (models.JSONField, _build_json_codec),
    (models.BinaryField, _build_binary_codec),
    (models.BooleanField, _build_boolean_codec),
    (models.IntegerField, _build_integer_codec),
    (models.DecimalField, _build_decimal_codec),
    (models.FloatField, _build_float_codec),
    (models.DateTimeField, _build_datetime_codec),
    (models.DateField, _build_date_codec),
    (models.TimeField, _build_time_codec),
    (models.DurationField, _build_duration_codec),
    (models.UUIDField, _build_uuid_codec),
    (models.GenericIPAddressField, _build_address_codec),
    (models.CharField, _build_text_codec),
    (models.TextField, _build_text_codec),
    (models.FilePathField, _build_text_codec),
)
"""Codec builders by field class; subclasses come before their base classes."""
