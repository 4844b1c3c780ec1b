"""Union of several models' JSON Schemas, valid for all of them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

Schema = Mapping[str, Any]

_WORDS = frozenset({"title", "description", "default", "examples"})
_BOUNDS = frozenset(
    {"format", "contentEncoding", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"}
)


def arguments_of(schemas: Sequence[Schema]) -> dict[str, Any]:
    """Merge the input schemas of several tools.

    The result accepts all arguments that any of the tools accepts. Each property keeps the constraints common to all
    tools that have it. Arguments required by all tools are required.
    """
    names = dict.fromkeys(name for schema in schemas for name in schema.get("properties", {}))
    return {
        "type": "object",
        "properties": {name: _property(name, schemas) for name in names},
        "required": _required(schemas),
        "additionalProperties": False,
    }


def result_of(schemas: Sequence[Schema]) -> dict[str, Any]:
    """Merge the output schemas of several tools to their common part.

    Each result of these tools is valid under the merged schema.
    """
    first, *others = schemas
    names = [
        name for name in first.get("properties", {}) if all(name in other.get("properties", {}) for other in others)
    ]
    schema: dict[str, Any] = {"type": "object", "properties": {name: _property(name, schemas) for name in names}}
    return {**schema, "required": [name for name in _required(schemas) if name in names]}


def _required(schemas: Sequence[Schema]) -> list[str]:
    first, *others = schemas
    return [name for name in first.get("required", ()) if all(name in other.get("required", ()) for other in others)]


def _property(name: str, schemas: Sequence[Schema]) -> dict[str, Any]:
    having = [schema for schema in schemas if name in schema.get("properties", {})]
    found = [schema["properties"][name] for schema in having]
    plain = not any(_refers(schema) for schema in found)
    if plain and all(schema == found[0] for schema in found):
        return dict(found[0])
    merged = _merged([_resolved(one, schema) for one, schema in zip(found, having, strict=True)])
    # Keywords beside the reference describe the argument itself.
    return {
        **{key: found[0][key] for key in _WORDS if all(one.get(key, _NONE) == found[0].get(key) for one in found)},
        **merged,
    }


def _merged(schemas: Sequence[Schema]) -> dict[str, Any]:
    """Merge schemas to their common types, limits, items and keys.

    Items and properties are merged if all schemas have the same shape. `models_describe` returns the differences
    between models.
    """
    first = schemas[0]
    if all(schema == first for schema in schemas) and not _refers(first):
        return dict(first)
    merged = {
        key: first[key]
        for key in first
        if (key in _WORDS or key in _BOUNDS) and all(other.get(key, _NONE) == first[key] for other in schemas)
    }

    types = dict.fromkeys(kind for schema in schemas for kind in _types(schema))
    if "" in types:
        return merged
    if "integer" in types and "number" in types:
        del types["integer"]

    if said := _said([schema.get("description", "") for schema in schemas]):
        merged["description"] = said
    if all("items" in schema for schema in schemas):
        merged["items"] = _merged([schema["items"] for schema in schemas])
    keys = first.get("properties", {}).keys()
    if keys and all(schema.get("properties", {}).keys() == keys for schema in schemas):
        merged["properties"] = {key: _merged([schema["properties"][key] for schema in schemas]) for key in keys}
        merged["required"] = _required(schemas)

    kinds = list(types)
    return {"type": kinds[0] if len(kinds) == 1 else kinds, **merged}


def _said(texts: Sequence[str]) -> str:
    """Return the leading sentences that all texts share."""
    sentences = zip(*(text.split(". ") for text in texts), strict=False)
    return ". ".join(same[0] for same in takewhile(lambda same: len(set(same)) == 1, sentences))


def _types(schema: Schema) -> Iterator[str]:
    """Yield the types of a schema's values; "" means any type."""
    given = schema.get("type")
    if given is not None:
        yield from [given] if isinstance(given, str) else given
        return
    for key in ("anyOf", "oneOf"):
        for branch in schema.get(key, ()):
            yield from _types(branch)
    if "anyOf" not in schema and "oneOf" not in schema:
        yield ""


def _resolved(schema: Schema, root: Schema) -> Schema:
    """Resolve a reference; keywords beside the reference take precedence."""
    seen: set[str] = set()
    while (name := str(schema.get("$ref", "")).removeprefix("#/$defs/")) and name not in seen:
        seen.add(name)
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**root.get("$defs", {}).get(name, {}), **beside}
    return schema


def _refers(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "$ref" in value or any(_refers(inner) for inner in value.values())
    return isinstance(value, list) and any(_refers(inner) for inner in value)


_NONE: Any = object()
