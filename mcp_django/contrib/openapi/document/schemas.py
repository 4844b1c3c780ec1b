"""Translation of OpenAPI schemas into JSON Schema 2020-12, the dialect of tools.

Input schemas omit read-only properties, output schemas write-only ones. `nullable` becomes null, and the flags of 3.0
become limits. References become definitions of the tool's own schema, so that recursive schemas stay finite. Real
documents are often inexact. Invalid keywords are therefore omitted, and output schemas promise little: they require no
member and set no limit.
"""

import functools
import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from mcp_django.contrib.openapi.document.references import References
from mcp_django.protocol import jsonrpc
from mcp_django.schema import DeclarationError
from mcp_django.schema.validation.validation import Checker

Schema = dict[str, Any]
LEVELS = (0, 1, 2, 3, 4, 6, 8)
"""Candidate depths of nested references in a schema."""
DEPTH = 24
"""Maximum nesting of schemas between two references; deeper ones allow any value."""
DESCRIPTION = 2000
"""Maximum characters of a description."""
MAX_BYTES = 32 * 1024
"""Maximum bytes of one tool's schema, because models have to read it."""
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_PREFIX = "#/components/schemas/"
_ABOUT: tuple[str, ...] = ("description", "title")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def _is_type(value: Any) -> bool:
    many = value if isinstance(value, list) else [value]
    return bool(many) and all(isinstance(item, str) and item in _TYPES for item in many)


@functools.lru_cache(maxsize=4096)
def _is_pattern(value: Any) -> bool:
    """Return True if the pattern can be checked here, not only by the remote server."""
    if not isinstance(value, str):
        return False
    try:
        Checker({"type": "string", "pattern": value})
    except DeclarationError:
        return False
    return True


def _is_anything(value: Any) -> bool:
    return True


_SAID: dict[str, Callable[[Any], bool]] = {
    "type": _is_type,
    "enum": lambda value: isinstance(value, list) and bool(value),
    "const": _is_anything,
    "title": _is_text,
    "description": _is_text,
    "default": _is_anything,
    "format": _is_text,
    "deprecated": _is_flag,
    "contentEncoding": _is_text,
    "contentMediaType": _is_text,
}
"""Keywords for input and output, with their validity checks."""
_LIMITS: dict[str, Callable[[Any], bool]] = {
    "pattern": _is_pattern,
    "required": _are_names,
    "uniqueItems": _is_flag,
    "multipleOf": lambda value: _is_number(value) and value > 0,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("minContains", "maxContains"), _is_count),
}
"""Keywords for input only, with their validity checks."""
_ONE_GIVEN = ("not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties", "unevaluatedItems")


