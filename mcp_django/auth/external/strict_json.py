"""Strict JSON parser for untrusted input.

It rejects duplicate names, NaN, oversized numbers, deep nesting, and text that a database rejects.
"""

import json
import math
from collections.abc import Iterator
from typing import Any, Final

MAX_JSON_DEPTH: Final = 32
"""Maximum nesting of arrays and objects."""
MAX_INTEGER_DIGITS: Final = 40
"""Maximum number of digits of an integer. Identifiers of 128 bits fit."""


class MalformedInput(ValueError):
    """Malformed input. The message gives the reason, and contains no input."""


def parse_object(raw: bytes, *, max_depth: int = MAX_JSON_DEPTH) -> dict[str, Any]:
    """Parse a JSON object that every parser reads the same way.

    `max_depth` limits the nesting of arrays and objects.

    Raises:
        MalformedInput: an invalid or ambiguous object.
    """
    try:
        parsed = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_build_object,
            parse_constant=_reject_constant,
            parse_float=_parse_float,
            parse_int=_parse_integer,
        )
    except MalformedInput:
        raise
    except (ValueError, RecursionError):
        raise MalformedInput("it is not JSON") from None

    if not isinstance(parsed, dict):
        raise MalformedInput("it is not a JSON object")

    for text in _iter_strings(parsed, max_depth):
        # PostgreSQL rejects NUL, and every encoder rejects a lone surrogate.
        if "\0" in text or (not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)):
            raise MalformedInput("it has a string with a NUL or a lone surrogate")

    return parsed


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise MalformedInput("it has a duplicate name")
    return members


def _reject_constant(word: str) -> Any:
    raise MalformedInput(f"{word} is not a valid number")


def _parse_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise MalformedInput("it has a number that is too large")
    return number


def _parse_integer(text: str) -> int:
    if len(text) > MAX_INTEGER_DIGITS:
        raise MalformedInput("it has a number that is too large")
    return int(text)


def _iter_strings(value: Any, depth_left: int) -> Iterator[str]:
    """Yield every string in a value, including names.

    Raises MalformedInput if it is nested too deep.
    """
    if isinstance(value, str):
        yield value
        return
    if not isinstance(value, dict | list):
        return
    if depth_left == 0:
        raise MalformedInput("it is nested too deep")
    if isinstance(value, dict):
        yield from value
        value = value.values()
    for item in value:
        yield from _iter_strings(item, depth_left - 1)
