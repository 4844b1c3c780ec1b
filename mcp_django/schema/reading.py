"""A type as what a language model writes: the schema it is told, and the way from its text to a value.

Models like to put JSON into a fenced block and a sentence around it; both are read.
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
    """A type's schema, and what a text that fits it means."""

    __slots__ = ("_checker", "_convert", "schema")

    def __init__(self, schema: dict[str, Any], convert: Callable[[Any], Any]) -> None:
        self.schema = schema
        """The JSON Schema a model is told. Not to be changed."""
        self._checker = Checker(schema)
        self._convert = convert

    def read(self, text: str) -> Any:
        """The value that a text of JSON stands for; the text may stand in a fenced block.

        Raises:
            ArgumentError: saying in words what is wrong, for the model that wrote it.
        """
        value = _parsed(text)
        if not self._checker.is_valid(value):
            raise ArgumentError(self._checker.problems(value, "key"))
        try:
            return self._convert(value)
        except ValidationError as error:
            raise explain(error, value, "key") from None


def reading_of(type_: Any) -> Reading:
    """Compile a type: a dataclass, TypedDict, pydantic model or Struct, a list of them, whatever has a JSON form.

    Raises:
        DeclarationError: when it has none.
    """
    try:
        hash(type_)
    except TypeError:
        return natively(_compiled, type_)
    return _cached(type_)


def _compiled(type_: Any) -> Reading:
    compiled = compile_type(type_, f"result_type {describe_type(type_)}")
    return Reading(compiled.schema, converter(compiled))


# Asked for at run time, so that the same types are met again and again.
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
    """What stands between fences, without the name of the language."""
    parts = text.split(_FENCE, 16)
    for part in parts[1::2]:
        language, _, rest = part.partition("\n")
        yield rest if language.strip().isalnum() else part
