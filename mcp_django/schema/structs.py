"""Support of `msgspec.Struct` as a type of arguments and results.

Only this module uses msgspec, and never imports it. A class can derive from `msgspec.Struct` only after another module
has imported msgspec, so the loaded module is taken from `sys.modules`.
"""

import sys
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from mcp_django.schema.errors import DeclarationError

STRUCT_KEYWORD = "x-msgspec-struct"
"""Keyword that marks a Struct until `inline_structs` inserts a reference."""


def is_struct(annotation: Any) -> bool:
    """Return True for a `msgspec.Struct` class."""
    loaded = sys.modules.get("msgspec")
    return loaded is not None and isinstance(annotation, type) and issubclass(annotation, loaded.Struct)


def is_struct_value(value: Any) -> bool:
    """Return True for an instance of a `msgspec.Struct`."""
    return is_struct(type(value))


def to_builtins(value: Any) -> Any:
    """Convert a Struct to JSON values."""
    return _get_msgspec().to_builtins(value, str_keys=True)


class StructSchema:
    """Annotation metadata that defines one Struct class for pydantic."""

    def __init__(self, cls: type[Any], mark: str) -> None:
        self.cls = cls
        self.mark = mark

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._convert,
            serialization=core_schema.plain_serializer_function_ser_schema(
                to_builtins, return_schema=core_schema.any_schema()
            ),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {STRUCT_KEYWORD: self.mark}

    def _convert(self, value: Any) -> Any:
        msgspec = _get_msgspec()
        if isinstance(value, self.cls):
            return value
        try:
            return msgspec.convert(value, self.cls)
        except msgspec.ValidationError:
            # JSON accepts 1.0 as an integer, strict msgspec does not. The schema has already rejected "1".
            pass
        try:
            return msgspec.convert(value, self.cls, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error


def inline_structs(schema: dict[str, Any], structs: dict[str, type[Any]]) -> dict[str, Any]:
    """Replace the marks of `structs` in a schema by references, and add their `$defs`."""
    if not structs:
        return schema
    classes = list(structs.values())
    try:
        roots, components = _get_msgspec().json.schema_components(classes, ref_template="#/$defs/{name}")
    except (TypeError, KeyError) as error:
        # KeyError: two classes of one module with the same name.
        names = ", ".join(cls.__name__ for cls in classes)
        raise DeclarationError(f"msgspec cannot describe {names} together as JSON Schema ({error})") from error

    by_mark = dict(zip(structs, roots, strict=True))
    result: dict[str, Any] = _replace_marks(schema, by_mark)
    definitions = result.setdefault("$defs", {})
    for name, component in components.items():
        if definitions.get(name, component) != component:
            raise DeclarationError(f"two types are called {name}; rename the msgspec.Struct or the other one")
        if component.get("title") == name:
            component = {key: value for key, value in component.items() if key != "title"}
        definitions[name] = component
    return result


def _replace_marks(node: Any, by_mark: dict[str, dict[str, Any]]) -> Any:
    if isinstance(node, list):
        return [_replace_marks(item, by_mark) for item in node]
    if not isinstance(node, dict):
        return node
    replaced = {key: _replace_marks(value, by_mark) for key, value in node.items() if key != STRUCT_KEYWORD}
    mark = node.get(STRUCT_KEYWORD)
    return {**by_mark[mark], **replaced} if isinstance(mark, str) and mark in by_mark else replaced


def _get_msgspec() -> Any:
    return sys.modules["msgspec"]
