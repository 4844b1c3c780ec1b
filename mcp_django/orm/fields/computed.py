"""Computed fields: methods and properties of a toolset or of its model.

Their return annotation defines their schema, as for tools. Without an annotation any JSON is allowed.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.utils.functional import cached_property as django_cached_property

from mcp_django.schema import DeclarationError, describe, output_of, to_json

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset

_PROPERTIES = (property, cached_property, django_cached_property)


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """Function, schema and description of a computed field."""

    value: Callable[[Any, Any], Any]
    """Function from an object and the call's context to JSON."""
    schema: Mapping[str, Any]
    definitions: Mapping[str, Any]
    """Definitions that the schema refers to, by name."""
    description: str


def computed_of(toolset: "ModelToolset", name: str) -> Computed:
    """Compile a method of the toolset, or a method or property of the model.

    Methods of the toolset receive the object, and the Context if they have a second parameter.

    Raises:
        DeclarationError: the attribute is missing or cannot be a field.
    """
    where = f"{toolset.source}: {name!r}"
    method = toolset.own_method(name)

    if method is not None:
        given = list(inspect.signature(method).parameters.values())
        if not 1 <= len(given) <= 2:
            raise DeclarationError(f"{where} must take the object, and may take the context after it")
        if len(given) == 1:
            return _computed(method, lambda obj, ctx: method(obj))
        return _computed(method, method)

    found = inspect.getattr_static(toolset.model, name, None)
    if isinstance(found, _PROPERTIES):
        getter = found.fget if isinstance(found, property) else found.func
        return _computed(getter, lambda obj, ctx: getattr(obj, name))

    if inspect.isfunction(found):
        if getattr(found, "alters_data", False) or len(inspect.signature(found).parameters) != 1:
            raise DeclarationError(f"{where} is a method that changes data or takes arguments; it cannot be a field")
        return _computed(found, lambda obj, ctx: getattr(obj, name)())

    display = _display(toolset, name)
    if display is not None:
        return display

    raise DeclarationError(
        f"{where} is neither a field of {toolset.model._meta.label} nor a method or property of it or of the toolset"
    )


def _display(toolset: "ModelToolset", name: str) -> Computed | None:
    """Return `get_<field>_display`, which Django generates for fields with choices."""
    method = getattr(toolset.model, name, None)
    if not name.startswith("get_") or not name.endswith("_display") or method is None:
        return None
    return Computed(lambda obj, ctx: str(getattr(obj, name)()), {"type": "string"}, {}, "")


def _computed(fn: Any, value: Callable[[Any, Any], Any]) -> Computed:
    output = output_of(fn, is_content=lambda annotation: False)
    text = describe(fn).summary
    if output is None:
        return Computed(lambda obj, ctx: to_json(value(obj, ctx)), {}, {}, text)
    dump = output.dump
    definitions = output.schema.get("$defs", {})
    schema = output.schema["properties"]["result"] if output.wrapped else _without(output.schema)
    return Computed(lambda obj, ctx: dump(value(obj, ctx)), schema, definitions, text)


def _without(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "$defs"}
