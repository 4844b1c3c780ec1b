"""Structured results: the schema of a handler's return annotation.

The root of the schema is an object in every revision. Other values are wrapped as `{"result": ...}`. NamedTuples are
lists in pydantic's JSON form, so they are wrapped as well.
"""

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
)
from math import isfinite
from typing import Annotated, Any, Never, NoReturn, get_args, get_origin

from pydantic_core import PydanticSerializationError

from mcp_django.schema.custom_schema import check_schema
from mcp_django.schema.functions.callables import MISSING, get_callable_name, get_return_annotation, unwrap_partial
from mcp_django.schema.generation import INT_MAX, INT_MIN, CompiledType, compile_type
from mcp_django.schema.jsonable import to_json, to_json_fallback
from mcp_django.schema.validation.validation import OutputError, SchemaChecker

ContentPredicate = Callable[[Any], bool]

_UNSTRUCTURED_TYPES = (MISSING, None, type(None), Any, object, bytes, bytearray, memoryview, Never, NoReturn)
"""Return annotations without a structured result."""


class _NoPlainType:
    """Type without values: the result always needs serialization."""


class CompiledOutput:
    """The schema of a result, and its serialization."""

    __slots__ = ("_checker", "_dump", "_plain_type", "_where", "is_wrapped", "schema")

    def __init__(
        self,
        schema: dict[str, Any],
        checker: SchemaChecker,
        dump: Callable[[Any], Any],
        *,
        is_wrapped: bool,
        where: str,
    ) -> None:
        self.schema = schema
        """JSON Schema for clients; its root is an object. Must not be changed."""
        self.is_wrapped = is_wrapped
        """True if the value is put under "result"."""
        self._checker = checker
        self._dump = dump
        self._where = where
        self._plain_type: type[Any] = _NoPlainType
        """Type whose values are valid JSON without serialization."""

    def dump(self, value: Any) -> Any:
        """Convert a result to JSON values, without wrapping or checking it.

        Raises:
            OutputError: when it has no JSON form.
        """
        if type(value) is self._plain_type:
            return value
        try:
            return self._dump(value)
        except (PydanticSerializationError, TypeError, ValueError) as error:
            raise OutputError(f"{self._where}: the result has no JSON form: {error}") from error

    def to_structured(self, value: Any) -> Any:
        """Convert a result to `structuredContent`: wrapped if needed, and checked.

        With `is_wrapped`, the unwrapped JSON value is under "result".

        Raises:
            OutputError: when the result violates the handler's own schema.
        """
        if type(value) is self._plain_type:
            if not _is_exact_in_json(value):
                raise OutputError(f"{self._where}: the result is a number that JSON cannot represent exactly")
            return {"result": value}

        dumped = self.dump(value)
        if self.is_wrapped:
            dumped = {"result": dumped}
        if not self._checker.is_valid(dumped):
            problems = self._checker.describe_problems(dumped, "key")
            raise OutputError(f"{self._where}: the result does not fit its output schema: {problems}")
        return dumped


def compile_output(
    fn: Callable[..., Any], *, output_schema: dict[str, Any] | type[Any] | None = None, is_content: ContentPredicate
) -> CompiledOutput | None:
    """Compile the result of a function, or return None without a structured result.

    `output_schema` replaces the return annotation by a type, or by a custom schema whose root is an object.
    `is_content` returns True for annotations of content blocks. A list or a union with content is content too.

    Raises:
        DeclarationError: when the annotation or the schema has no JSON form.
    """
    where = f"{get_callable_name(fn)}()"
    if isinstance(output_schema, dict):
        checker = check_schema(output_schema, f"{where}: output_schema")
        return CompiledOutput(output_schema, checker, to_json, is_wrapped=False, where=where)
    annotation = _unwrap_annotation(_find_result_type(fn) if output_schema is None else output_schema)
    if any(annotation is nothing for nothing in _UNSTRUCTURED_TYPES) or _holds_content(annotation, is_content):
        return None
    return _build_output(
        compile_type(annotation, f"{where}: the return value", mode="serialization"), annotation, where
    )


def _build_output(compiled: CompiledType, annotation: Any, where: str) -> CompiledOutput:
    schema, wrapped = _add_object_root(compiled.schema)
    serialize = compiled.serializer.to_python

    def dump(value: Any) -> Any:
        return serialize(value, mode="json", by_alias=True, warnings=False, fallback=to_json_fallback)

    output = CompiledOutput(schema, SchemaChecker(schema), dump, is_wrapped=wrapped, where=where)
    if annotation in (str, int, float, bool):
        output._plain_type = annotation
    return output


def _add_object_root(described: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the schema with an object at its root, and True if it needed a wrapper."""
    if described.get("type") == "object":
        return described, False
    definitions = described.get("$defs", {})
    target = definitions.get(str(described.get("$ref", "")).removeprefix("#/$defs/"), {})
    if target.get("type") == "object":
        # A recursive type.
        return {"type": "object", **described}, False
    inner = {key: value for key, value in described.items() if key != "$defs"}
    schema: dict[str, Any] = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    if definitions:
        schema["$defs"] = definitions
    return schema, True


def _is_exact_in_json(value: Any) -> bool:
    """Return True if JSON carries the number exactly, or the value is not a number."""
    if type(value) is int:
        return INT_MIN <= value <= INT_MAX
    return type(value) is not float or isfinite(value)


def _find_result_type(fn: Callable[..., Any]) -> Any:
    """Return the type of the result.

    A generator's result is all its pieces: texts are joined, other pieces form a list.
    """
    annotation = get_return_annotation(fn)
    origin, given = get_origin(annotation) or annotation, get_args(annotation)
    plain = inspect.isgeneratorfunction(unwrap_partial(fn)) and origin in (Iterator, Iterable)
    if not plain and origin not in (AsyncGenerator, AsyncIterator, AsyncIterable, Generator):
        return annotation
    if origin is Generator and len(given) == 3 and given[2] not in (None, type(None), Any):
        return given[2]
    if not given or given[0] is Any:
        return MISSING
    return str if given[0] is str else list[given[0]]  # type: ignore[valid-type]


def _unwrap_annotation(annotation: Any) -> Any:
    """Remove awaitables, and `Annotated` around an unstructured type."""
    origin = get_origin(annotation)
    if origin is Awaitable:
        return _unwrap_annotation(get_args(annotation)[0])
    if origin is Coroutine:
        return _unwrap_annotation(get_args(annotation)[2])
    if origin is Annotated and any(annotation.__origin__ is nothing for nothing in _UNSTRUCTURED_TYPES):
        return annotation.__origin__
    return annotation


def _holds_content(annotation: Any, is_content: ContentPredicate) -> bool:
    return is_content(annotation) or any(_holds_content(inner, is_content) for inner in get_args(annotation))
