"""Whatever a handler returns, as JSON values."""

from typing import Any

from pydantic_core import to_jsonable_python

from mcp_django.schema import structs


def to_json(value: Any) -> Any:
    """A value as JSON values (dict, list, str, int, float, bool, None).

    Takes dataclasses, pydantic models, NamedTuples (as lists), `msgspec.Struct`, enums, dates, `Decimal` and `UUID`
    (as strings), paths, sets, bytes (as URL-safe base64) and Django's lazy strings, nested at will. Generators are run.

    Raises:
        TypeError: when something inside has no JSON form, or contains itself.
    """
    if value is None or type(value) in (str, bool, int, float):
        return value
    try:
        return to_jsonable_python(value, by_alias=True, bytes_mode="base64", fallback=fallback)
    except ValueError as error:
        # PydanticSerializationError is one; a value that contains itself is another.
        raise TypeError(f"{type(value).__name__} has no JSON form: {error}") from error


def fallback(value: Any) -> Any:
    """The JSON form of a value pydantic does not know; TypeError when there is none."""
    if structs.is_struct_value(value):
        return structs.to_builtins(value)
    if is_lazy(value):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form; return JSON types, a dataclass or a model")


def is_lazy(value: Any) -> bool:
    """Is this a lazy translation of Django's? `str` makes it text, in the language of the moment."""
    return any(cls.__module__ == "django.utils.functional" and cls.__name__ == "Promise" for cls in type(value).__mro__)
