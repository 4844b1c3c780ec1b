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

from mcp_django.contrib.http_tools.tools import DESCRIPTIVE_KEYWORDS, Schema, move_exclusive_limits
from mcp_django.contrib.openapi.document.references import References
from mcp_django.extensions.calls import jsonrpc, truncate
from mcp_django.extensions.errors import DeclarationError
from mcp_django.extensions.schemas import SchemaChecker, check_schema, make_nullable

REFERENCE_LEVELS = (0, 1, 2, 3, 4, 6, 8)
"""Candidate depths of nested references in a schema."""
MAX_DEPTH = 24
"""Maximum nesting of schemas between two references; deeper ones allow any value."""
MAX_DESCRIPTION_CHARACTERS = 2000
"""Maximum characters of a description."""
MAX_SCHEMA_BYTES = 32 * 1024
"""Maximum bytes of one tool's schema, because models have to read it."""
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_COMPONENT_PREFIX = "#/components/schemas/"


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
        SchemaChecker({"type": "string", "pattern": value})
    except DeclarationError:
        return False
    return True


def _is_anything(value: Any) -> bool:
    return True


_COMMON_KEYWORDS: dict[str, Callable[[Any], bool]] = {
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
_INPUT_KEYWORDS: dict[str, Callable[[Any], bool]] = {
    "pattern": _is_pattern,
    "required": _are_names,
    "uniqueItems": _is_flag,
    "multipleOf": lambda value: _is_number(value) and value > 0,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("minContains", "maxContains"), _is_count),
}
"""Keywords for input only, with their validity checks."""
_INPUT_SUBSCHEMAS = (
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
)


