"""Codecs of model columns: JSON Schema, conversion, lookups, aggregates and the value in forms.

A `Codec` is created once for each exposed column, by the builder that is registered for the class of the field.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from django.db import models

from mcp_django.protocol.jsonrpc import JSONMapping

ModelField: TypeAlias = "models.Field[Any, Any]"
"""Column of any class."""
EQUALITY_LOOKUPS = {"exact": "value", "in": "list", "isnull": "boolean"}
TEXT_LOOKUPS = dict.fromkeys(("iexact", "contains", "icontains", "startswith", "istartswith"), "text")
ORDER_LOOKUPS = {**dict.fromkeys(("gt", "gte", "lt", "lte"), "value"), "range": "pair"}
COMPARABLE_LOOKUPS = EQUALITY_LOOKUPS | ORDER_LOOKUPS
DATE_LOOKUPS = dict.fromkeys(("year", "month", "day"), "integer")
NULL_LOOKUPS = {"isnull": "boolean"}
LOOKUPS = frozenset({*EQUALITY_LOOKUPS, *TEXT_LOOKUPS, *ORDER_LOOKUPS, *DATE_LOOKUPS, "date"})
"""Lookups of Django's own columns, which no field of a model may be named like."""
METRIC_LOOKUPS = ("exact", "gt", "gte", "lt", "lte")
NUMBER_AGGREGATES = frozenset({"count", "sum", "avg", "min", "max"})
COUNT_AGGREGATES = frozenset({"count"})
RANGE_AGGREGATES = frozenset({"count", "min", "max"})
Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Codec:
    """Conversion of one column's values from and to JSON; null is never passed to it."""

    kind: str
    """Type name for clients, such as "text", "integer", "decimal" or "date"."""
    schema: JSONMapping
    """JSON Schema of a shown value."""
    encode: Convert | None = None
    """Function from a database value to JSON; None if the value is JSON already."""
    encode_factory: Callable[[], Convert] | None = None
    """Factory of an `encode` function for many values, if that is faster."""
    decode: Convert
    """Function from JSON to a value to compare with.

    It accepts shown values, and raises ValueError with a message for the client.
    """
    lookups: Mapping[str, str | Convert]
    """Django lookups, each with the kind of its operand, or a function that converts it.

    Kinds are value, list, pair, text, integer, boolean and date. Lookups that the column does not have are left out.
    """
    filter_schema: JSONMapping | None = None
    """JSON Schema of a value to compare with; None if it is `schema`."""
    is_orderable: bool = True
    """True if rows can be ordered and grouped by the column."""
    aggregates: frozenset[str] = COUNT_AGGREGATES
    """Supported aggregate functions."""
    form_schema: JSONMapping | None = None
    """JSON Schema of a value that clients write; None if it is `schema`."""
    to_form: Convert | None = None
    """Function from JSON to input of the column's form field; None if the JSON is that input.

    It accepts shown values, and raises ValueError with a message for the client.
    """

    def serialize(self, value: Any) -> Any:
        """Return a database value, a choice or None as JSON."""
        if value is None:
            return None
        return to_plain_value(value) if self.encode is None else self.encode(value)


def to_plain_text(value: object) -> str:
    """Return a value as a text of the class `str` itself.

    `str()` may return an instance of a subclass, such as a SafeString, which is not JSON.
    """
    return str.__str__(str(value))


def to_plain_value(value: object) -> object:
    """Return a text or a number without its subclass, such as a member of an enum.

    Other values are returned unchanged.
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return to_plain_text(value)
    if isinstance(value, int) and type(value) not in (int, bool):
        return int(value)
    return value


def reject_comparison(value: object) -> object:
    """Refuse a value to compare with."""
    raise ValueError("values of this field cannot be compared")
