"""Codecs of Django's own field classes.

Other field classes use the codec of the Django class that they extend. Fields of no such class are shown as text.
"""

import base64
import datetime as dt
import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

from django.core import validators
from django.core.exceptions import SuspiciousOperation
from django.db import models
from django.db.backends.utils import format_number
from django.utils import timezone
from django.utils.duration import duration_iso_string

from mcp_django.orm.codecs.codec import (
    COMPARABLE_LOOKUPS,
    DATE_LOOKUPS,
    EQUALITY_LOOKUPS,
    NULL_LOOKUPS,
    NUMBER_AGGREGATES,
    RANGE_AGGREGATES,
    TEXT_LOOKUPS,
    Codec,
    ModelField,
    reject_comparison,
    to_plain_text,
)
from mcp_django.orm.codecs.parsing import (
    MAX_SAFE_INTEGER,
    parse_address_value,
    parse_big_integer_value,
    parse_boolean_value,
    parse_date_value,
    parse_datetime_value,
    parse_duration_value,
    parse_integer_value,
    parse_number_value,
    parse_text_value,
    parse_time_value,
    parse_uuid_value,
)
from mcp_django.orm.codecs.registry import register_codec
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.schema import ANY_VALUE_SCHEMA, any_of_types, make_nullable, to_json

BIG_INTEGER_SCHEMA = {
    "anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^-?[0-9]{1,19}$"}],
    "description": f"an integer; beyond {MAX_SAFE_INTEGER} as text to stay exact",
}
INTEGER_CODEC = Codec(
    kind="integer",
    schema={"type": "integer"},
    decode=parse_integer_value,
    lookups=COMPARABLE_LOOKUPS,
    aggregates=NUMBER_AGGREGATES,
    to_form=parse_integer_value,
)


def _encode_big_integer(value: int) -> int | str:
    return int(value) if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER else str(int(value))


BIG_INTEGER_CODEC = replace(
    INTEGER_CODEC,
    schema=BIG_INTEGER_SCHEMA,
    encode=_encode_big_integer,
    decode=parse_big_integer_value,
    to_form=parse_big_integer_value,
)
"""Codec of 64 bits, whose largest values JavaScript would round (RFC 7493, section 2.2)."""
NUMBER_CODEC = Codec(
    kind="number",
    schema=make_nullable({"type": "number"}),
    encode=lambda value: value if math.isfinite(value) else None,
    decode=parse_number_value,
    lookups=COMPARABLE_LOOKUPS,
    filter_schema={"type": "number"},
    aggregates=NUMBER_AGGREGATES,
)


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


DATE_CODEC = Codec(
    kind="date",
    schema={"type": "string", "format": "date"},
    encode=dt.date.isoformat,
    decode=parse_date_value,
    lookups=COMPARABLE_LOOKUPS | DATE_LOOKUPS,
    aggregates=RANGE_AGGREGATES,
    to_form=parse_date_value,
)
_CONSTANT_CODECS: dict[type[ModelField], Codec] = {
    models.BooleanField: Codec(
        kind="boolean",
        schema={"type": "boolean"},
        decode=parse_boolean_value,
        lookups={"exact": "value", "isnull": "boolean"},
        to_form=parse_boolean_value,
    ),
    models.DateTimeField: Codec(
        kind="date-time",
        schema={"type": "string", "format": "date-time"},
        encode=format_datetime,
        encode_factory=create_datetime_formatter,
        decode=parse_datetime_value,
        lookups=COMPARABLE_LOOKUPS | DATE_LOOKUPS | {"date": "date"},
        aggregates=RANGE_AGGREGATES,
        to_form=parse_datetime_value,
    ),
    models.DateField: DATE_CODEC,
    models.TimeField: Codec(
        kind="time",
        schema={"type": "string", "description": "a time of day, such as 14:30:00"},
        encode=dt.time.isoformat,
        decode=parse_time_value,
        lookups=COMPARABLE_LOOKUPS,
        aggregates=RANGE_AGGREGATES,
        to_form=parse_time_value,
    ),
    models.DurationField: Codec(
        kind="duration",
        schema={"type": "string", "description": "a duration (ISO 8601), such as P1DT02H30M00S"},
        encode=duration_iso_string,
        decode=parse_duration_value,
        lookups=COMPARABLE_LOOKUPS,
        aggregates=NUMBER_AGGREGATES,
        to_form=parse_duration_value,
    ),
    models.UUIDField: Codec(
        kind="uuid",
        schema={"type": "string", "format": "uuid"},
        encode=str,
        decode=parse_uuid_value,
        lookups=EQUALITY_LOOKUPS,
        to_form=parse_uuid_value,
    ),
    models.BinaryField: Codec(
        kind="binary",
        schema={"type": "string", "contentEncoding": "base64"},
        encode=lambda value: base64.b64encode(bytes(value)).decode("ascii"),
        decode=reject_comparison,
        lookups=NULL_LOOKUPS,
        is_orderable=False,
    ),
}
"""Codecs that depend on the class of a field only."""


