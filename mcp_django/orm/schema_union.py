"""Union of several models' JSON Schemas, valid for all of them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

Schema = Mapping[str, Any]

_ANNOTATION_KEYWORDS = frozenset({"title", "description", "default", "examples"})
_LIMIT_KEYWORDS = frozenset(
    {"format", "contentEncoding", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"}
)


def merge_argument_schemas(schemas: Sequence[Schema]) -> dict[str, Any]:
    """Merge the input schemas of several tools.

    The result accepts all arguments that any of the tools accepts. Each property keeps the constraints common to all
    tools that have it. Arguments required by all tools are required.
    """
    names = dict.fromkeys(name for schema in schemas for name in schema.get("properties", {}))
    return {
        "type": "object",
        "properties": {name: _merge_property(name, schemas) for name in names},
        "required": _intersect_required(schemas),
        "additionalProperties": False,
    }


def merge_result_schemas(schemas: Sequence[Schema]) -> dict[str, Any]:
    """Merge the output schemas of several tools to their common part.

    Each result of these tools is valid under the merged schema.
    """
    first, *others = schemas
    names = [
        name for name in first.get("properties", {}) if all(name in other.get("properties", {}) for other in others)
    ]
    schema: dict[str, Any] = {"type": "object", "properties": {name: _merge_property(name, schemas) for name in names}}
    return {**schema, "required": [name for name in _intersect_required(schemas) if name in names]}


def _intersect_required(schemas: Sequence[Schema]) -> list[str]:
    first, *others = schemas
    return [name for name in first.get("required", ()) if all(name in other.get("required", ()) for other in others)]


def _merge_property(name: str, schemas: Sequence[Schema]) -> dict[str, Any]:
    owners = [schema for schema in schemas if name in schema.get("properties", {})]
    property_schemas = [schema["properties"][name] for schema in owners]
    has_no_reference = not any(_has_reference(schema) for schema in property_schemas)
    if has_no_reference and all(schema == property_schemas[0] for schema in property_schemas):
        return dict(property_schemas[0])
    merged = _merge_schemas(
        [_resolve_reference(one, schema) for one, schema in zip(property_schemas, owners, strict=True)]
    )
    # Keywords beside the reference describe the argument itself.
    return {
        **{
            key: property_schemas[0][key]
            for key in _ANNOTATION_KEYWORDS
            if all(one.get(key, _MISSING) == property_schemas[0].get(key) for one in property_schemas)
        },
        **merged,
    }


def _merge_schemas(schemas: Sequence[Schema]) -> dict[str, Any]:
    """Merge schemas to their common types, limits, items and keys.

    Items and properties are merged if all schemas have the same shape. `models_describe` returns the differences
    between models.
    """
    first = schemas[0]
    if all(schema == first for schema in schemas) and not _has_reference(first):
        return dict(first)
    merged = {
        key: first[key]
        for key in first
        if (key in _ANNOTATION_KEYWORDS or key in _LIMIT_KEYWORDS)
        and all(other.get(key, _MISSING) == first[key] for other in schemas)
    }

    types = dict.fromkeys(kind for schema in schemas for kind in _iter_types(schema))
    if "" in types:
        return merged
    if "integer" in types and "number" in types:
        del types["integer"]

    if description := _get_common_sentences([schema.get("description", "") for schema in schemas]):
        merged["description"] = description
    if all("items" in schema for schema in schemas):
        merged["items"] = _merge_schemas([schema["items"] for schema in schemas])
    keys = first.get("properties", {}).keys()
    if keys and all(schema.get("properties", {}).keys() == keys for schema in schemas):
        merged["properties"] = {key: _merge_schemas([schema["properties"][key] for schema in schemas]) for key in keys}
        merged["required"] = _intersect_required(schemas)

    kinds = list(types)
    return {"type": kinds[0] if len(kinds) == 1 else kinds, **merged}


def _get_common_sentences(texts: Sequence[str]) -> str:
    """Return the leading sentences that all texts share."""
    sentences = zip(*(text.split(". ") for text in texts), strict=False)
    return ". ".join(same[0] for same in takewhile(lambda same: len(set(same)) == 1, sentences))


def _iter_types(schema: Schema) -> Iterator[str]:
    """Yield the types of a schema's values; "" means any type."""
    declared = schema.get("type")
    if declared is not None:
        yield from [declared] if isinstance(declared, str) else declared
        return
    for key in ("anyOf", "oneOf"):
        for branch in schema.get(key, ()):
            yield from _iter_types(branch)
    if "anyOf" not in schema and "oneOf" not in schema:
        yield ""


def _resolve_reference(schema: Schema, root: Schema) -> Schema:
    """Resolve a reference; keywords beside the reference take precedence."""
    seen: set[str] = set()
    while (name := str(schema.get("$ref", "")).removeprefix("#/$defs/")) and name not in seen:
        seen.add(name)
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**root.get("$defs", {}).get(name, {}), **siblings}
    return schema


def _has_reference(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "$ref" in value or any(_has_reference(inner) for inner in value.values())
    return isinstance(value, list) and any(_has_reference(inner) for inner in value)


_MISSING: Any = object()
