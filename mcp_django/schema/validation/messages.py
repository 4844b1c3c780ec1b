"""Error messages for a language model: the location, the rule, and the remedy.

Values are shortened: the caller has the value, and it may be large.
"""

import difflib
import json
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from jsonschema_rs import ValidationError
from jsonschema_rs import ValidationErrorKind as Kind

from mcp_django.protocol.display_text import truncate

MAX_PROBLEM_CHARACTERS = 200
"""Maximum length of the text for one problem."""
_ABSENCE_KINDS = (Kind.Required, Kind.MinItems, Kind.MinProperties, Kind.Contains)
MAX_ECHO_CHARACTERS = 60
_MAX_CHOICES = 12
_NAMES = {"null": "null", "array": "a list", "object": "an object", "string": "a string", "number": "a number"}
_NAMES |= {"integer": "an integer", "boolean": "true or false"}


def describe_error(
    error: ValidationError, schema: Any, noun: str, cut_paths: Container[tuple[str | int, ...]] = ()
) -> Iterator[str]:
    """Describe the problems of one validation error, each in a short text.

    `schema` is the checked schema, and `noun` names a property of its root. The value was truncated at the paths in
    `cut`, so missing parts there are ignored.
    """
    for path, text in _describe_rules(error, schema, noun, cut_paths):
        yield truncate(f"{path}: {text}" if path else text, MAX_PROBLEM_CHARACTERS)


