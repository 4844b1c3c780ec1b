"""Conversion of a handler's return value, and of lazily translated texts, to JSON values."""

import contextvars
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic_core import to_jsonable_python

from mcp_django.schema.annotations import is_struct_value, to_builtins

T = TypeVar("T")


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


def is_lazy(value: Any) -> bool:
    """Return True for a lazy translation of Django.

    `str` evaluates it in the active language.
    """
    return any(cls.__module__ == "django.utils.functional" and cls.__name__ == "Promise" for cls in type(value).__mro__)
