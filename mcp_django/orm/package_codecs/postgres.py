"""Codecs of the field classes of `django.contrib.postgres`: arrays, ranges, hstore."""

from typing import Any

from mcp_django.orm.codecs.codec import EQUALITY_LOOKUPS, Codec, Convert
from mcp_django.orm.codecs.parsing import parse_text_value
from mcp_django.orm.codecs.registry import get_codec, register_codec
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.schema import any_of_types, make_nullable

MAX_ITEMS = 200
"""Maximum number of items of a list to compare with."""
_BOUNDS = ("[)", "[]", "(]", "()")
_EMPTY = "empty"
"""Bounds of an empty range."""


@register_codec("django.contrib.postgres.fields.array.ArrayField")
def build_array_codec(field: Any) -> Codec:
    """Build the codec of an ArrayField, with the codec of its items."""
    item = get_codec(field.base_field)
    schema = {"type": "array", "items": make_nullable(item.schema)}

    def decode(values: Any) -> list[Any]:
        if type(values) is not list or len(values) > MAX_ITEMS:
            raise ValueError(f"give a list of at most {MAX_ITEMS} values")
        return [None if value is None else item.decode(value) for value in values]

    return Codec(
        kind="list",
        schema=schema,
        encode=lambda values: [item.serialize(value) for value in values],
        decode=decode,
        filter_schema={"type": "array", "items": make_nullable(item.filter_schema or item.schema)},
        lookups={
            **EQUALITY_LOOKUPS,
            **dict.fromkeys(("contains", "contained_by", "overlap"), "value"),
            "len": parse_length,
        },
        is_orderable=False,
    )


def parse_length(value: Any) -> int:
    """Return the number of items of a list.

    Raises:
        ValueError: the value is not a small natural number.
    """
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise ValueError("give a number of items")
    return value


@register_codec("django.contrib.postgres.fields.ranges.RangeField")
def build_range_codec(field: Any) -> Codec:
    """Build the codec of a range: an object with its ends and its bounds."""
    end = get_codec(field.base_field)
    default_bounds = getattr(field, "default_bounds", "[)")

    def encode(value: Any) -> JSONObject:
        if value.isempty:
            return {"lower": None, "upper": None, "bounds": _EMPTY}
        bounds = f"{'[' if value.lower_inc else '('}{']' if value.upper_inc else ')'}"
        return {"lower": end.serialize(value.lower), "upper": end.serialize(value.upper), "bounds": bounds}

    def decode(value: Any) -> Any:
        ends, bounds = _parse_ends(value, end.decode), value.get("bounds", default_bounds)
        return field.range_type(empty=True) if bounds == _EMPTY else field.range_type(*ends, bounds)

    def to_form(value: Any) -> list[Any]:
        ends, bounds = _parse_ends(value, end.to_form or _identity), value.get("bounds", default_bounds)
        # An end that is missing is neither included nor excluded.
        is_different = [ends[place] is not None and bounds[place] != default_bounds[place] for place in range(2)]
        if bounds == _EMPTY or any(is_different):
            raise ValueError(f"a range of this field is written with the bounds {default_bounds}")
        return ends

    def decode_range_or_value(value: Any) -> Any:
        return decode(value) if isinstance(value, dict) else end.decode(value)

    return Codec(
        kind="range",
        schema=_build_range_schema(end.schema, [*_BOUNDS, _EMPTY]),
        encode=encode,
        decode=decode,
        filter_schema=_build_range_schema(end.filter_schema or end.schema, [*_BOUNDS, _EMPTY]),
        lookups={
            **EQUALITY_LOOKUPS,
            "contains": decode_range_or_value,
            **dict.fromkeys(("contained_by", "overlap", "adjacent_to"), "value"),
            **dict.fromkeys(("fully_lt", "fully_gt", "not_lt", "not_gt"), "value"),
            "isempty": "boolean",
        },
        is_orderable=False,
        form_schema=_build_range_schema(end.form_schema or end.schema, [*_BOUNDS]),
        to_form=to_form,
    )


def _build_range_schema(end: Any, bounds: list[str]) -> JSONObject:
    ends = make_nullable({key: rule for key, rule in end.items() if key != "description"})
    properties = {"lower": ends, "upper": ends, "bounds": {"type": "string", "enum": bounds}}
    return {
        "type": "object",
        "properties": properties,
        "required": ["lower", "upper"],
        "description": "null for no end; [ and ] include an end, ( and ) exclude it",
    }


def _parse_ends(value: Any, parse: Convert) -> list[Any]:
    if not isinstance(value, dict) or not {"lower", "upper"} <= value.keys() <= {"lower", "upper", "bounds"}:
        raise ValueError("give an object with lower, upper and bounds")
    if value.get("bounds") not in (None, *_BOUNDS, _EMPTY):
        raise ValueError(f"bounds are one of {', '.join(_BOUNDS)}")
    lower, upper = (None if value[name] is None else parse(value[name]) for name in ("lower", "upper"))
    if lower is not None and upper is not None and lower > upper:
        raise ValueError("the upper end of a range is below its lower end")
    return [lower, upper]


def _identity(value: Any) -> Any:
    return value


@register_codec("django.contrib.postgres.fields.hstore.HStoreField")
def build_hstore_codec(field: Any) -> Codec:
    """Build the codec of an HStoreField: an object of texts."""

    def decode(value: Any) -> dict[str, str | None]:
        if type(value) is not dict or len(value) > MAX_ITEMS:
            raise ValueError(f"give an object of at most {MAX_ITEMS} texts")
        return {parse_text_value(key): None if text is None else parse_text_value(text) for key, text in value.items()}

    schema = {"type": "object", "additionalProperties": any_of_types("string", "null")}
    return Codec(
        kind="hstore",
        schema=schema,
        encode=dict,
        decode=decode,
        lookups={
            **EQUALITY_LOOKUPS,
            **dict.fromkeys(("contains", "contained_by"), "value"),
            "has_key": "text",
            **dict.fromkeys(("has_keys", "has_any_keys"), _parse_keys),
        },
        is_orderable=False,
    )


def _parse_keys(values: Any) -> list[str]:
    if type(values) is not list or len(values) > MAX_ITEMS:
        raise ValueError(f"give a list of at most {MAX_ITEMS} texts")
    return [parse_text_value(value) for value in values]