class OpenAPISchemas:
    """The input or output schemas of one tool, with their shared definitions."""

    def __init__(
        self, references: References, *, is_input: bool, max_level: int = REFERENCE_LEVELS[-1], label: str = ""
    ) -> None:
        self._references = references
        self._is_input = is_input
        self._max_level = max_level
        self._label = label
        self._definition_names: dict[str, str] = {}
        self._pending_references: deque[tuple[str, int]] = deque()
        self._level = 0
        self._definitions: Schema = {}
        self.is_complete = True
        """False if a reference was left out, because it was nested too deeply."""

    def translate(self, schema: Any) -> Schema:
        """Translate a schema. Raises DeclarationError for an invalid reference."""
        self._level = 0
        return self._translate(schema, 0)

    def build_definitions(self) -> Schema:
        """Build the definitions of all references so far: the tool's `$defs`."""
        while self._pending_references:
            reference, self._level = self._pending_references.popleft()
            node = self._references.get_target(reference, self._label)
            self._definitions[self._definition_names[reference]] = self._translate(node, 0)
        return self._definitions

    def is_included(self, schema: Any) -> bool:
        """Return True if a property belongs to the input or output, respectively."""
        try:
            resolved = self._references.resolve(schema, self._label) if isinstance(schema, dict) else {}
        except DeclarationError:
            return True
        return resolved.get("readOnly" if self._is_input else "writeOnly") is not True

    def _translate(self, schema: Any, depth: int) -> Schema:
        if isinstance(schema, bool):
            return {} if schema else {"not": {}}
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return {}
        if "$ref" in schema:
            return self._translate_reference(schema, depth)

        translated: Schema = {
            key: schema[key] for key, fits in _COMMON_KEYWORDS.items() if key in schema and fits(schema[key])
        }
        if "description" in translated:
            translated["description"] = truncate(translated["description"], MAX_DESCRIPTION_CHARACTERS)
        if isinstance(schema.get("examples"), list):
            translated["examples"] = schema["examples"]
        elif "example" in schema:
            translated["examples"] = [schema["example"]]
        if self._is_input:
            translated |= {
                key: schema[key] for key, fits in _INPUT_KEYWORDS.items() if key in schema and fits(schema[key])
            }
            move_exclusive_limits(schema, translated)

        translated |= self._translate_subschemas(schema, depth)
        if "required" in translated:
            own = schema.get("properties")
            own = own if isinstance(own, Mapping) else {}
            translated["required"] = [name for name in translated["required"] if self.is_included(own.get(name, {}))]

        return make_nullable(translated) if schema.get("nullable") is True else translated

    def _translate_subschemas(self, schema: Mapping[str, Any], depth: int) -> Schema:
        translated: Schema = {}
        properties = schema.get("properties")
        if isinstance(properties, dict):
            shown = {name: inner for name, inner in properties.items() if self.is_included(inner)}
            translated["properties"] = {name: self._translate(inner, depth + 1) for name, inner in shown.items()}
        if isinstance(schema.get("items"), dict | bool):
            translated["items"] = self._translate(schema["items"], depth + 1)
        for key in ("patternProperties", "prefixItems", "dependentSchemas", "dependentRequired"):
            translated |= self._translate_keyword(key, schema.get(key), depth)

        extra = schema.get("additionalProperties")
        if isinstance(extra, dict) or (isinstance(extra, bool) and (self._is_input or extra)):
            translated["additionalProperties"] = extra if isinstance(extra, bool) else self._translate(extra, depth + 1)
        for key in ("allOf", "anyOf", "oneOf"):
            choices = schema.get(key)
            if isinstance(choices, list) and choices:
                alternatives = [self._translate_alternative(schema, inner, depth) for inner in choices]
                # Alternatives of OpenAPI may overlap: 1 is an integer and a number.
                translated["anyOf" if key == "oneOf" and "anyOf" not in translated else key] = alternatives

        if self._is_input:
            translated |= {key: self._translate(schema[key], depth + 1) for key in _INPUT_SUBSCHEMAS if key in schema}

        return translated

    def _translate_keyword(self, key: str, value: Any, depth: int) -> Schema:
        """Translate rare keywords that contain several schemas."""
        if key == "prefixItems" and isinstance(value, list) and value:
            return {key: [self._translate(inner, depth + 1) for inner in value]}
        if not isinstance(value, Mapping) or (key.startswith("dependent") and not self._is_input):
            return {}
        if key == "dependentRequired":
            return {key: {name: names for name, names in value.items() if _are_names(names)}}
        if key == "patternProperties":
            value = {pattern: inner for pattern, inner in value.items() if _is_pattern(pattern)}
        return {key: {name: self._translate(inner, depth + 1) for name, inner in value.items()}} if value else {}

    def _translate_reference(self, schema: Mapping[str, Any], depth: int) -> Schema:
        reference = schema["$ref"]
        target = self._references.get_target(reference, self._label)
        overrides: Schema = {str(key): schema[key] for key in DESCRIPTIVE_KEYWORDS if isinstance(schema.get(key), str)}
        name = self._definition_names.get(reference)
        if name is None:
            if self._level >= self._max_level:
                self.is_complete = False
                kind = target.get("type") if isinstance(target, Mapping) else None
                if _is_type(kind) and not target.get("nullable"):
                    overrides["type"] = kind
                return overrides
            name = self._definition_names[reference] = _pick_definition_name(
                reference, set(self._definition_names.values())
            )
            self._pending_references.append((reference, self._level + 1))

        translated: Schema = {"$ref": f"#/$defs/{name}", **overrides}
        return make_nullable(translated) if schema.get("nullable") is True else translated

    def _translate_alternative(self, schema: Mapping[str, Any], inner: Any, depth: int) -> Schema:
        """Translate an alternative; a discriminator restricts it to its values."""
        translated = self._translate(inner, depth + 1)
        discriminator = schema.get("discriminator")
        reference = inner.get("$ref") if isinstance(inner, Mapping) else None
        if not self._is_input or not isinstance(discriminator, Mapping) or not isinstance(reference, str):
            return translated
        name, mapping = discriminator.get("propertyName"), discriminator.get("mapping")
        if not isinstance(name, str) or "$ref" not in translated:
            return translated
        short = reference.removeprefix(_COMPONENT_PREFIX)
        mapping = mapping if isinstance(mapping, Mapping) else {}
        values = [value for value, target in mapping.items() if target in (reference, short)] or [short]
        return {**translated, "properties": {name: {"enum": values}}, "required": [name]}


def build_checked_schema(
    references: References,
    label: str,
    build: Callable[[OpenAPISchemas], Schema],
    *,
    is_input: bool,
    wrap: Callable[[Schema], Schema] = lambda schema: schema,
    shorten: Callable[[Schema], Schema] = lambda schema: schema,
) -> tuple[Schema, SchemaChecker] | None:
    """Build a schema with the deepest references for which it is small and simple enough.

    `wrap` completes the built schema. `shorten` returns the form for clients, whose size counts; the whole schema is
    checked. Returns None if no schema is simple enough.

    Raises DeclarationError for an invalid reference.
    """
    candidates: list[Schema] = []
    for levels in REFERENCE_LEVELS:
        schemas = OpenAPISchemas(references, is_input=is_input, max_level=levels, label=label)
        schema = build(schemas)
        if definitions := schemas.build_definitions():
            schema = {**schema, "$defs": definitions}
        if len(jsonrpc.dumps(shorten(schema))) > MAX_SCHEMA_BYTES:
            break
        candidates.append(schema)
        if schemas.is_complete:
            break

    for candidate in reversed(candidates):
        schema = wrap(candidate)
        try:
            return shorten(schema), check_schema(schema, label)
        except DeclarationError:
            continue  # Too complex: try fewer levels.
    return None


def _pick_definition_name(reference: str, taken: set[str]) -> str:
    """Pick an unused name for a definition: the last step of its pointer."""
    plain = re.sub(r"[^A-Za-z0-9_.\-]+", "_", reference.rpartition("/")[2])[:64] or "Schema"
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain}_{number}", number + 1
    return name
