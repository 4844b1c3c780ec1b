"""Computed fields: methods and properties of a toolset or of its model.

Their return annotation defines their schema, as for tools. Without an annotation any JSON is allowed.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.utils.functional import cached_property as django_cached_property

from mcp_django.schema import DeclarationError, compile_output, describe_callable, to_json

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset

_PROPERTIES = (property, cached_property, django_cached_property)


@dataclass(frozen=True, slots=True, eq=False)
class ComputedField:
    """Function, schema and description of a computed field."""

    get_value: Callable[[Any, Any], Any]
    """Function from an object and the call's context to JSON."""
    schema: Mapping[str, Any]
    definitions: Mapping[str, Any]
    """Definitions that the schema refers to, by name."""
    description: str


def compile_computed_field(toolset: "ModelToolset", name: str) -> ComputedField:
    """Compile a method of the toolset, or a method or property of the model.

    Methods of the toolset receive the object, and the Context if they have a second parameter.

    Raises:
        DeclarationError: the attribute is missing or cannot be a field.
    """
    where = f"{toolset.source}: {name!r}"
    method = toolset.find_own_method(name)

    if method is not None:
        parameters = list(inspect.signature(method).parameters.values())
        if not 1 <= len(parameters) <= 2:
            raise DeclarationError(f"{where} must take the object, and may take the context after it")
        if len(parameters) == 1:
            return _build_computed_field(method, lambda obj, ctx: method(obj))
        return _build_computed_field(method, method)

    attribute = inspect.getattr_static(toolset.model, name, None)
    if isinstance(attribute, _PROPERTIES):
        getter = attribute.fget if isinstance(attribute, property) else attribute.func
        return _build_computed_field(getter, lambda obj, ctx: getattr(obj, name))

    if inspect.isfunction(attribute):
        if getattr(attribute, "alters_data", False) or len(inspect.signature(attribute).parameters) != 1:
            raise DeclarationError(f"{where} is a method that changes data or takes arguments; it cannot be a field")
        return _build_computed_field(attribute, lambda obj, ctx: getattr(obj, name)())

    display = _find_choices_display(toolset, name)
    if display is not None:
        return display

    raise DeclarationError(
        f"{where} is neither a field of {toolset.model._meta.label} nor a method or property of it or of the toolset"
    )


def _find_choices_display(toolset: "ModelToolset", name: str) -> ComputedField | None:
    """Return `get_<field>_display`, which Django generates for fields with choices."""
    method = getattr(toolset.model, name, None)
    if not name.startswith("get_") or not name.endswith("_display") or method is None:
        return None
    return ComputedField(lambda obj, ctx: str(getattr(obj, name)()), {"type": "string"}, {}, "")


def _build_computed_field(fn: Any, value: Callable[[Any, Any], Any]) -> ComputedField:
    output = compile_output(fn, is_content=lambda annotation: False)
    text = describe_callable(fn).summary
    if output is None:
        return ComputedField(lambda obj, ctx: to_json(value(obj, ctx)), {}, {}, text)
    dump = output.dump
    definitions = output.schema.get("$defs", {})
    schema = output.schema["properties"]["result"] if output.is_wrapped else _remove_definitions(output.schema)
    return ComputedField(lambda obj, ctx: dump(value(obj, ctx)), schema, definitions, text)


def _remove_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "$defs"}
