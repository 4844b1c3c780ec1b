"""Parameters with text values: prompt arguments and variables of resource URIs.

They have no schema on the wire. A text is converted to the annotated type like a form field ("5" to an int,
"2024-05-01" to a date). Lists and objects are written as JSON.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from mcp_django.schema.conversion import compile_fields, explain, json_types, unqualified
from mcp_django.schema.errors import ArgumentError, DeclarationError
from mcp_django.schema.functions.callables import Argument, Shape, shape_of
from mcp_django.schema.functions.docstrings import describe
from mcp_django.schema.functions.signature import IsInjected, field_of, split
from mcp_django.schema.generation import compile_type
from mcp_django.schema.validation import messages
from mcp_django.schema.validation.validation import SHOWN

Text = str | list[str]
Read = Callable[[Text], Any]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PromptParameters:
    """Parameters of a handler whose values arrive as text."""

    arguments: list[dict[str, Any]]
    """`{"name", "title"?, "description"?, "required"}` for each caller's parameter."""
    injected: dict[str, Any]
    """Parameter name to resolved annotation, for values that the server injects."""
    _read: dict[str, Read]
    _required: tuple[str, ...]
    _late: dict[str, FieldInfo]
    _noun: str

    def convert(self, values: dict[str, Any]) -> dict[str, Any]:
        """Convert texts to keyword arguments of the annotated types.

        Exploded variables have lists of texts.

        Raises:
            ArgumentError: for missing and unknown names, and for texts that do not fit their type.
        """
        unknown = (messages.unknown(name, self._read, self._noun) for name in values if name not in self._read)
        missing = (messages.missing(name, self._noun) for name in self._required if name not in values)
        # Build only as many texts as are shown: finding similar names is slow, and a request may have very many names.
        problems = list(islice(chain(unknown, missing), SHOWN))
        if problems:
            raise ArgumentError("; ".join(problems))
        converted = {name: _converted(name, self._read[name], value) for name, value in values.items()}
        for name, field in self._late.items():
            if name not in converted:
                converted[name] = field.get_default(call_default_factory=True)
        return converted


def prompt_parameters_of(fn: Callable[..., Any], *, is_injected: IsInjected) -> PromptParameters:
    """Compile the parameters of a prompt.

    Raises:
        DeclarationError: when the signature is not supported.
    """
    shape = shape_of(fn)
    if shape.takes_any:
        raise DeclarationError(f"{shape.name}() takes **kwargs, which a prompt cannot list; declare the parameters")
    injected, arguments = split(shape, is_injected)
    return _compiled(fn, shape, injected, arguments, "argument")


def uri_parameters_of(
    fn: Callable[..., Any], variables: Collection[str], *, is_injected: IsInjected
) -> PromptParameters:
    """Compile the parameters of a resource whose URI template has `variables`.

    A variable with several values (`{path*}`) arrives as a list. For a parameter that is not a list, "/" joins the
    values.

    Raises:
        DeclarationError: when a variable has no parameter, or a parameter has neither variable nor default.
    """
    shape = shape_of(fn)
    injected, arguments = split(shape, is_injected)

    for name in variables:
        if name not in arguments and not shape.takes_any:
            raise DeclarationError(
                f"{shape.name}() has no parameter for the variable '{name}' of its URI template; add one, or remove "
                "the variable"
            )
        arguments.setdefault(name, Argument(name, Any))
    for name, argument in arguments.items():
        if name not in variables and (argument.required or isinstance(argument.default, FieldInfo)):
            raise DeclarationError(
                f"{shape.name}(): parameter '{name}' is not a variable of the URI template; add {{{name}}} there, or a "
                "default"
            )

    given = {name: argument for name, argument in arguments.items() if name in variables}
    return _compiled(fn, shape, injected, given, "variable")


def _compiled(
    fn: Callable[..., Any], shape: Shape, injected: dict[str, Any], arguments: dict[str, Argument], noun: str
) -> PromptParameters:
    fields = {name: field_of(argument) for name, argument in arguments.items()}
    schema = compile_fields(fields, where=f"{shape.name}()").schema
    described = describe(fn).parameters
    listed: list[dict[str, Any]] = []
    required = schema.get("required", ())

    for name, wire_name in zip(arguments, schema.get("properties", {}), strict=True):
        if wire_name != name:
            raise DeclarationError(f"{shape.name}(): parameter '{name}' has an alias, which text values do not support")
        description = schema["properties"][name].get("description") or described.get(name)
        title = schema["properties"][name].get("title")
        entry = {"name": name, "title": title, "description": description, "required": name in required}
        listed.append({key: value for key, value in entry.items() if value is not None})

    return PromptParameters(
        arguments=listed,
        injected=injected,
        _read={name: _reader(unqualified(fields[name]), f"{shape.name}(): parameter '{name}'") for name in arguments},
        _required=tuple(required),
        _late={n: a.default for n, a in arguments.items() if isinstance(a.default, FieldInfo) and n not in required},
        _noun=noun,
    )


def text_reader(annotation: Any, where: str) -> Callable[[str], Any]:
    """Build a function that converts a text to the annotated type.

    The function raises ArgumentError for an invalid text.

    Raises:
        DeclarationError: when the type cannot be written as text.
    """
    read = _reader(annotation, where)

    def convert(text: str) -> Any:
        try:
            return read(text)
        except ValidationError as error:
            raise explain(error, text) from None

    return convert


def _reader(annotation: Any, where: str) -> Read:
    """Build a function that converts one or several texts to the annotated type."""
    if annotation is Any or annotation is str:
        return _joined
    compiled = compile_type(annotation, where)
    types = json_types(compiled.schema)
    from_text: Any = compiled.text_validator()
    from_json = compiled.validator()

    def read(value: Text) -> Any:
        if "array" in types and isinstance(value, list):
            return from_text.validate_python(value)
        text = _joined(value)
        if ("array" in types and text.startswith("[")) or ("object" in types and text.startswith("{")):
            return from_json.validate_json(text)
        if "array" in types:
            return from_text.validate_python([text])
        try:
            return from_text.validate_strings(text)
        except ValidationError:
            # Numbers in a Literal or an Enum are accepted only as JSON.
            with suppress(ValidationError):
                return from_json.validate_json(text)
            raise

    return read


def _joined(value: Text) -> str:
    return value if isinstance(value, str) else "/".join(value)


def _converted(name: str, read: Read, value: Any) -> Any:
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise ArgumentError(f"{name}: {messages.echo(value)} is not a string; write values as text")
    try:
        return read(value)
    except ValidationError as error:
        raise explain(error, {name: value}, at=(name,)) from None