class Schemas:
    """The input or output schemas of one tool, with their shared definitions."""

    def __init__(self, references: References, *, given: bool, levels: int = LEVELS[-1], where: str = "") -> None:
        self._references, self._given, self._levels, self._where = references, given, levels, where
        self._names: dict[str, str] = {}
        self._waiting: deque[tuple[str, int]] = deque()
        self._level = 0
        self._definitions: Schema = {}

    def of(self, schema: Any) -> Schema:
        """Translate a schema. Raises DeclarationError for an invalid reference."""
        self._level = 0
        return self._translated(schema, 0)

    def definitions(self) -> Schema:
        """Build the definitions of all references so far: the tool's `$defs`."""
        while self._waiting:
            reference, self._level = self._waiting.popleft()
            node = self._references.at(reference, self._where)
            self._definitions[self._names[reference]] = self._translated(node, 0)
        return self._definitions

    def is_shown(self, schema: Any) -> bool:
        """Return True if a property belongs to the input or output, respectively."""
        try:
            found = self._references.resolved(schema, self._where) if isinstance(schema, Mapping) else {}
        except DeclarationError:
            return True
        return found.get("readOnly" if self._given else "writeOnly") is not True

    def _translated(self, schema: Any, depth: int) -> Schema:
        if isinstance(schema, bool):
            return {} if schema else {"not": {}}
        if not isinstance(schema, Mapping) or depth > DEPTH:
            return {}
        if "$ref" in schema:
            return self._referred(schema, depth)

        found: Schema = {key: schema[key] for key, fits in _SAID.items() if key in schema and fits(schema[key])}
        if "description" in found and len(found["description"]) > DESCRIPTION:
            found["description"] = found["description"][: DESCRIPTION - 1] + "…"
        if isinstance(schema.get("examples"), list):
            found["examples"] = schema["examples"]
        elif "example" in schema:
            found["examples"] = [schema["example"]]
        if self._given:
            found |= {key: schema[key] for key, fits in _LIMITS.items() if key in schema and fits(schema[key])}
            _exclude(schema, found)

        found |= self._inner(schema, depth)
        if "required" in found:
            own = schema.get("properties")
            own = own if isinstance(own, Mapping) else {}
            found["required"] = [name for name in found["required"] if self.is_shown(own.get(name, {}))]

        return nullable(found) if schema.get("nullable") is True else found

    def _inner(self, schema: Mapping[str, Any], depth: int) -> Schema:
        found: Schema = {}
        properties = schema.get("properties")
        if isinstance(properties, Mapping):
            shown = {name: inner for name, inner in properties.items() if self.is_shown(inner)}
            found["properties"] = {name: self._translated(inner, depth + 1) for name, inner in shown.items()}
        if isinstance(schema.get("items"), Mapping | bool):
            found["items"] = self._translated(schema["items"], depth + 1)
        for key in ("patternProperties", "prefixItems", "dependentSchemas", "dependentRequired"):
            found |= self._listed(key, schema.get(key), depth)

        extra = schema.get("additionalProperties")
        if isinstance(extra, Mapping) or (isinstance(extra, bool) and (self._given or extra)):
            found["additionalProperties"] = extra if isinstance(extra, bool) else self._translated(extra, depth + 1)
        for key in ("allOf", "anyOf", "oneOf"):
            choices = schema.get(key)
            if isinstance(choices, list) and choices:
                made = [self._alternative(schema, inner, depth) for inner in choices]
                # Alternatives of OpenAPI may overlap: 1 is an integer and a number.
                found["anyOf" if key == "oneOf" and "anyOf" not in found else key] = made

        if self._given:
            found |= {key: self._translated(schema[key], depth + 1) for key in _ONE_GIVEN if key in schema}

        return found

    def _listed(self, key: str, value: Any, depth: int) -> Schema:
        """Translate rare keywords that contain several schemas."""
        if key == "prefixItems" and isinstance(value, list) and value:
            return {key: [self._translated(inner, depth + 1) for inner in value]}
        if not isinstance(value, Mapping) or (key.startswith("dependent") and not self._given):
            return {}
        if key == "dependentRequired":
            return {key: {name: names for name, names in value.items() if _are_names(names)}}
        if key == "patternProperties":
            value = {pattern: inner for pattern, inner in value.items() if _is_pattern(pattern)}
        return {key: {name: self._translated(inner, depth + 1) for name, inner in value.items()}} if value else {}

    def _referred(self, schema: Mapping[str, Any], depth: int) -> Schema:
        reference = schema["$ref"]
        target = self._references.at(reference, self._where)
        beside: Schema = {str(key): schema[key] for key in _ABOUT if isinstance(schema.get(key), str)}
        name = self._names.get(reference)
        if name is None:
            if self._level >= self._levels:
                kind = target.get("type") if isinstance(target, Mapping) else None
                if _is_type(kind) and not target.get("nullable"):
                    beside["type"] = kind
                return beside
            name = self._names[reference] = _unused(reference, set(self._names.values()))
            self._waiting.append((reference, self._level + 1))

        made: Schema = {"$ref": f"#/$defs/{name}", **beside}
        return nullable(made) if schema.get("nullable") is True else made

    def _alternative(self, schema: Mapping[str, Any], inner: Any, depth: int) -> Schema:
        """Translate an alternative; a discriminator restricts it to its values."""
        made = self._translated(inner, depth + 1)
        discriminator = schema.get("discriminator")
        reference = inner.get("$ref") if isinstance(inner, Mapping) else None
        if not self._given or not isinstance(discriminator, Mapping) or not isinstance(reference, str):
            return made
        name, mapping = discriminator.get("propertyName"), discriminator.get("mapping")
        if not isinstance(name, str) or "$ref" not in made:
            return made
        short = reference.removeprefix(_PREFIX)
        mapping = mapping if isinstance(mapping, Mapping) else {}
        values = [value for value, target in mapping.items() if target in (reference, short)] or [short]
        return {**made, "properties": {name: {"enum": values}}, "required": [name]}


def tellings(make: Callable[[int], Schema]) -> list[Schema]:
    """Build schemas for all reference levels that are small enough, deepest first."""
    found: list[Schema] = []
    for levels in LEVELS:
        made = make(levels)
        if len(jsonrpc.dumps(made)) > MAX_BYTES:
            break
        if found and found[-1] == made:
            break
        found.append(made)
    return found[::-1]


def nullable(schema: Schema) -> Schema:
    """Return the schema extended by null."""
    kind = schema.get("type")
    if kind is None:
        if "enum" in schema:
            return {**schema, "enum": [*schema["enum"], *([] if None in schema["enum"] else [None])]}
        about = {key: schema[key] for key in _ABOUT if key in schema}
        rest = {key: value for key, value in schema.items() if key not in about}
        return {"anyOf": [rest, {"type": "null"}], **about} if rest else schema
    kinds = kind if isinstance(kind, list) else [kind]
    found = {**schema, "type": [*kinds, *([] if "null" in kinds else ["null"])]}
    if "enum" in schema and None not in schema["enum"]:
        found["enum"] = [*schema["enum"], None]
    return found


def _exclude(schema: Mapping[str, Any], found: Schema) -> None:
    """Translate the flags of OpenAPI 3.0 for exclusive limits."""
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if schema.get(exclusive) is True and limit in found:
            found[exclusive] = found.pop(limit)


def _unused(reference: str, taken: set[str]) -> str:
    """Pick an unused name for a definition: the last step of its pointer."""
    plain = re.sub(r"[^A-Za-z0-9_.\-]+", "_", reference.rpartition("/")[2])[:64] or "Schema"
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain}_{number}", number + 1
    return name