def _register_constant_codec(field_class: type[ModelField], codec: Codec) -> None:
    register_codec(field_class)(lambda field: codec)


for _field_class, _codec in _CONSTANT_CODECS.items():
    _register_constant_codec(_field_class, _codec)


@register_codec(models.IntegerField)
def _build_integer_codec(field: Any) -> Codec:
    is_big = isinstance(field, models.BigIntegerField | models.PositiveBigIntegerField)
    if isinstance(field, models.BigAutoField) and not field.has_default():
        # The database counts these keys, so they stay far below the integers that JavaScript rounds.
        is_big = False
    codec = BIG_INTEGER_CODEC if is_big else INTEGER_CODEC
    return replace(codec, form_schema={**codec.schema, **_build_bounds(field)})


@register_codec(models.FloatField)
def _build_number_codec(field: Any) -> Codec:
    return replace(NUMBER_CODEC, form_schema={"type": "number", **_build_bounds(field)})


@register_codec(models.DecimalField)
def build_decimal_codec(field: Any) -> Codec:
    """Build the codec of a DecimalField; without `max_digits` all finite numbers are valid."""
    digits, places = field.max_digits, field.decimal_places
    description = "a decimal number, as text to stay exact"

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
        schema={"type": "string", "description": description},
        encode=lambda value: f"{value:f}" if isinstance(value, Decimal) else str(value),
        decode=decode,
        lookups=COMPARABLE_LOOKUPS,
        filter_schema=any_of_types("number", "string"),
        aggregates=NUMBER_AGGREGATES,
        form_schema={**any_of_types("string", "number"), "description": description},
        to_form=decode,
    )


@register_codec(models.CharField, models.TextField, models.FilePathField)
def _build_text_codec(field: Any) -> Codec:
    return Codec(
        kind="text",
        schema={"type": "string"},
        decode=parse_text_value,
        lookups=EQUALITY_LOOKUPS if field.choices else EQUALITY_LOOKUPS | TEXT_LOOKUPS,
        aggregates=RANGE_AGGREGATES,
        form_schema=_build_text_schema(field),
    )


@register_codec(models.GenericIPAddressField)
def _build_address_codec(field: Any) -> Codec:
    return Codec(
        kind="ip-address",
        schema={"type": "string"},
        encode=to_plain_text,
        decode=parse_address_value,
        lookups=EQUALITY_LOOKUPS,
        form_schema=_build_text_schema(field),
    )


@register_codec(models.Field)
def _build_other_codec(field: Any) -> Codec:
    return Codec(
        kind="other",
        schema={"type": "string"},
        encode=to_plain_text,
        decode=parse_text_value,
        lookups=EQUALITY_LOOKUPS,
        is_orderable=False,
        form_schema=_build_text_schema(field),
    )


@register_codec(models.JSONField)
def _build_json_codec(field: Any) -> Codec:
    return Codec(
        kind="json",
        schema=ANY_VALUE_SCHEMA,
        encode=to_json,
        decode=reject_comparison,
        lookups=NULL_LOOKUPS,
        is_orderable=False,
        # The form field would parse a text as JSON.
        to_form=lambda value: jsonrpc.dumps(to_json(value)).decode(),
    )


@register_codec(models.FileField)
def _build_file_codec(field: Any) -> Codec:
    storage = field.storage

    def encode(value: Any) -> JSONObject | None:
        name = to_plain_text(value)
        if not name:
            return None
        try:
            url = to_plain_text(storage.url(name))
        except (NotImplementedError, ValueError, SuspiciousOperation):
            url = None  # the storage has no URLs
        return {"name": name, "url": url}

    properties = {"name": {"type": "string"}, "url": any_of_types("string", "null")}
    return Codec(
        kind="file",
        schema=make_nullable({"type": "object", "properties": properties, "required": ["name", "url"]}),
        encode=encode,
        decode=reject_comparison,
        lookups=NULL_LOOKUPS,
        is_orderable=False,
    )


def _build_text_schema(field: Any) -> JSONObject:
    schema: JSONObject = {"type": "string"}
    if field.max_length is not None:
        schema["maxLength"] = field.max_length
    if not field.blank and not field.has_default():
        schema["minLength"] = 1
    for check in field.validators:
        if isinstance(check, validators.EmailValidator):
            schema["format"] = "email"
        elif isinstance(check, validators.URLValidator):
            schema["format"] = "uri"
    return schema


def _build_bounds(field: Any) -> JSONObject:
    schema: JSONObject = {}
    for check in field.validators:
        limit = getattr(check, "limit_value", None)
        if not isinstance(limit, int | float) or isinstance(limit, bool):
            continue
        if type(check) is validators.MinValueValidator:
            schema["minimum"] = max(limit, schema.get("minimum", limit))
        elif type(check) is validators.MaxValueValidator:
            schema["maximum"] = min(limit, schema.get("maximum", limit))
    return schema
