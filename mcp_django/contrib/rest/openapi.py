"""Access to drf-spectacular: its description of an action.

It is used if drf-spectacular provides the view's schema class. OpenAPI schemas are converted to JSON Schema. References
are resolved, `nullable` becomes a null type, and read-only fields are removed from inputs.
"""

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rest_framework import serializers

from mcp_django.contrib.http_tools.bodies import is_json
from mcp_django.contrib.http_tools.parameters import OperationParameter
from mcp_django.contrib.http_tools.tools import Schema, move_exclusive_limits
from mcp_django.contrib.rest.requests.query_params import parse_openapi_parameter
from mcp_django.contrib.rest.schema.fields import FILE_SCHEMA, is_file
from mcp_django.contrib.rest.schema.serializers import build_body_schema
from mcp_django.schema import make_nullable

try:
    from drf_spectacular.drainage import GENERATOR_STATS
    from drf_spectacular.openapi import AutoSchema
    from drf_spectacular.plumbing import ComponentRegistry

    SCHEMA_CLASSES: tuple[type[Any], ...] = (AutoSchema,)
except ImportError:
    SCHEMA_CLASSES = ()

logger = logging.getLogger("mcp_django.rest")
MAX_SCHEMA_DEPTH = 12
"""Maximum nesting of described schemas; deeper schemas accept anything."""
_COPIED_KEYWORDS = frozenset(
    {"type", "format", "enum", "const", "title", "description", "default", "deprecated", "required", "pattern"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"}
    | {"minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"}
)


@dataclass(frozen=True, slots=True)
class SpectacularOperation:
    """Description of one action by drf-spectacular."""

    query: Mapping[str, OperationParameter]
    body: Schema | None
    """Schema of the request's body; None without body."""
    response: Schema | None
    """Schema of the response; None if not described."""
    description: str = ""


def describe_operation(view: Any, function: Any, path: str, method: str) -> SpectacularOperation | None:
    """Describe an action, or return None if drf-spectacular cannot.

    It cannot if the view, or the `function` that handles the action, has another schema class. The same holds if it
    excludes the action, or fails.

    `path` is in OpenAPI's form: "/books/{id}/". The view is prepared as for a request.
    """
    # @extend_schema stores a class on the function, as drf_spectacular.generators.SchemaGenerator.create_view expects.
    schema_source = getattr(function, "kwargs", {}).get("schema") or view.schema
    schema = (
        schema_source() if isinstance(schema_source, type) else copy.copy(schema_source)
    )  # copied, because a schema object stores state
    if not isinstance(schema, SCHEMA_CLASSES):
        return None
    schema.view = view

    registry = ComponentRegistry()
    try:
        with GENERATOR_STATS.silence():
            operation = schema.get_operation(path, path, "", method, registry)
            components = registry.build({}).get("schemas", {})
            files = _find_file_fields(schema.get_request_serializer())
    except Exception:
        logger.warning("drf-spectacular failed to describe an action: %s %s", method.upper(), path, exc_info=True)
        return None
    if operation is None:
        return None

    entries = [entry for entry in operation.get("parameters", ()) if entry.get("in") == "query"]
    inputs, outputs = _SchemaTranslator(components, is_input=True), _SchemaTranslator(components, is_input=False)
    query = [
        parse_openapi_parameter({**entry, "schema": inputs.translate(entry.get("schema", {}))}) for entry in entries
    ]
    return SpectacularOperation(
        {parameter.name: parameter for parameter in query},
        _replace_file_fields(_translate_body(operation.get("requestBody"), inputs), files),
        _translate_response(operation.get("responses", {}), outputs),
        str(operation.get("description") or operation.get("summary") or ""),
    )


def _translate_body(body: Mapping[str, Any] | None, translator: "_SchemaTranslator") -> Schema | None:
    contents = (body or {}).get("content", {})
    # Prefer multipart: a form describes files, JSON does not.
    chosen = next((c for m, c in contents.items() if m.startswith("multipart/")), None)
    chosen = chosen or next(iter(contents.values()), None)
    return None if chosen is None else dict(translator.translate(chosen.get("schema", {})))


def _find_file_fields(declared: Any) -> dict[str, Schema]:
    """Return the file fields of a request body.

    drf-spectacular describes them as URLs unless COMPONENT_SPLIT_REQUEST is set. `declared` is a serializer, or a
    mapping of media types to serializers.
    """
    if isinstance(declared, Mapping):
        forms = [one for media_type, one in declared.items() if str(media_type).startswith("multipart/")]
        declared = next(iter(forms), None)
    if isinstance(declared, type) and issubclass(declared, serializers.Serializer):
        declared = declared()
    if not isinstance(declared, serializers.Serializer):
        return {}
    return {name: schema for name, schema in build_body_schema(declared)["properties"].items() if is_file(schema)}


def _replace_file_fields(body: Schema | None, files: Mapping[str, Schema]) -> Schema | None:
    if body is None or not files or "properties" not in body:
        return body
    known = {name: schema for name, schema in files.items() if name in body["properties"]}
    return {**body, "properties": {**body["properties"], **known}}


def _translate_response(responses: Mapping[str, Any], translator: "_SchemaTranslator") -> Schema | None:
    for status, response in sorted(responses.items(), key=lambda item: str(item[0])):
        if str(status).startswith("2"):
            for media_type, content in response.get("content", {}).items():
                if is_json(media_type):
                    return dict(translator.translate(content.get("schema", {})))
    return None


@dataclass(frozen=True, slots=True)
class _SchemaTranslator:
    """Converter of OpenAPI schemas to JSON Schema. No property of an output is required."""

    components: Mapping[str, Any]
    is_input: bool

    def translate(self, schema: Any, depth: int = 0) -> Any:
        """Convert a schema; other values stay."""
        if not isinstance(schema, Mapping):
            return schema
        if depth > MAX_SCHEMA_DEPTH:
            return {}

        if "$ref" in schema:
            name = str(schema["$ref"]).removeprefix("#/components/schemas/")
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**self.components.get(name, {}), **rest}
        if self.is_input and schema.get("format") == "binary":
            return {**FILE_SCHEMA, **{key: schema[key] for key in ("description",) if key in schema}}

        translated: Schema = {key: value for key, value in schema.items() if key in _COPIED_KEYWORDS}
        if not self.is_input:
            translated.pop("required", None)
        elif "required" in translated:
            names = translated["required"]
            translated["required"] = [n for n in names if self._is_included(schema["properties"].get(n, {}))]
        move_exclusive_limits(schema, translated)
        translated |= self._translate_inner(schema, depth + 1)
        return make_nullable(translated) if schema.get("nullable") else translated

    def _translate_inner(self, schema: Mapping[str, Any], depth: int) -> Schema:
        translated: Schema = {}
        if "properties" in schema:
            shown = {name: inner for name, inner in schema["properties"].items() if self._is_included(inner)}
            translated["properties"] = {name: self.translate(inner, depth) for name, inner in shown.items()}
        for key in ("items", "additionalProperties"):
            if key in schema:
                translated[key] = self.translate(schema[key], depth)
        for key in ("oneOf", "anyOf", "allOf"):
            if key in schema:
                # Alternatives of OpenAPI may overlap: a blank text can be part of two enumerations.
                translated["allOf" if key == "allOf" else "anyOf"] = [
                    self.translate(inner, depth) for inner in schema[key]
                ]
        return translated

    def _is_included(self, schema: Mapping[str, Any]) -> bool:
        return not schema.get("readOnly" if self.is_input else "writeOnly")
