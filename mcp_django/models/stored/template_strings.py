"""Placeholders in stored texts: `$name` and `${name}`, as `string.Template` reads them; `$$` is a dollar sign.

Nothing else means anything: braces, percent signs and template tags are text. Values are put in once and never looked
at again, so that a value with a placeholder in it stays as it is.
"""

import re
from collections.abc import Mapping
from string import Template
from urllib.parse import quote

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
"""What an argument may be called: an identifier of `string.Template`, in ASCII. Small and capital letters differ."""


def names_in(text: str) -> list[str]:
    """The names of the placeholders in `text`, each once, in order."""
    return list(dict.fromkeys(_names(text)))


def is_well_formed(text: str) -> bool:
    """Does each dollar sign begin a placeholder, or stand twice?"""
    return all(found["invalid"] is None for found in Template.pattern.finditer(text))


def filled_length(text: str, values: Mapping[str, str]) -> int:
    """How many characters `fill` would return, at most. What is long is refused before it is made."""
    return len(text) + sum(len(values.get(name, "")) for name in _names(text))


def fill(text: str, values: Mapping[str, str]) -> str:
    """`text` with its placeholders replaced. Those without a value, and dollar signs that mean nothing, stay."""
    return Template(text).safe_substitute(values)


def fill_uri(text: str, values: Mapping[str, str]) -> str:
    """The same for a URI: values are percent-encoded whole, slashes included, so that none leaves its place."""
    return fill(text, {name: quote(value, safe="") for name, value in values.items()})


def _names(text: str) -> "list[str]":
    return [name for found in Template.pattern.finditer(text) if (name := found["named"] or found["braced"])]
