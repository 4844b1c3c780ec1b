"""Choices of form fields and columns: flat lists of unique values, their schemas and labels.

A schema names the values by `enum`, and the labels in its description. Some hosts reject alternatives of constants. A
value that is listed twice would fit two of them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}


class ValueChoice(NamedTuple):
    """Value of a choice, with its label."""

    value: Any
    """Value as clients write it: a text, a number or a boolean; None for null."""
    label: str
    source: Any
    """Value in the declared choices, which form fields accept."""


def list_choices(declared: Iterable[Any], serialize: Callable[[Any], Any]) -> list[ValueChoice]:
    """Return the unique values of choices as a form field or a column declares them.

    Groups are part of the labels. A value that is repeated has the last of its labels, as for `get_FOO_display`.
    """
    found: dict[tuple[type, Any], ValueChoice] = {}
    for source, label in _flatten(declared, ""):
        value = None if source is None else _remove_subclass(serialize(source))
        if value is None or type(value) in _JSON_TYPES:
            found[type(value), value] = ValueChoice(value, label, source)
    return list(found.values())


def _flatten(declared: Iterable[Any], group: str) -> Iterator[tuple[Any, str]]:
    for value, label in declared:
        if isinstance(label, list | tuple):
            yield from _flatten(label, f"{value}: " if value else "")
        else:
            yield value, f"{group}{label}"


def _remove_subclass(value: Any) -> Any:
    """Return the plain JSON value of a member of an Enum, or of another subclass of a JSON type."""
    if isinstance(value, Enum):
        return _remove_subclass(value.value)
    if isinstance(value, str):
        return str.__str__(value)
    return next((kind(value) for kind in (bool, int, float) if isinstance(value, kind)), value)


def build_choice_schema(choices: Sequence[ValueChoice]) -> dict[str, Any]:
    """Return the schema of a value that is one of the choices, with their labels."""
    values_by_type: dict[str, list[Any]] = {}
    for choice in choices:
        if choice.value is not None:
            values_by_type.setdefault(_JSON_TYPES[type(choice.value)], []).append(choice.value)

    branches: list[dict[str, Any]] = [{"type": name, "enum": values} for name, values in values_by_type.items()]
    if any(choice.value is None for choice in choices):
        branches.append({"type": "null"})
    schema = branches[0] if len(branches) == 1 else {"anyOf": branches}
    text = describe_choices(choices)
    return {**schema, "description": text} if text else schema


def describe_choices(choices: Sequence[ValueChoice]) -> str:
    """Return the labels of the choices as a text, without labels that equal their value."""
    named = [choice for choice in choices if choice.label.strip() and choice.label != str(choice.value)]
    return "; ".join(f"{_format_value(choice.value)}: {choice.label}" for choice in named)


def _format_value(value: Any) -> str:
    if value is None:
        return "null"
    if value == "":
        return '""'
    return str(value).lower() if isinstance(value, bool) else str(value)


def join_sentences(*texts: str) -> str:
    """Join the texts that are not empty to one description."""
    return ". ".join(text.strip().rstrip(".") for text in texts if text.strip())
