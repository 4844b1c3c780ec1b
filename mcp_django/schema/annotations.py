"""Adaptation of annotations for pydantic.

Two kinds of class need it: `typing.TypedDict` before Python 3.12, which pydantic rejects, and `msgspec.Struct`, which
it does not support. Both may occur anywhere inside generic types and TypedDicts.

Only this module uses msgspec, and never imports it. A class can derive from `msgspec.Struct` only after another module
has imported msgspec, so the loaded module is taken from `sys.modules`.
"""

import sys
import types
import typing
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, Required, Union, get_args, get_origin

import typing_extensions
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema
from typing_extensions import ReadOnly, TypedDict, is_typeddict

from mcp_django.schema.validation.validation import DeclarationError

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


@dataclass(frozen=True, slots=True, eq=False)
class StructSchema:
    """Annotation metadata that defines one Struct class for pydantic."""

    cls: type[Any]
    mark: str

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


_typed_dict: Any = TypedDict
"""`TypedDict` under a name that type checkers do not treat as a declaration."""
_QUALIFIERS: dict[Any, Any] = {
    qualifier: getattr(typing_extensions, name)
    for name in ("Required", "NotRequired", "ReadOnly")
    for qualifier in (getattr(typing, name, None), getattr(typing_extensions, name))
    if qualifier is not None
}


class AnnotationAdapter:
    """Rewrites annotations and collects their Structs."""

    def __init__(self) -> None:
        self.structs: dict[str, type[Any]] = {}
        """Mark in the schema to the Struct class."""
        self._typed_dicts: dict[Any, Any] = {}

    def adapt(self, annotation: Any) -> Any:
        """Return the annotation, or an equivalent one that pydantic accepts."""
        if is_struct(annotation):
            mark = next((mark for mark, cls in self.structs.items() if cls is annotation), str(len(self.structs)))
            self.structs[mark] = annotation
            return Annotated[annotation, StructSchema(annotation, mark)]
        if is_typeddict(annotation):
            return self._convert_typed_dict(annotation)

        origin = get_origin(annotation)
        if origin is None or origin is typing.Literal:
            return annotation
        if origin is Annotated:
            inner = self.adapt(annotation.__origin__)
            return annotation if inner is annotation.__origin__ else Annotated[(inner, *annotation.__metadata__)]

        arguments = get_args(annotation)
        adapted = tuple(self.adapt(argument) for argument in arguments)
        if all(new is old for new, old in zip(adapted, arguments, strict=True)):
            return annotation

        if origin is Union or origin is types.UnionType:
            return Union[adapted]  # noqa: UP007 - the members are known only here
        if origin in _QUALIFIERS:
            return _QUALIFIERS[origin][adapted[0]]
        return annotation.copy_with(adapted) if hasattr(annotation, "copy_with") else origin[adapted]

    def _convert_typed_dict(self, cls: Any) -> Any:
        if cls in self._typed_dicts:
            return self._typed_dicts[cls]
        hints = typing_extensions.get_type_hints(cls, include_extras=True)
        # The keys are enough at first. The types follow below, so that a recursive type can refer to the new class.
        new = _typed_dict(cls.__name__, dict.fromkeys(hints, Any))
        self._typed_dicts[cls] = new

        fields = {key: self.adapt(hint) for key, hint in hints.items()}
        if not _is_unsupported(cls) and all(
            fields[key] is hints[key] and not _is_read_only(hints[key]) for key in hints
        ):
            self._typed_dicts[cls] = cls
            return cls

        required = {key for key in hints if _is_required(hints[key], key in cls.__required_keys__)}
        new.__annotations__ = {
            key: _strip_qualifiers(hint) if key in required else NotRequired[_strip_qualifiers(hint)]
            for key, hint in fields.items()
        }
        new.__required_keys__ = frozenset(required)
        new.__optional_keys__ = frozenset(hints.keys() - required)
        new.__doc__, new.__module__, new.__qualname__ = cls.__doc__, cls.__module__, cls.__qualname__
        if (config := getattr(cls, "__pydantic_config__", None)) is not None:
            new.__pydantic_config__ = config
        return new


def _is_unsupported(cls: Any) -> bool:
    return sys.version_info < (3, 12) and type(cls).__module__ == "typing"


def _is_required(hint: Any, default: bool) -> bool:
    """Return True if the qualifiers make the key required.

    `__required_keys__` misses qualifiers inside string annotations.
    """
    while (origin := get_origin(hint)) is not None:
        qualifier = _QUALIFIERS.get(origin)
        if qualifier is Required:
            return True
        if qualifier is NotRequired:
            return False
        if qualifier is not ReadOnly and origin is not Annotated:
            break
        hint = get_args(hint)[0]
    return default


def _is_read_only(hint: Any) -> bool:
    """Return True for `ReadOnly`.

    pydantic warns that it does not enforce it. Arguments are a copy in any case.
    """
    while (qualifier := _QUALIFIERS.get(get_origin(hint))) is not None:
        if qualifier is ReadOnly:
            return True
        hint = get_args(hint)[0]
    return False


def _strip_qualifiers(hint: Any) -> Any:
    while get_origin(hint) in _QUALIFIERS:
        hint = get_args(hint)[0]
    return hint
