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

from mcp_django.orm.fields.datetimes import as_date, as_duration, as_moment, as_time, shown_moment, shown_moments
from mcp_django.schema import to_json

TEXT = 1000
"""Maximum length in characters of a text to compare with."""
_INT = 1 << 63
_EQUAL = {"exact": "value", "in": "list", "isnull": "boolean"}
_TEXTUAL = dict.fromkeys(("iexact", "contains", "icontains", "startswith", "istartswith"), "text")
_ORDERED = {**dict.fromkeys(("gt", "gte", "lt", "lte"), "value"), "range": "pair"}
_DATED = dict.fromkeys(("year", "month", "day"), "integer")
_ISNULL = {"isnull": "boolean"}
LOOKUPS = frozenset({*_EQUAL, *_TEXTUAL, *_ORDERED, *_DATED, "date"})
"""All lookups that any field supports."""
COMPARED = ("exact", "gt", "gte", "lt", "lte")
"""Lookups of a metric."""
NUMBERS = frozenset({"count", "sum", "avg", "min", "max"})
COUNTED = frozenset({"count"})
BOUNDED = frozenset({"count", "min", "max"})


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Codec:
    """Conversion of one column's values from and to JSON; null is never passed to it."""

    kind: str
    """Type name for clients, such as "text", "integer", "decimal" or "date"."""
    schema: Mapping[str, Any]
    """JSON Schema of a shown value."""
    encode: Callable[[Any], Any] | None = None
    """Function from a database value to JSON; None if the value is JSON already."""
    encoder: "Callable[[], Callable[[Any], Any]] | None" = None
    """Factory of an `encode` function for many values, if that is faster."""
    decode: Callable[[Any], Any]
    """Function from JSON to a value to compare with.

    It raises ValueError with a message for the client.
    """
    lookups: Mapping[str, str]
    """Supported Django lookups, each with the kind of its operand.

    Kinds are value, list, pair, text, integer, boolean and date.
    """
    orderable: bool = True
    """True if rows can be ordered and grouped by the column."""
    aggregates: frozenset[str] = COUNTED
    """Supported aggregate functions."""

    def shown(self, value: Any) -> Any:
        """Return a database value or None as JSON."""
        return value if value is None or self.encode is None else self.encode(value)


def codec_of(field: "models.Field[Any, Any]") -> Codec:
    """Return the codec of a concrete field; foreign keys use their target field."""
    while isinstance(field, models.ForeignObject):
        field = field.target_field
    if isinstance(field, models.GeneratedField):
        return codec_of(cast("models.Field[Any, Any]", field.output_field))
    if field.get_internal_type() == "ArrayField":
        return _array(field)
    codec = next((make(field) for kind, make in _KINDS if isinstance(field, kind)), None) or _opaque()
    if field.choices and codec.kind == "text":
        return replace(codec, lookups=_EQUAL)
    return codec


def as_text(value: Any) -> str:
    """Return a text to compare with.

    Raises:
        ValueError: the value is not text, too long, or contains NUL.
    """
    if type(value) is not str:
        raise ValueError("give a text")
    if len(value) > TEXT:
        raise ValueError(f"longer than {TEXT} characters")
    if "\0" in value:
        raise ValueError("a text cannot contain a NUL character")
    return value


def as_integer(value: Any) -> int:
    """Return an integer of 64 bits.

    Raises:
        ValueError: the value is not an integer, or out of range.
    """
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise ValueError("give an integer")
    if not -_INT <= value < _INT:
        raise ValueError("out of range of 64 bits")
    return value


def as_boolean(value: Any) -> bool:
    """Return a boolean.

    Raises:
        ValueError: the value is not a boolean.
    """
    if type(value) is not bool:
        raise ValueError("give true or false")
    return value


def _text(field: Any) -> Codec:
    if hasattr(field, "from_db_value"):
        # The column's content differs from its value, so comparing and ordering would give wrong results.
        return replace(_opaque(), kind="text")
    return Codec(
        kind="text",
        schema={"type": "string"},
        decode=as_text,
        lookups=_EQUAL | _TEXTUAL,
        aggregates=BOUNDED,
    )


def _integer(field: Any) -> Codec:
    return Codec(
        kind="integer", schema={"type": "integer"}, decode=as_integer, lookups=_EQUAL | _ORDERED, aggregates=NUMBERS
    )


def _boolean(field: Any) -> Codec:
    return Codec(
        kind="boolean",
        schema={"type": "boolean"},
        decode=as_boolean,
        lookups={"exact": "value", "isnull": "boolean"},
    )


def _float(field: Any) -> Codec:
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
        lookups=_EQUAL | _ORDERED,
        aggregates=NUMBERS,
    )


