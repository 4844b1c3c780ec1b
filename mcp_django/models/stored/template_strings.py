"""Placeholders in stored texts: `$name` and `${name}` as in `string.Template`; `$$` is a dollar sign.

Braces, percent signs and template tags are plain text. Values are inserted once and not parsed again, so a placeholder
inside a value stays unchanged.
"""

import re
from collections.abc import Mapping
from string import Template
from urllib.parse import quote

NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
"""Pattern of an argument name: an ASCII identifier of `string.Template`, case-sensitive."""


def find_placeholders(text: str) -> list[str]:
    """Return the distinct names of the placeholders in `text`, in order."""
    return list(dict.fromkeys(_find_names(text)))


def has_valid_placeholders(text: str) -> bool:
    """Return True if each dollar sign starts a placeholder or is doubled."""
    return all(match["invalid"] is None for match in Template.pattern.finditer(text))


def get_max_filled_length(text: str, values: Mapping[str, str]) -> int:
    """Return an upper bound of the length of the result of `fill`.

    Callers use it to reject a text that is too long before it is built.
    """
    return len(text) + sum(len(values.get(name, "")) for name in _find_names(text))


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders of `text`.

    Placeholders without a value and stray dollar signs stay unchanged.
    """
    return Template(text).safe_substitute(values)


def fill_uri(text: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders of a URI by percent-encoded values.

    Slashes are encoded too, so that a value cannot change the structure of the URI.
    """
    return fill(text, {name: quote(value, safe="") for name, value in values.items()})


def _find_names(text: str) -> "list[str]":
    return [name for match in Template.pattern.finditer(text) if (name := match["named"] or match["braced"])]
