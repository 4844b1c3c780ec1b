"""JSON from strangers, read strictly: no name twice, no NaN, no number without end, no text that no database takes."""

import json
import math
from collections.abc import Iterator
from typing import Any, Final

DEEPEST: Final = 32
"""How deep arrays and objects may stand in one another."""
LONGEST_NUMBER: Final = 40
"""Digits of a whole number: those of identifiers of 128 bits, which there are."""


class Malformed(ValueError):
    """This is not what it should be. The text says why, and holds nothing of it."""


def read_object(raw: bytes, *, deepest: int = DEEPEST) -> dict[str, Any]:
    """A JSON object, and nothing that two readers could read differently. `deepest` is how deep arrays and objects may
    stand in one another. Raises Malformed.
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
        raise Malformed("it is no JSON") from None
    if not isinstance(found, dict):
        raise Malformed("it is no JSON object")
    for text in _texts(found, deepest):
        # A NUL is refused by PostgreSQL, and half a surrogate pair by everybody.
        if "\0" in text or (not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)):
            raise Malformed("it has text that is no text")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed("it has a name twice")
    return found


def _no_number(word: str) -> Any:
    raise Malformed(f"{word} is no number")


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
    """Every text in a value, names included. Raises Malformed where it is nested too deep."""
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
