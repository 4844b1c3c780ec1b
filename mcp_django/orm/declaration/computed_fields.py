"""Computed fields: methods and properties that are shown like columns."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db import models
from django.db.models.manager import BaseManager
from django.utils.functional import cached_property as django_cached_property

from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.schema import DeclarationError, compile_output, describe_callable, to_json, to_json_fallback

_PROPERTIES = (property, cached_property, django_cached_property)


@dataclass(frozen=True, slots=True, eq=False)
class ComputedField:
    """Function, schema and description of a computed field."""

    get_value: Callable[[Any, Any], Any]
    """Function from an object and the call's context to JSON."""
    schema: JSONMapping
    definitions: JSONMapping
    """Definitions that the schema refers to, by name."""
    description: str


def compile_computed_field(
    source: str, model: type[models.Model], name: str, method: Callable[..., Any] | None
) -> ComputedField:
    """Compile a method of the toolset, or a method or property of the model.

    `source` is the place of the declaration, and `method` that of the toolset. It receives the object, and the Context
    if it has a second parameter.

    Raises:
        DeclarationError: the attribute is missing or cannot be a field.
    """
    where = f"{source}: {name!r}"

    if method is not None:
        parameters = list(inspect.signature(method).parameters.values())
        if not 1 <= len(parameters) <= 2:
            raise DeclarationError(f"{where} must take the object, and may take the context after it")
        if len(parameters) == 1:
            return _build_computed_field(where, method, lambda obj, ctx: method(obj))
        return _build_computed_field(where, method, method)

    attribute = inspect.getattr_static(model, name, None)
    if isinstance(attribute, _PROPERTIES):
        getter = attribute.fget if isinstance(attribute, property) else attribute.func
        return _build_computed_field(where, getter, lambda obj, ctx: getattr(obj, name))

    if inspect.isfunction(attribute):
        if getattr(attribute, "alters_data", False) or len(inspect.signature(attribute).parameters) != 1:
            raise DeclarationError(f"{where} is a method that changes data or takes arguments; it cannot be a field")
        return _build_computed_field(where, attribute, lambda obj, ctx: getattr(obj, name)())

    display = _find_choices_display(model, name)
    if display is not None:
        return display

    raise DeclarationError(
        f"{where} is neither a field of {model._meta.label} nor a method or property of it or of the toolset"
    )


def _find_choices_display(model: type[models.Model], name: str) -> ComputedField | None:
    """Return `get_<field>_display`, which Django generates for fields with choices."""
    method = getattr(model, name, None)
    if not name.startswith("get_") or not name.endswith("_display") or method is None:
        return None
    return ComputedField(lambda obj, ctx: str(getattr(obj, name)()), {"type": "string"}, {}, "")


def _build_computed_field(where: str, fn: Any, value: Callable[[Any, Any], Any]) -> ComputedField:
    output = compile_output(fn, is_content=lambda annotation: False)
    text = describe_callable(fn).summary
    if output is None:
        return ComputedField(lambda obj, ctx: _convert_computed_value(where, value(obj, ctx)), {}, {}, text)
    dump = output.dump
    definitions = output.schema.get("$defs", {})
    schema = output.schema["properties"]["result"] if output.is_wrapped else _remove_definitions(output.schema)
    return ComputedField(lambda obj, ctx: dump(value(obj, ctx)), schema, definitions, text)


def _convert_computed_value(where: str, value: Any) -> Any:
    """Convert the value of a method without an annotation to JSON.

    Raises:
        TypeError: the value has no JSON form and no text of its own.
    """
    try:
        return to_json(value, _format_object)
    except TypeError as problem:
        raise TypeError(f"{where}: {problem}") from problem


def _format_object(value: Any) -> Any:
    """Return an object without a JSON form as text, like a column of an unknown class.

    The text of a row or of a queryset may show values that no toolset shows.
    """
    kind: Any = type(value)
    has_own_text = kind.__str__ is not object.__str__ or kind.__repr__ is not object.__repr__
    is_row = isinstance(value, models.Model | models.QuerySet | BaseManager)
    return str(value) if has_own_text and not is_row and not callable(value) else to_json_fallback(value)


def _remove_definitions(schema: JSONObject) -> JSONObject:
    return {key: value for key, value in schema.items() if key != "$defs"}