def format_path(path: Sequence[str | int]) -> str:
    """Format a path inside a value as `filter.limits[2]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else str(step)
    return text


def format_value(value: Any) -> str:
    """Format a value as JSON, shortened."""
    if isinstance(value, str):
        # Shorten first, because quoting a long text takes time that the caller controls.
        value = truncate(value, MAX_ECHO_CHARACTERS)
    elif isinstance(value, list | dict):
        return "the list" if isinstance(value, list) else "the object"
    elif isinstance(value, int) and value.bit_length() > 1000:
        # Python refuses to format integers of several thousand digits.
        return "the integer"
    return truncate(json.dumps(value, ensure_ascii=False, default=str), MAX_ECHO_CHARACTERS + 2)  # with the quotes


def describe_unknown(name: str, known: Iterable[str], noun: str) -> str:
    """Describe an unknown name, with the most similar known name."""
    name = truncate(name, MAX_ECHO_CHARACTERS)
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"unknown {noun} '{name}'" + (f"; did you mean '{close[0]}'?" if close else "")


def describe_missing(name: str, noun: str) -> str:
    """Describe a missing required name."""
    return f"missing {noun} '{truncate(name, MAX_ECHO_CHARACTERS)}'"


def format_choices(values: Sequence[Any]) -> str:
    """Format the values to choose from, up to a limit."""
    listed = ", ".join(format_value(value) for value in values[:_MAX_CHOICES])
    return listed if len(values) <= _MAX_CHOICES else f"{listed} and {len(values) - _MAX_CHOICES} more"


def _describe_rules(
    error: ValidationError, schema: Any, noun: str, cut_paths: Container[tuple[str | int, ...]]
) -> Iterator[tuple[str, str]]:
    if isinstance(error.kind, _ABSENCE_KINDS) and tuple(error.instance_path) in cut_paths:
        return

    kind, value, path = error.kind, error.instance, format_path(error.instance_path)
    whole = path or f"{noun}s"
    noun = "key" if path else noun

    match kind:
        case Kind.Required():
            yield path, describe_missing(kind.property, noun)
        case Kind.AdditionalProperties() | Kind.UnevaluatedProperties():
            known = _find_known_names(schema, error.schema_path)
            for name in kind.unexpected[:_MAX_CHOICES]:
                yield path, describe_unknown(name, known, noun)
        case Kind.Type():
            yield whole, _describe_wrong_type(value, kind.types)
        case Kind.AnyOf() | Kind.OneOfNotValid():
            yield from _describe_alternatives(error, schema, noun, cut_paths, whole)
        case Kind.PropertyNames():
            yield whole, f"a key breaks its rule: {truncate(kind.error.message, MAX_PROBLEM_CHARACTERS)}"
        case _:
            yield whole, _describe_simple_rule(kind, value) or truncate(error.message, MAX_PROBLEM_CHARACTERS)


def _describe_alternatives(
    error: ValidationError, schema: Any, noun: str, cut_paths: Container[tuple[str | int, ...]], whole: str
) -> Iterator[tuple[str, str]]:
    kind: Any = error.kind
    branches: list[list[ValidationError]] = kind.context
    allowed = _find_allowed_constants(error, branches)
    if allowed is not None:
        yield whole, f"{format_value(error.instance)} is not one of {format_choices(allowed)}"
        return

    closest = _find_closest_errors(error, branches)
    if not closest:
        types = [name for branch in branches for name in _root_types(error, branch)]
        yield whole, _describe_wrong_type(error.instance, dict.fromkeys(types))
    for inner in closest:
        yield from _describe_rules(inner, schema, noun, cut_paths)


def _find_closest_errors(whole: ValidationError, branches: list[list[ValidationError]]) -> list[ValidationError]:
    """Return the errors of the alternative with a fitting type and the fewest errors."""
    fitting = [branch for branch in branches if not _root_types(whole, branch)]
    return min(fitting, key=_distance, default=[])


def _find_allowed_constants(whole: ValidationError, branches: list[list[ValidationError]]) -> list[Any] | None:
    """Return the allowed values if each alternative is a constant or null, else None."""
    allowed: list[Any] = []
    for branch in branches:
        match [error.kind for error in branch if error.instance_path == whole.instance_path]:
            case [Kind.Constant() as kind]:
                allowed.append(kind.expected_value)
            case [Kind.Type() as kind] if kind.types == ["null"]:
                allowed.append(None)
            case _:
                return None
    return allowed if any(value is not None for value in allowed) else None


def _distance(branch: list[ValidationError]) -> tuple[int, int]:
    # A different constant indicates another alternative.
    return sum(isinstance(error.kind, Kind.Constant) for error in branch), len(branch)


def _root_types(whole: ValidationError, branch: list[ValidationError]) -> list[str]:
    """Return the types that an alternative accepts, if the root has another type."""
    depth = len(whole.instance_path)
    at_root = [error.kind for error in branch if len(error.instance_path) == depth]
    return [name for kind in at_root if isinstance(kind, Kind.Type) for name in kind.types]


def _find_known_names(schema: Any, schema_path: Sequence[str | int]) -> list[str]:
    """Return the property names next to the keyword at `schema_path`."""
    for step in schema_path[:-1]:
        try:
            schema = schema[step]
        except (LookupError, TypeError):
            return []
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return list(properties) if isinstance(properties, dict) else []


def _describe_wrong_type(value: Any, types: Iterable[str]) -> str:
    given = "is" if value is None or isinstance(value, bool | list | dict) else f"{format_value(value)} is"
    return f"{given} {_describe_type(value)}; give {_format_types(types)}"


def _describe_type(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "a boolean"
    for kind, name in ((str, "a string"), (int, "an integer"), (float, "a number"), (list, "a list")):
        if isinstance(value, kind):
            return name
    return "an object"


def _format_types(types: Iterable[str]) -> str:
    names = [_NAMES.get(name, name) for name in sorted(types, key="null".__eq__)]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _describe_simple_rule(kind: Kind, value: Any) -> str | None:
    if isinstance(kind, Kind.Enum):
        return f"{format_value(value)} is not one of {format_choices(kind.options)}"
    if isinstance(kind, Kind.Constant):
        return f"{format_value(value)} is not {format_value(kind.expected_value)}, the only value allowed"
    text = _SIMPLE_RULES.get(type(kind))
    return None if text is None else text.format(value=format_value(value), kind=kind)


_SIMPLE_RULES = {
    Kind.Maximum: "{value} is greater than the maximum of {kind.limit}",
    Kind.Minimum: "{value} is less than the minimum of {kind.limit}",
    Kind.ExclusiveMaximum: "{value} must be less than {kind.limit}",
    Kind.ExclusiveMinimum: "{value} must be greater than {kind.limit}",
    Kind.MultipleOf: "{value} is not a multiple of {kind.multiple_of}",
    Kind.MaxLength: "longer than the maximum of {kind.limit} characters",
    Kind.MinLength: "shorter than the minimum of {kind.limit} characters",
    Kind.MaxItems: "has more items than the maximum of {kind.limit}",
    Kind.MinItems: "has fewer items than the minimum of {kind.limit}",
    Kind.MaxProperties: "has more keys than the maximum of {kind.limit}",
    Kind.MinProperties: "has fewer keys than the minimum of {kind.limit}",
    Kind.Pattern: "{value} does not match the pattern {kind.pattern}",
    Kind.UniqueItems: "has an item twice; each must be different",
    Kind.AdditionalItems: "has more items than are allowed",
    Kind.UnevaluatedItems: "has more items than are allowed",
    Kind.OneOfMultipleValid: "{value} fits several of the forms allowed, but must fit exactly one",
    Kind.Not: "{value} is not allowed here",
    Kind.FalseSchema: "{value} is not allowed here",
}
"""Descriptions of violated rules, by the kind of the error."""
