"""Alternatives in schemas: values of several types, and nullable values.

JSON Schema also allows a list of types (`"type": ["string", "null"]`). Several clients reject it or drop the rule,
because their dialect has one type for each schema. So each alternative is a branch of `anyOf`.
"""

from collections.abc import Mapping
from typing import Any

ANNOTATION_KEYWORDS = frozenset({"title", "description", "default", "examples"})
"""Keywords of JSON Schema that describe a value and do not restrict it."""


def any_of_types(*types: str) -> dict[str, Any]:
    """Return the schema of a value of one of several types; the items of an array may be any values."""
    return {"anyOf": [{"type": name, "items": {}} if name == "array" else {"type": name} for name in types]}


ANY_VALUE_SCHEMA = any_of_types("object", "array", "string", "number", "boolean", "null")
"""Schema of any JSON value; clients warn about the empty schema."""
_NULL = {"type": "null"}


def make_nullable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with null allowed, as a branch of `anyOf`; its annotations stay at the root."""
    annotations = {key: value for key, value in schema.items() if key in ANNOTATION_KEYWORDS}
    rules = {key: value for key, value in schema.items() if key not in ANNOTATION_KEYWORDS}
    if not rules or _accepts_null(rules):
        return dict(schema)
    branches = rules["anyOf"] if rules.keys() == {"anyOf"} else [rules]
    return {"anyOf": [*branches, _NULL], **annotations}


def strip_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the only alternative to null of a schema by `make_nullable`, or the schema itself."""
    branches = [branch for branch in schema.get("anyOf", ()) if branch != _NULL]
    return branches[0] if len(branches) == 1 and isinstance(branches[0], Mapping) else schema


def list_types(schema: Mapping[str, Any]) -> list[str]:
    """Return the types that a schema names at its root, or in the branches of `anyOf`."""
    kind = schema.get("type", ())
    types = [kind] if isinstance(kind, str) else list(kind)
    for branch in schema.get("anyOf", ()):
        types += list_types(branch)
    return types


def _accepts_null(rules: Mapping[str, Any]) -> bool:
    return _NULL in rules.get("anyOf", ()) or "null" in rules.get("type", ()) or None in rules.get("enum", ())
