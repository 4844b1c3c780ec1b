"""Conversion of JSON values to annotated types, and texts for pydantic's errors."""

from collections.abc import Callable, Mapping
from typing import Any, NotRequired, get_args, get_origin

from pydantic import ConfigDict, ValidationError, with_config
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json
from typing_extensions import TypedDict

from mcp_django.protocol.display_text import truncate
from mcp_django.schema.generation import CompiledType, SchemaGenerator, compile_type
from mcp_django.schema.validation import messages
from mcp_django.schema.validation.complexity import SchemaGraph
from mcp_django.schema.validation.validation import MAX_PROBLEMS, ArgumentError, DeclarationError

Converter = Callable[[Any], Any]


def compile_fields(
    fields: Mapping[str, Any],
    *,
    where: str,
    open_ended: bool = False,
    generator: type[SchemaGenerator] = SchemaGenerator,
) -> CompiledType:
    """Compile named annotations to one object type.

    `open_ended` passes additional names through unchanged.

    Raises:
        DeclarationError: names the field whose type has no JSON form.
    """

    config = ConfigDict(extra="allow" if open_ended else "forbid")
    create: Any = TypedDict
    holder = with_config(config)(create("Arguments", dict(fields)))
    try:
        compiled = compile_type(holder, where, generator=generator)
    except DeclarationError:
        for name, annotation in fields.items():
            compile_type(unwrap_not_required(annotation), f"{where}: parameter '{name}'")
        raise
    _check_recursive_choices(compiled.schema, where)
    return compiled


def build_converter(compiled: CompiledType) -> Converter:
    """Build a function that converts a checked JSON value to its Python value.

    For `datetime | str`, pydantic chooses the more exact type, and a Python string always matches str exactly. In JSON
    mode it accepts a string as a datetime. Such types are therefore encoded to JSON first, which costs time.
    """
    validator = compiled.validator()
    if not _is_ambiguous(compiled.schema):
        return validator.validate_python
    validate_json = validator.validate_json

    def convert(value: Any) -> Any:
        try:
            encoded = to_json(value)
        except (PydanticSerializationError, UnicodeError) as error:
            raise ArgumentError(truncate(f"not JSON: {error}", messages.MAX_PROBLEM_CHARACTERS)) from None
        return validate_json(encoded)

    return convert


def build_argument_error(
    error: ValidationError, value: Any, noun: str = "argument", prefix: tuple[str | int, ...] = ()
) -> ArgumentError:
    """Build an ArgumentError that describes up to five of pydantic's errors.

    `value` is the root, `prefix` the path of the converted part inside it.
    """
    problems: dict[str, None] = {}
    for detail in error.errors(include_url=False, include_context=False):
        detail["loc"] = (*prefix, *detail["loc"])
        problems[_describe_problem(detail, value, noun)] = None
        if len(problems) == MAX_PROBLEMS:
            break
    return ArgumentError("; ".join(problems))


def _describe_problem(detail: ErrorDetails, value: Any, noun: str) -> str:
    loc, kind, value_given = detail["loc"], detail["type"], detail["input"]
    path = messages.format_path(_path(loc, value))
    noun = "key" if len(loc) > 1 else noun
    inside, name = messages.format_path(_path(loc[:-1], value)), str(loc[-1]) if loc else ""
    if kind == "missing":
        text, path = messages.describe_missing(name, noun), inside
    elif kind in ("extra_forbidden", "unexpected_keyword_argument"):
        text, path = messages.describe_unknown(name, (), noun), inside
    else:
        message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        text = message.replace("Input should be", "must be", 1)
        if isinstance(value_given, str | int | float):
            text = text if text.startswith(("must", "is ")) else f"is refused: {text}"
            text = f"{messages.format_value(value_given)} {text}"
    return truncate(f"{path}: {text}" if path else text, messages.MAX_PROBLEM_CHARACTERS)


def _path(loc: tuple[str | int, ...], value: Any) -> list[str | int]:
    """Return the steps of a location that exist in the value.

    pydantic adds the names of union members and of keys.
    """
    path: list[str | int] = []
    for step in loc:
        try:
            value = value[step]
        except (LookupError, TypeError):
            continue
        path.append(step)
    return path


def _check_recursive_choices(schema: dict[str, Any], where: str) -> None:
    """Reject recursive choices that pydantic tries in full at every level.

    A value with a few dozen levels would take exponential time.
    """
    structure = SchemaGraph(schema)
    for alternatives in structure.find_recursive_choices("anyOf"):
        types = [structure.get_type(alternative) for alternative in alternatives]
        if len(set(types)) < len(types):
            names = [str(alternative.get("$ref", "a type")).rpartition("/")[2] for alternative in alternatives]
            raise DeclarationError(
                f"{where}: {' and '.join(names)} form a recursive choice, which takes exponential time on a deep "
                "value; distinguish them by Field(discriminator=...)"
            )


def unwrap_not_required(annotation: Any) -> Any:
    """Return a field's type without NotRequired."""
    return get_args(annotation)[0] if get_origin(annotation) is NotRequired else annotation


def _is_ambiguous(schema: dict[str, Any]) -> bool:
    """Return True if a choice has two types with the same JSON type."""
    definitions = schema.get("$defs", {})
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, dict):
            pending.extend(node.values())
            branches = node.get("anyOf") or node.get("oneOf")
            if isinstance(branches, list):
                kinds = [_json_type(branch, definitions) for branch in branches]
                if len(set(kinds)) < len(kinds):
                    return True
    return False


def json_types(schema: dict[str, Any]) -> set[str]:
    """Return the JSON types at the root of a schema, including alternatives."""
    definitions = schema.get("$defs", {})
    branches = schema.get("anyOf") or schema.get("oneOf") or [schema]
    return {str(_json_type(branch, definitions)) for branch in branches}


def _json_type(schema: Any, definitions: dict[str, Any]) -> Any:
    reference = schema.get("$ref", "") if isinstance(schema, dict) else ""
    if reference.startswith("#/$defs/"):
        schema = definitions.get(reference.removeprefix("#/$defs/"), {})
    return schema.get("type") if isinstance(schema, dict) else None
