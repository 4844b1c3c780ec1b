"""Conversion of a handler's return value, and of lazily translated texts, to JSON values."""

import contextvars
from collections.abc import Callable, Mapping
from decimal import Decimal
from math import isfinite
from typing import Any, TypeVar

from pydantic_core import to_jsonable_python

from mcp_django.schema.annotations import is_struct_value, to_builtins

T = TypeVar("T")
LIMIT_KEYWORDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
"""Keywords of JSON Schema that limit a number, with a number as value."""
MAX_CONVERTED_DEPTH = 128
"""Maximum nesting of converted schemas. Deeper parts stay unchanged."""


def call_in_default_language(make: Callable[..., T], *args: Any) -> T:
    """Call `make` in a clean context, without the language of a request.

    The texts of declarations are cached and served to all clients. A lazily translated text (`gettext_lazy`) must not
    depend on the first request, so it is evaluated in the project's own language.
    """
    return contextvars.Context().run(make, *args)


def to_json_fallback(value: Any) -> Any:
    """Convert a value that pydantic does not support. Raises TypeError."""
    if is_struct_value(value):
        return to_builtins(value)
    if is_lazy(value):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form; return JSON types, a dataclass or a model")


def to_json(value: Any, fallback: Callable[[Any], Any] = to_json_fallback) -> Any:
    """Convert a value to JSON values (dict, list, str, int, float, bool, None).

    Accepts dataclasses, pydantic models, NamedTuples (as lists), `msgspec.Struct`, enums, dates, `Decimal` and `UUID`
    (as strings), paths, sets, bytes (as URL-safe base64) and Django's lazy strings, in any nesting. Generators are
    exhausted. `fallback` converts parts of further types.

    Raises:
        TypeError: when a part has no JSON form, or contains itself.
    """
    if value is None or type(value) in (str, bool, int, float):
        return value
    try:
        return to_jsonable_python(value, by_alias=True, bytes_mode="base64", fallback=fallback)
    except ValueError as error:
        # PydanticSerializationError is a ValueError. A value that contains itself raises another one.
        raise TypeError(f"{type(value).__name__} has no JSON form: {error}") from error


def to_json_schema(schema: Any) -> Any:
    """Convert the values in a schema to JSON.

    A schema that code generates may have lazy texts, `Decimal`, dates, enums and tuples. A `Decimal` becomes a number
    as a limit, else a text, as in results. A value without JSON form stays, and `check_schema` reports it.
    """
    known: dict[int, Any] = {}  # a shared value would double the work at each level

    def convert(value: Any, depth: int) -> Any:
        if depth > MAX_CONVERTED_DEPTH:
            return value
        if not isinstance(value, Mapping | list | tuple):
            return _to_json_or_itself(value)
        if id(value) not in known:
            known[id(value)] = value  # for a value that contains itself
            known[id(value)] = convert_items(value, depth + 1)
        return known[id(value)]

    def convert_items(value: Any, depth: int) -> Any:
        if not isinstance(value, Mapping):
            return [convert(item, depth) for item in value]
        return {key: _to_number(item) if key in LIMIT_KEYWORDS else convert(item, depth) for key, item in value.items()}

    return convert(schema, 0)


def _to_json_or_itself(value: Any) -> Any:
    try:
        return to_json(value)
    except TypeError:
        return value


def _to_number(value: Any) -> Any:
    if isinstance(value, Mapping):
        return to_json_schema(value)  # a property with the name of a keyword
    if not isinstance(value, Decimal) or not isfinite(value):
        return _to_json_or_itself(value)
    return int(value) if value == value.to_integral_value() else float(value)


def is_lazy(value: Any) -> bool:
    """Return True for a lazy translation of Django.

    `str` evaluates it in the active language.
    """
    return any(cls.__module__ == "django.utils.functional" and cls.__name__ == "Promise" for cls in type(value).__mro__)
