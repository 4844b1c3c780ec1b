"""Descriptions of many filters in few words, for the argument that groups them.

Filters with the same lookups and types share a line: "- name, serial: __ic, __nic (list of string)".
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mcp_django.extensions.calls import truncate
from mcp_django.extensions.schemas import list_types, strip_null

LOOKUP_PATTERN = re.compile(r"(.+?)(__[A-Za-z0-9_]+|\[[^\[\]]*\])")
"""Name of a filter with a lookup, such as `name__ic` or `created[gte]`."""
MAX_DESCRIPTION_CHARACTERS = 8000
MAX_CHOICES_CHARACTERS = 80
_HEADING = (
    "More filters, as an object of keys and values. A key is a name below, with one of its endings if it has some."
)

Schema = Mapping[str, Any]


def describe_filters(filters: Mapping[str, Schema]) -> str:
    """Describe filters by name: with their own descriptions if these are short enough.

    A longer text is cut; the error for an unknown key names the most similar one.
    """
    families: dict[str, dict[str, str]] = {}
    plain: dict[str, Schema] = {}
    for name, schema in filters.items():
        found = LOOKUP_PATTERN.fullmatch(name)
        if found is None or not found[2].startswith("__"):
            plain[name] = schema
        else:
            families.setdefault(found[1], {})[found[2]] = describe_type(schema)

    short = [_HEADING, *_describe_plain_filters(plain), *_describe_families(families)]
    detailed = [_HEADING, *(_describe_filter(*item) for item in plain.items()), *_describe_families(families)]
    text = "\n".join(detailed)
    if len(text) > MAX_DESCRIPTION_CHARACTERS:
        text = "\n".join(short)
    return truncate(text, MAX_DESCRIPTION_CHARACTERS)


def describe_type(schema: Schema) -> str:
    """Return the type of a value in a word, or its choices if they are few."""
    schema = strip_null(dict(schema))
    if schema.get("type") == "array":
        items = schema.get("items")
        return f"list of {describe_type(items)}" if isinstance(items, Mapping) else "list"
    choices = schema.get("enum")
    if isinstance(choices, list):
        text = " | ".join(map(str, choices))
        if len(text) <= MAX_CHOICES_CHARACTERS:
            return text
    known = [kind for kind in list_types(schema) if kind not in ("", "null")]
    return " or ".join(dict.fromkeys(known)) or "any"


def _describe_filter(name: str, schema: Schema) -> str:
    description = str(schema.get("description", "")).strip()
    return f"- {name} ({describe_type(schema)})" + (f": {description}" if description else "")


def _describe_plain_filters(filters: Mapping[str, Schema]) -> list[str]:
    names: dict[str, list[str]] = {}
    for name, schema in filters.items():
        names.setdefault(describe_type(schema), []).append(name)
    return [f"- {', '.join(group)} ({kind})" for kind, group in names.items()]


def _describe_families(families: Mapping[str, Mapping[str, str]]) -> list[str]:
    fields: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, types in families.items():
        fields.setdefault(tuple(sorted(types.items())), []).append(name)
    return [f"- {', '.join(names)}: {_describe_lookups(lookups)}" for lookups, names in fields.items()]


def _describe_lookups(lookups: Sequence[tuple[str, str]]) -> str:
    endings: dict[str, list[str]] = {}
    for ending, kind in lookups:
        endings.setdefault(kind, []).append(ending)
    return "; ".join(f"{', '.join(names)} ({kind})" for kind, names in endings.items())
