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

from mcp_django.schema.conversion import build_argument_error, compile_fields, json_types, unwrap_not_required
from mcp_django.schema.functions.callables import (
    CallableParameter,
    CallableSignature,
    describe_callable,
    inspect_callable,
)
from mcp_django.schema.functions.signature import InjectionPredicate, build_field, split_injected
from mcp_django.schema.generation import compile_type
from mcp_django.schema.validation import messages
from mcp_django.schema.validation.validation import MAX_PROBLEMS, ArgumentError, DeclarationError

TextValue = str | list[str]
TextReader = Callable[[TextValue], Any]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PromptParameters:
    """Parameters of a handler whose values arrive as text."""

    arguments: list[dict[str, Any]]
    """`{"name", "title"?, "description"?, "required"}` for each caller's parameter."""
    injected: dict[str, Any]
    """Parameter name to resolved annotation, for values that the server injects."""
    _read: dict[str, TextReader]
    _required: tuple[str, ...]
    _factory_defaults: dict[str, FieldInfo]
    _noun: str

    def convert(self, values: dict[str, Any]) -> dict[str, Any]:
        """Convert texts to keyword arguments of the annotated types.

        Exploded variables have lists of texts.

        Raises:
            ArgumentError: for missing and unknown names, and for texts that do not fit their type.
        """
        unknown = (messages.describe_unknown(name, self._read, self._noun) for name in values if name not in self._read)
        missing = (messages.describe_missing(name, self._noun) for name in self._required if name not in values)
        # Build only as many texts as are shown: finding similar names is slow, and a request may have very many names.
        problems = list(islice(chain(unknown, missing), MAX_PROBLEMS))
        if problems:
            raise ArgumentError("; ".join(problems))
        converted = {name: _convert_value(name, self._read[name], value) for name, value in values.items()}
        for name, field in self._factory_defaults.items():
            if name not in converted:
                converted[name] = field.get_default(call_default_factory=True)
        return converted


def compile_prompt_parameters(fn: Callable[..., Any], *, is_injected: InjectionPredicate) -> PromptParameters:
    """Compile the parameters of a prompt.

    Raises:
        DeclarationError: when the signature is not supported.
    """
    shape = inspect_callable(fn)
    if shape.takes_kwargs:
        raise DeclarationError(f"{shape.name}() takes **kwargs, which a prompt cannot list; declare the parameters")
    injected, arguments = split_injected(shape, is_injected)
    return _build_parameters(fn, shape, injected, arguments, "argument")


def compile_uri_parameters(
    fn: Callable[..., Any], variables: Collection[str], *, is_injected: InjectionPredicate
) -> PromptParameters:
    """Compile the parameters of a resource whose URI template has `variables`.

    A variable with several values (`{path*}`) arrives as a list. For a parameter that is not a list, "/" joins the
    values.

    Raises:
        DeclarationError: when a variable has no parameter, or a parameter has neither variable nor default.
    """
    shape = inspect_callable(fn)
    injected, arguments = split_injected(shape, is_injected)

    for name in variables:
        if name not in arguments and not shape.takes_kwargs:
            raise DeclarationError(
                f"{shape.name}() has no parameter for the variable '{name}' of its URI template; add one, or remove "
                "the variable"
            )
        arguments.setdefault(name, CallableParameter(name, Any))
    for name, argument in arguments.items():
        if name not in variables and (argument.is_required or isinstance(argument.default, FieldInfo)):
            raise DeclarationError(
                f"{shape.name}(): parameter '{name}' is not a variable of the URI template; add {{{name}}} there, or a "
                "default"
            )

    given = {name: argument for name, argument in arguments.items() if name in variables}
    return _build_parameters(fn, shape, injected, given, "variable")


def _build_parameters(
    fn: Callable[..., Any],
    shape: CallableSignature,
    injected: dict[str, Any],
    arguments: dict[str, CallableParameter],
    noun: str,
) -> PromptParameters:
    fields = {name: build_field(argument) for name, argument in arguments.items()}
    schema = compile_fields(fields, where=f"{shape.name}()").schema
    described = describe_callable(fn).parameters
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
        _read={
            name: _build_reader(unwrap_not_required(fields[name]), f"{shape.name}(): parameter '{name}'")
            for name in arguments
        },
        _required=tuple(required),
        _factory_defaults={
            n: a.default for n, a in arguments.items() if isinstance(a.default, FieldInfo) and n not in required
        },
        _noun=noun,
    )


def compile_text_reader(annotation: Any, where: str) -> Callable[[str], Any]:
    """Build a function that converts a text to the annotated type.

    The function raises ArgumentError for an invalid text.

    Raises:
        DeclarationError: when the type cannot be written as text.
    """
    read = _build_reader(annotation, where)

    def convert(text: str) -> Any:
        try:
            return read(text)
        except ValidationError as error:
            raise build_argument_error(error, text) from None

    return convert


def _build_reader(annotation: Any, where: str) -> TextReader:
    """Build a function that converts one or several texts to the annotated type."""
    if annotation is Any or annotation is str:
        return _join_text
    compiled = compile_type(annotation, where)
    types = json_types(compiled.schema)
    from_text: Any = compiled.text_validator()
    from_json = compiled.validator()

    def read(value: TextValue) -> Any:
        if "array" in types and isinstance(value, list):
            return from_text.validate_python(value)
        text = _join_text(value)
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


def _join_text(value: TextValue) -> str:
    return value if isinstance(value, str) else "/".join(value)


def _convert_value(name: str, read: TextReader, value: Any) -> Any:
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise ArgumentError(f"{name}: {messages.format_value(value)} is not a string; write values as text")
    try:
        return read(value)
    except ValidationError as error:
        raise build_argument_error(error, {name: value}, prefix=(name,)) from None
