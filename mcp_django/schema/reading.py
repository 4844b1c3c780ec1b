"""Parsing of model output: the schema for a language model, and the conversion.

Models often put JSON into a fenced block with a sentence around it. Both forms are parsed.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import MCPError
from mcp_django.schema.conversion import converter, explain
from mcp_django.schema.errors import ArgumentError
from mcp_django.schema.generation import compile_type, describe_type
from mcp_django.schema.lazy_strings import natively
from mcp_django.schema.validation.validation import Checker

_FENCE = "```"


class Reading:
    """The schema of a type, and the conversion of a model's text to its value."""

    __slots__ = ("_checker", "_convert", "schema")

    def __init__(self, schema: dict[str, Any], convert: Callable[[Any], Any]) -> None:
        self.schema = schema
        """JSON Schema for the model. Must not be changed."""
        self._checker = Checker(schema)
        self._convert = convert

    def read(self, text: str) -> Any:
        """Convert a JSON text, possibly in a fenced block, to its value.

        Raises:
            ArgumentError: describes the error to the model that wrote the text.
        """
        value = _parsed(text)
        if not self._checker.is_valid(value):
            raise ArgumentError(self._checker.problems(value, "key"))
        try:
            return self._convert(value)
        except ValidationError as error:
            raise explain(error, value, "key") from None


def reading_of(type_: Any) -> Reading:
    """Compile a type: a dataclass, TypedDict, pydantic model or Struct, or a list.

    Any type with a JSON form is accepted.

    Raises:
        DeclarationError: when the type has no JSON form.
    """
    try:
        hash(type_)
    except TypeError:
        return natively(_compiled, type_)
    return _cached(type_)


def _compiled(type_: Any) -> Reading:
    compiled = compile_type(type_, f"result_type {describe_type(type_)}")
    return Reading(compiled.schema, converter(compiled))


# Cached, because handlers request the same types at run time again and again.
@lru_cache(maxsize=256)
def _cached(type_: Any) -> Reading:
    return natively(_compiled, type_)


def _parsed(text: str) -> Any:
    for candidate in (text.strip(), *_fenced(text)):
        try:
            return jsonrpc.decode(candidate.encode())
        except (MCPError, UnicodeError):
            continue
    raise ArgumentError("the answer is not JSON")


def _fenced(text: str) -> Iterator[str]:
    """Yield the text of fenced blocks, without the name of the language."""
    parts = text.split(_FENCE, 16)
    for part in parts[1::2]:
        language, _, rest = part.partition("\n")
        yield rest if language.strip().isalnum() else part
