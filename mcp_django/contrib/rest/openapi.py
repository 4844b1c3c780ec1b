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

from mcp_django.contrib.rest.requests.query_params import Parameter, from_openapi
from mcp_django.contrib.rest.requests.request_body import is_json
from mcp_django.contrib.rest.schema.fields import FILE, Schema, is_file, nullable
from mcp_django.contrib.rest.schema.serializers import body_of

try:
    from drf_spectacular.drainage import GENERATOR_STATS
    from drf_spectacular.openapi import AutoSchema
    from drf_spectacular.plumbing import ComponentRegistry

    KINDS: tuple[type[Any], ...] = (AutoSchema,)
except ImportError:
    KINDS = ()

logger = logging.getLogger("mcp_django.rest")
DEPTH = 12
"""Maximum nesting of described schemas; deeper schemas accept anything."""
_KEPT = frozenset(
    {
        "type",
        "format",
        "enum",
        "const",
        "title",
        "description",
        "default",
        "pattern",
        "minimum",
        "maximum",
        "multipleOf",
    }
    | {"minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "required"}
    | {"exclusiveMinimum", "exclusiveMaximum", "deprecated"}
)


@dataclass(frozen=True, slots=True)
class Operation:
    """Description of one action by drf-spectacular."""

    query: Mapping[str, Parameter]
    body: Schema | None
    """Schema of the request's body; None without body."""
    answer: Schema | None
    """Schema of the response; None if not described."""
    description: str = ""


def operation_of(view: Any, function: Any, path: str, method: str) -> Operation | None:
    """Describe an action, or return None if drf-spectacular cannot.

    It cannot if the view, or the `function` that handles the action, has another schema class. The same holds if it
    excludes the action, or fails.

    `path` is in OpenAPI's form: "/books/{id}/". The view is prepared as for a request.
    """
    # @extend_schema stores a class on the function, as drf_spectacular.generators.SchemaGenerator.create_view expects.
    own = getattr(function, "kwargs", {}).get("schema") or view.schema
    schema = own() if isinstance(own, type) else copy.copy(own)  # copied, because a schema object stores state
    if not isinstance(schema, KINDS):
        return None
    schema.view = view

    registry = ComponentRegistry()
    try:
        with GENERATOR_STATS.silence():
            found = schema.get_operation(path, path, "", method, registry)
            components = registry.build({}).get("schemas", {})
            files = _files(schema.get_request_serializer())
    except Exception:
        logger.warning("drf-spectacular failed to describe an action: %s %s", method.upper(), path, exc_info=True)
        return None
    if found is None:
        return None

    entries = [entry for entry in found.get("parameters", ()) if entry.get("in") == "query"]
    translate = _Translation(components)
    return Operation(
        {
            entry["name"]: from_openapi({**entry, "schema": translate.given(entry.get("schema", {}))})
            for entry in entries
        },
        _with_files(_body(found.get("requestBody"), translate), files),
        _answer(found.get("responses", {}), translate),
        str(found.get("description") or found.get("summary") or ""),
    )


def _body(body: Mapping[str, Any] | None, translate: "_Translation") -> Schema | None:
    contents = (body or {}).get("content", {})
    # Prefer multipart: a form describes files, JSON does not.
    chosen = next((c for m, c in contents.items() if m.startswith("multipart/")), None)
    chosen = chosen or next(iter(contents.values()), None)
    return None if chosen is None else translate.given(chosen.get("schema", {}))


def _files(declared: Any) -> dict[str, Schema]:
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
    return {name: schema for name, schema in body_of(declared)["properties"].items() if is_file(schema)}


def _with_files(body: Schema | None, files: Mapping[str, Schema]) -> Schema | None:
    if body is None or not files or "properties" not in body:
        return body
    known = {name: schema for name, schema in files.items() if name in body["properties"]}
    return {**body, "properties": {**body["properties"], **known}}


def _answer(responses: Mapping[str, Any], translate: "_Translation") -> Schema | None:
    for status, response in sorted(responses.items(), key=lambda item: str(item[0])):
        if str(status).startswith("2"):
            for media_type, content in response.get("content", {}).items():
                if is_json(media_type):
                    return translate.returned(content.get("schema", {}))
    return None


class _Translation:
    def __init__(self, components: Mapping[str, Any]) -> None:
        self._components = components

    def given(self, schema: Mapping[str, Any]) -> Schema:
        """Convert the schema of an input."""
        return self._translate(schema, given=True, depth=0)

    def returned(self, schema: Mapping[str, Any]) -> Schema:
        """Convert the schema of an output, in which no property is required."""
        return self._translate(schema, given=False, depth=0)

    def _translate(self, schema: Mapping[str, Any], *, given: bool, depth: int) -> Schema:
        if depth > DEPTH:
            return {}

        if "$ref" in schema:
            name = str(schema["$ref"]).removeprefix("#/components/schemas/")
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**self._components.get(name, {}), **rest}
        if given and schema.get("format") == "binary":
            return {**FILE, **{key: schema[key] for key in ("description",) if key in schema}}

        found: Schema = {key: value for key, value in schema.items() if key in _KEPT}
        if not given:
            found.pop("required", None)
        elif "required" in found:
            found["required"] = [n for n in found["required"] if self._is_shown(schema["properties"].get(n, {}), given)]
        for key in ("minimum", "maximum"):  # OpenAPI 3.0 marks exclusive limits with a boolean
            exclusive = f"exclusive{key.capitalize()}"
            if found.get(exclusive) is True:
                found[exclusive] = found.pop(key)
            elif found.get(exclusive) is False:
                del found[exclusive]
        found |= self._inner(schema, given=given, depth=depth)
        return nullable(found) if schema.get("nullable") else found

    def _inner(self, schema: Mapping[str, Any], *, given: bool, depth: int) -> Schema:
        def translate(inner: Any) -> Any:
            return self._translate(inner, given=given, depth=depth + 1) if isinstance(inner, Mapping) else inner

        found: Schema = {}
        if "properties" in schema:
            shown = {n: inner for n, inner in schema["properties"].items() if self._is_shown(inner, given)}
            found["properties"] = {name: translate(inner) for name, inner in shown.items()}
        for key in ("items", "additionalProperties"):
            if key in schema:
                found[key] = translate(schema[key])
        for key in ("oneOf", "anyOf", "allOf"):
            if key in schema:
                # Alternatives of OpenAPI may overlap: a blank text can be part of two enumerations.
                found["allOf" if key == "allOf" else "anyOf"] = [translate(inner) for inner in schema[key]]
        return found

    def _is_shown(self, schema: Mapping[str, Any], given: bool) -> bool:
        return not schema.get("readOnly" if given else "writeOnly")
