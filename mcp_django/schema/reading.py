"""Parsing of model output: the schema for a language model, and the conversion.

Models often put JSON into a fenced block with a sentence around it. Both forms are parsed.
"""

from collections.abc import Callable, Iterator
from typing import Any

from pydantic import ValidationError

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import MCPError
from mcp_django.schema.conversion import build_argument_error, build_converter
from mcp_django.schema.generation import cache_by_type, compile_type, describe_type
from mcp_django.schema.validation.validation import ArgumentError, SchemaChecker

_FENCE = "```"


class TextParser:
    """The schema of a type, and the conversion of a model's text to its value."""

    __slots__ = ("_checker", "_convert", "schema")

    def __init__(self, schema: dict[str, Any], convert: Callable[[Any], Any]) -> None:
        self.schema = schema
        """JSON Schema for the model. Must not be changed."""
        self._checker = SchemaChecker(schema)
        self._convert = convert

    def parse(self, text: str) -> Any:
        """Convert a JSON text, possibly in a fenced block, to its value.

        Raises:
            ArgumentError: describes the error to the model that wrote the text.
        """
        value = _parse_json(text)
        if not self._checker.is_valid(value):
            raise ArgumentError(self._checker.describe_problems(value, "key"))
        try:
            return self._convert(value)
        except ValidationError as error:
            raise build_argument_error(error, value, "key") from None


@cache_by_type
def compile_text_parser(type_: Any) -> TextParser:
    """Compile a type: a dataclass, TypedDict, pydantic model or Struct, or a list.

    Any type with a JSON form is accepted.

    Raises:
        DeclarationError: when the type has no JSON form.
    """
    compiled = compile_type(type_, f"result_type {describe_type(type_)}")
    return TextParser(compiled.schema, build_converter(compiled))


def _parse_json(text: str) -> Any:
    for candidate in (text.strip(), *_find_fenced_blocks(text)):
        try:
            return jsonrpc.decode(candidate.encode())
        except (MCPError, UnicodeError):
            continue
    raise ArgumentError("the answer is not JSON")


def _find_fenced_blocks(text: str) -> Iterator[str]:
    """Yield the text of fenced blocks, without the name of the language."""
    parts = text.split(_FENCE, 16)
    for part in parts[1::2]:
        language, _, rest = part.partition("\n")
        yield rest if language.strip().isalnum() else part
