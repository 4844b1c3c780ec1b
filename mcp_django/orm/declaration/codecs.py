"""Codecs of model columns: JSON Schema, conversion, lookups and aggregates.

A `Codec` is created once for each exposed column. Custom field classes use the codec of the Django class that they
extend. Other custom fields are shown as text and can only be compared with null. Dates, times and durations are
ISO 8601, in the current time zone.
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
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime, parse_duration
from django.utils.duration import duration_iso_string

from mcp_django.schema import ANY_VALUE_SCHEMA, any_of_types, make_nullable, to_json

MAX_DURATION = dt.timedelta(days=100_000 * 366)
"""Maximum duration.

Databases without an interval type store microseconds in 64 bits.
"""
MAX_TEXT_CHARACTERS = 1000
"""Maximum length in characters of a text to compare with."""
_INTEGER_BOUND = 1 << 63
_EQUALITY_LOOKUPS = {"exact": "value", "in": "list", "isnull": "boolean"}
_TEXT_LOOKUPS = dict.fromkeys(("iexact", "contains", "icontains", "startswith", "istartswith"), "text")
_ORDER_LOOKUPS = {**dict.fromkeys(("gt", "gte", "lt", "lte"), "value"), "range": "pair"}
_COMPARABLE_LOOKUPS = _EQUALITY_LOOKUPS | _ORDER_LOOKUPS
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


def format_datetime(value: dt.datetime) -> str:
    """Format a point in time in the current time zone."""
    return create_datetime_formatter()(value)


def create_datetime_formatter() -> Callable[[dt.datetime], str]:
    """Return a function that formats many points in time with one time zone lookup."""
    zone = timezone.get_current_timezone()

    def shown(value: dt.datetime) -> str:
        known = value.tzinfo
        return (value if known is None or known is zone else value.astimezone(zone)).isoformat()

    return shown


def parse_datetime_value(value: Any) -> dt.datetime:
    """Parse a point in time; without a time zone the current one applies.

    Raises:
        ValueError: the value is malformed or out of range.
    """
    expected = "give a date and time in ISO 8601, YYYY-MM-DDTHH:MM:SSZ"
    moment = _parse_value(lambda text: parse_datetime(text) or parse_date(text), value, expected)
    if not isinstance(moment, dt.datetime):
        moment = dt.datetime.combine(moment, dt.time())
    try:
        if timezone.is_aware(timezone.now()):
            aware = timezone.make_aware(moment) if moment.tzinfo is None else moment
            return aware.astimezone(dt.UTC)
        # Without USE_TZ all datetimes are naive, in the project's time zone.
        return moment if moment.tzinfo is None else timezone.make_naive(moment, timezone.get_default_timezone())
    except OverflowError:
        raise ValueError("out of range") from None


def parse_date_value(value: Any) -> dt.date:
    """Parse a date.

    Raises:
        ValueError: the value is malformed.
    """
    date: dt.date = _parse_value(parse_date, value, "give a date in ISO 8601, YYYY-MM-DD")
    return date


def parse_time_value(value: Any) -> dt.time:
    """Parse a time of day.

    Raises:
        ValueError: the value is malformed or has a time zone.
    """
    expected = "give a time of day such as '14:30', without a time zone"
    time: dt.time = _parse_value(dt.time.fromisoformat, value, expected)
    if time.tzinfo is not None:
        raise ValueError(expected)
    return time


def parse_duration_value(value: Any) -> dt.timedelta:
    """Parse a duration.

    Raises:
        ValueError: the value is malformed or too long.
    """
    duration: dt.timedelta = _parse_value(parse_duration, value, "give a duration such as 'P1DT2H' or '02:30:00'")
    if abs(duration) > MAX_DURATION:
        raise ValueError("out of range")
    return duration


def _parse_value(parse: Callable[[str], Any], value: Any, expected: str) -> Any:
    if type(value) is not str or len(value) > 100:
        raise ValueError(expected)
    try:
        parsed = parse(value)
    except (ValueError, OverflowError):  # well formed, but nonexistent, such as February 30
        parsed = None
    if parsed is None:
        raise ValueError(expected)
    return parsed


def _parse_number(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError("give a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("out of range")
    return number


def _parse_uuid(value: Any) -> uuid.UUID:
    if type(value) is not str or len(value) > 50:
        raise ValueError("give a UUID")
    try:
        return uuid.UUID(value)
    except ValueError:
        raise ValueError("not a UUID") from None


def _parse_address(value: Any) -> str:
    try:
        return str(ipaddress.ip_address(parse_text_value(value)))
    except ValueError:
        raise ValueError("not an IP address") from None


def _encode_finite_number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _encode_decimal(value: Any) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _encode_bytes(value: Any) -> str:
    return base64.b64encode(bytes(value)).decode("ascii")


_TEXT_CODEC = Codec(
    kind="text",
    schema={"type": "string"},
    decode=parse_text_value,
    lookups=_EQUALITY_LOOKUPS | _TEXT_LOOKUPS,
    aggregates=RANGE_AGGREGATES,
)
_OPAQUE_CODEC = Codec(
    kind="other",
    schema={"type": "string"},
    encode=str,
    decode=_reject_comparison,
    lookups=_NULL_LOOKUPS,
    is_orderable=False,
)
INTEGER_CODEC = Codec(
    kind="integer",
    schema={"type": "integer"},
    decode=parse_integer_value,
    lookups=_COMPARABLE_LOOKUPS,
    aggregates=NUMBER_AGGREGATES,
)
NUMBER_CODEC = Codec(
    kind="number",
    schema={"anyOf": [{"type": "number"}, {"type": "null"}]},
    encode=_encode_finite_number,
    decode=_parse_number,
    lookups=_COMPARABLE_LOOKUPS,
    aggregates=NUMBER_AGGREGATES,
)
DATE_CODEC = Codec(
    kind="date",
    schema={"type": "string", "format": "date"},
    encode=dt.date.isoformat,
    decode=parse_date_value,
    lookups=_COMPARABLE_LOOKUPS | _DATE_LOOKUPS,
    aggregates=RANGE_AGGREGATES,
)
COMPUTED_CODEC = Codec(kind="computed", schema={}, decode=_reject_comparison, lookups={}, is_orderable=False)
"""Codec of a field that the database does not contain."""


def build_decimal_codec(field: Any) -> Codec:
    """Build the codec of a DecimalField; without `max_digits` all finite numbers are valid."""
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

    return Codec(
        kind="decimal",
        schema={"type": "string", "description": "a decimal number, as text to stay exact"},
        encode=_encode_decimal,
        decode=decode,
        lookups=_COMPARABLE_LOOKUPS,
        aggregates=NUMBER_AGGREGATES,
    )


def _build_text_codec(field: Any) -> Codec:
    if hasattr(field, "from_db_value"):
        # The column's content differs from its value, so comparing and ordering would give wrong results.
        return replace(_OPAQUE_CODEC, kind="text")
    return _TEXT_CODEC


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

    url_schema = any_of_types("string", "null")
    properties = {"name": {"type": "string"}, "url": url_schema}
    schema = make_nullable({"type": "object", "properties": properties, "required": ["name", "url"]})
    return replace(_OPAQUE_CODEC, kind="file", schema=schema, encode=encode)


def _build_array_codec(field: Any) -> Codec:
    inner = get_codec(field.base_field)
    schema = {"type": "array", "items": make_nullable(inner.schema)}
    return replace(
        _OPAQUE_CODEC, kind="list", schema=schema, encode=lambda value: [inner.serialize(item) for item in value]
    )


_CODECS: tuple[tuple[type["models.Field[Any, Any]"], Codec | Callable[[Any], Codec]], ...] = (
    (models.FileField, _build_file_codec),
    (models.JSONField, replace(_OPAQUE_CODEC, kind="json", schema=ANY_VALUE_SCHEMA, encode=to_json)),
    (
        models.BinaryField,
        replace(
            _OPAQUE_CODEC, kind="binary", schema={"type": "string", "contentEncoding": "base64"}, encode=_encode_bytes
        ),
    ),
    (
        models.BooleanField,
        Codec(
            kind="boolean",
            schema={"type": "boolean"},
            decode=parse_boolean_value,
            lookups={"exact": "value", "isnull": "boolean"},
        ),
    ),
    (models.IntegerField, INTEGER_CODEC),
    (models.DecimalField, build_decimal_codec),
    (models.FloatField, NUMBER_CODEC),
    (
        models.DateTimeField,
        Codec(
            kind="date-time",
            schema={"type": "string", "format": "date-time"},
            encode=format_datetime,
            encode_factory=create_datetime_formatter,
            decode=parse_datetime_value,
            lookups=_COMPARABLE_LOOKUPS | _DATE_LOOKUPS | {"date": "date"},
            aggregates=RANGE_AGGREGATES,
        ),
    ),
    (models.DateField, DATE_CODEC),
    (
        models.TimeField,
        Codec(
            kind="time",
            schema={"type": "string", "description": "a time of day, such as 14:30:00"},
            encode=dt.time.isoformat,
            decode=parse_time_value,
            lookups=_COMPARABLE_LOOKUPS,
            aggregates=RANGE_AGGREGATES,
        ),
    ),
    (
        models.DurationField,
        Codec(
            kind="duration",
            schema={"type": "string", "description": "a duration (ISO 8601), such as P1DT02H30M00S"},
            encode=duration_iso_string,
            decode=parse_duration_value,
            lookups=_COMPARABLE_LOOKUPS,
            aggregates=NUMBER_AGGREGATES,
        ),
    ),
    (
        models.UUIDField,
        Codec(
            kind="uuid",
            schema={"type": "string", "format": "uuid"},
            encode=str,
            decode=_parse_uuid,
            lookups=_EQUALITY_LOOKUPS,
        ),
    ),
    (
        models.GenericIPAddressField,
        Codec(
            kind="ip-address", schema={"type": "string"}, encode=str, decode=_parse_address, lookups=_EQUALITY_LOOKUPS
        ),
    ),
    (models.CharField, _build_text_codec),
    (models.TextField, _build_text_codec),
    (models.FilePathField, _build_text_codec),
)
"""Codecs, or their builders, by field class; subclasses come before their base classes."""


def get_codec(field: "models.Field[Any, Any]") -> Codec:
    """Return the codec of a concrete field; foreign keys use their target field."""
    while isinstance(field, models.ForeignObject):
        field = field.target_field
    if isinstance(field, models.GeneratedField):
        return get_codec(cast("models.Field[Any, Any]", field.output_field))
    if field.get_internal_type() == "ArrayField":
        return _build_array_codec(field)

    found = next((found for kind, found in _CODECS if isinstance(field, kind)), _OPAQUE_CODEC)
    codec = found if isinstance(found, Codec) else found(field)
    return replace(codec, lookups=_EQUALITY_LOOKUPS) if field.choices and codec.kind == "text" else codec
