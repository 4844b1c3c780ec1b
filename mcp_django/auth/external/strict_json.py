"""Strict JSON parser for untrusted input.

It rejects duplicate names, NaN, oversized numbers, deep nesting, and text that a database rejects.
"""

import json
import math
from collections.abc import Iterator
from typing import Any, Final

DEEPEST: Final = 32
"""Maximum nesting of arrays and objects."""
LONGEST_NUMBER: Final = 40
"""Maximum number of digits of an integer. Identifiers of 128 bits fit."""


class Malformed(ValueError):
    """Malformed input. The message gives the reason, and contains no input."""


def read_object(raw: bytes, *, deepest: int = DEEPEST) -> dict[str, Any]:
    """Parse a JSON object that every parser reads the same way.

    `max_depth` limits the nesting of arrays and objects.

    Raises:
        MalformedInput: an invalid or ambiguous object.
    """
    try:
        found = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_no_number,
            parse_float=_number,
            parse_int=_whole,
        )
    except Malformed:
        raise
    except (ValueError, RecursionError):
        raise Malformed("it is not JSON") from None

    if not isinstance(found, dict):
        raise Malformed("it is not a JSON object")

    for text in _texts(found, deepest):
        # PostgreSQL rejects NUL, and every encoder rejects a lone surrogate.
        if "\0" in text or (not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)):
            raise Malformed("it has a string with a NUL or a lone surrogate")

    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed("it has a duplicate name")
    return found


def _no_number(word: str) -> Any:
    raise Malformed(f"{word} is not a valid number")


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Malformed("it has a number that is too large")
    return number


def _whole(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise Malformed("it has a number that is too large")
    return int(text)


def _texts(value: Any, deeper: int) -> Iterator[str]:
    """Yield every string in a value, including names.

    Raises MalformedInput if it is nested too deep.
    """
    if isinstance(value, str):
        yield value
        return
    if not isinstance(value, dict | list):
        return
    if deeper == 0:
        raise Malformed("it is nested too deep")
    if isinstance(value, dict):
        yield from value
        value = value.values()
    for item in value:
        yield from _texts(item, deeper - 1)