def _decimal(field: Any) -> Codec:
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
        encode=_plain_decimal,
        decode=decode,
        lookups=_EQUAL | _ORDERED,
        aggregates=NUMBERS,
    )


def _plain_decimal(value: Any) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _date(field: Any) -> Codec:
    return Codec(
        kind="date",
        schema={"type": "string", "format": "date"},
        encode=dt.date.isoformat,
        decode=as_date,
        lookups=_EQUAL | _ORDERED | _DATED,
        aggregates=BOUNDED,
    )


def _date_time(field: Any) -> Codec:
    return Codec(
        kind="date-time",
        schema={"type": "string", "format": "date-time"},
        encode=shown_moment,
        encoder=shown_moments,
        decode=as_moment,
        lookups=_EQUAL | _ORDERED | _DATED | {"date": "date"},
        aggregates=BOUNDED,
    )


def _time(field: Any) -> Codec:
    return Codec(
        kind="time",
        schema={"type": "string", "description": "a time of day, such as 14:30:00"},
        encode=dt.time.isoformat,
        decode=as_time,
        lookups=_EQUAL | _ORDERED,
        aggregates=BOUNDED,
    )


def _duration(field: Any) -> Codec:
    return Codec(
        kind="duration",
        schema={"type": "string", "description": "a duration (ISO 8601), such as P1DT02H30M00S"},
        encode=duration_iso_string,
        decode=as_duration,
        lookups=_EQUAL | _ORDERED,
        aggregates=NUMBERS,
    )


def _uuid(field: Any) -> Codec:
    def decode(value: Any) -> uuid.UUID:
        if type(value) is not str or len(value) > 50:
            raise ValueError("give a UUID")
        try:
            return uuid.UUID(value)
        except ValueError:
            raise ValueError("not a UUID") from None

    return Codec(kind="uuid", schema={"type": "string", "format": "uuid"}, encode=str, decode=decode, lookups=_EQUAL)


def _address(field: Any) -> Codec:
    def decode(value: Any) -> str:
        try:
            return str(ipaddress.ip_address(as_text(value)))
        except ValueError:
            raise ValueError("not an IP address") from None

    return Codec(kind="ip-address", schema={"type": "string"}, encode=str, decode=decode, lookups=_EQUAL)


def _json(field: Any) -> Codec:
    return Codec(kind="json", schema={}, encode=to_json, decode=_incomparable, lookups=_ISNULL, orderable=False)


def _binary(field: Any) -> Codec:
    return Codec(
        kind="binary",
        schema={"type": "string", "contentEncoding": "base64"},
        encode=lambda value: base64.b64encode(bytes(value)).decode("ascii"),
        decode=_incomparable,
        lookups=_ISNULL,
        orderable=False,
    )


def _file(field: Any) -> Codec:
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
    return Codec(kind="file", schema=schema, encode=encode, decode=_incomparable, lookups=_ISNULL, orderable=False)


def _array(field: Any) -> Codec:
    inner = codec_of(field.base_field)
    items = {"type": "array", "items": nullable(inner.schema)}
    return Codec(
        kind="list",
        schema=items,
        encode=lambda value: [inner.shown(item) for item in value],
        decode=_incomparable,
        lookups=_ISNULL,
        orderable=False,
    )


def _opaque() -> Codec:
    return Codec(
        kind="other",
        schema={"type": "string"},
        encode=str,
        decode=_incomparable,
        lookups=_ISNULL,
        orderable=False,
    )


def nullable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with null allowed."""
    kind = schema.get("type")
    if kind is None:
        return {"anyOf": [dict(schema), {"type": "null"}]} if schema else {}
    kinds = [kind] if isinstance(kind, str) else list(kind)
    return {**schema, "type": kinds if "null" in kinds else [*kinds, "null"]}


def _incomparable(value: Any) -> Any:
    raise ValueError("values of this field cannot be compared")


_KINDS: tuple[tuple[type["models.Field[Any, Any]"], Callable[[Any], Codec]], ...] = (
    (models.FileField, _file),
    (models.JSONField, _json),
    (models.BinaryField, _binary),
    (models.BooleanField, _boolean),
    (models.IntegerField, _integer),
    (models.DecimalField, _decimal),
    (models.FloatField, _float),
    (models.DateTimeField, _date_time),
    (models.DateField, _date),
    (models.TimeField, _time),
    (models.DurationField, _duration),
    (models.UUIDField, _uuid),
    (models.GenericIPAddressField, _address),
    (models.CharField, _text),
    (models.TextField, _text),
    (models.FilePathField, _text),
)
"""Codec builders by field class; subclasses come before their base classes."""
