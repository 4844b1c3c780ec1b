"""Access to drf-spectacular: its description of an action.

It is used if drf-spectacular provides the view's schema class. OpenAPI schemas are converted to JSON Schema. References
are resolved, `nullable` becomes a null type, and read-only fields are removed from inputs.
"""

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rest_framework import serializers

from mcp_django.contrib.http_tools.bodies import is_json
from mcp_django.contrib.http_tools.parameters import OperationParameter
from mcp_django.contrib.http_tools.tools import Schema, move_exclusive_limits
from mcp_django.contrib.rest.requests.query_params import parse_openapi_parameter
from mcp_django.contrib.rest.schema.fields import FILE_SCHEMA, is_file
from mcp_django.contrib.rest.schema.serializers import build_body_schema
from mcp_django.extensions.calls import get_logger
from mcp_django.extensions.errors import find_database_failure
from mcp_django.extensions.schemas import ANNOTATION_KEYWORDS, LIMIT_KEYWORDS, JSONMapping, make_nullable, strip_null

try:
    from drf_spectacular.drainage import GENERATOR_STATS
    from drf_spectacular.openapi import AutoSchema
    from drf_spectacular.plumbing import ComponentIdentity, ComponentRegistry

    SCHEMA_CLASSES: tuple[type[Any], ...] = (AutoSchema,)
except ImportError:
    SCHEMA_CLASSES, ComponentIdentity, ComponentRegistry = (), type, object  # type: ignore[assignment,misc]

logger = get_logger("mcp_django.rest")
MAX_SCHEMA_DEPTH = 12
"""Maximum nesting of described schemas; deeper schemas accept anything."""
_COPIED_KEYWORDS = frozenset(
    {"type", "format", "enum", "const", "title", "description", "default", "deprecated", "required", "pattern"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"}
    | {"minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"}
)


class SharedComponents(ComponentRegistry):
    """Components of several actions, so that each serializer is described once.

    drf-spectacular names a component after its class, and keeps the first of two classes of one name. The operation of
    the second one is described apart here.
    """

    def __init__(self) -> None:
        super().__init__()
        self._has_conflict = False

    def generate(self, make_operation: Callable[[ComponentRegistry], Any]) -> tuple[Any, bool]:
        """Return the operation, and False if it uses another class of a known name."""
        known = dict(self._components)
        self._has_conflict = False
        is_complete = False
        try:
            operation = make_operation(self)
            is_complete = not self._has_conflict
        finally:
            if not is_complete:
                self._components = known  # without components that refer to the other class, or lack a schema
        return operation, is_complete

    @property
    def schemas(self) -> JSONMapping:
        """Schemas of the components by name."""
        return {name: component.schema for (name, kind), component in self._components.items() if kind == "schemas"}

    def __contains__(self, component: Any) -> bool:
        known = self._components.get(component.key)
        if known is not None and _get_identity(known.object) != _get_identity(component.object):
            self._has_conflict = True
        return known is not None


def _get_identity(described: Any) -> Any:
    return described if isinstance(described, type | ComponentIdentity) else type(described)


@dataclass(frozen=True, slots=True)
class SpectacularOperation:
    """Description of one action by drf-spectacular."""

    query: Mapping[str, OperationParameter]
    body: Schema | None
    """Schema of the request's body; None without body."""
    response: Schema | None
    """Schema of the response; None if not described."""
    description: str = ""


def describe_operation(
    view: Any, function: Any, path: str, method: str, shared: "SharedComponents | None" = None
) -> SpectacularOperation | None:
    """Describe an action, or return None if drf-spectacular cannot.

    It cannot if the view, or the `function` that handles the action, has another schema class. The same holds if it
    excludes the action, or fails. A failure of the database is raised, because it ends.

    `path` is in OpenAPI's form: "/books/{id}/". The view is prepared as for a request. `shared` are the components of
    actions described before, by the same thread.
    """
    # @extend_schema stores a class on the function, as drf_spectacular.generators.SchemaGenerator.create_view expects.
    schema_source = getattr(function, "kwargs", {}).get("schema") or view.schema
    schema = (
        schema_source() if isinstance(schema_source, type) else copy.copy(schema_source)
    )  # copied, because a schema object stores state
    if not isinstance(schema, SCHEMA_CLASSES):
        return None
    schema.view = view

    try:
        with GENERATOR_STATS.silence():
            operation, components = _generate(schema, path, method, shared)
    except Exception as problem:
        if find_database_failure(problem) is not None:
            raise
        logger.warning("drf-spectacular failed to describe an action: %s %s", method.upper(), path, exc_info=True)
        return None
    if operation is None:
        return None

    entries = [entry for entry in operation.get("parameters", ()) if entry.get("in") == "query"]
    inputs, outputs = _SchemaTranslator(components, is_input=True), _SchemaTranslator(components, is_input=False)
    query = [
        parse_openapi_parameter({**entry, "schema": inputs.translate(entry.get("schema", {}))}) for entry in entries
    ]
    body = _translate_body(operation.get("requestBody"), inputs)
    return SpectacularOperation(
        {parameter.name: parameter for parameter in query},
        _replace_file_fields(body, schema),
        _translate_response(operation.get("responses", {}), outputs),
        str(operation.get("description") or operation.get("summary") or ""),
    )


def _translate_body(body: JSONMapping | None, translator: "_SchemaTranslator") -> Schema | None:
    contents = (body or {}).get("content", {})
    # Prefer multipart: a form describes files, JSON does not.
    chosen = next((c for m, c in contents.items() if m.startswith("multipart/")), None)
    chosen = chosen or next(iter(contents.values()), None)
    return None if chosen is None else dict(translator.translate(chosen.get("schema", {})))


def _generate(schema: Any, path: str, method: str, shared: SharedComponents | None) -> tuple[Any, JSONMapping]:
    """Return the operation, and the components that it may refer to."""
    # drf-spectacular asks for it several times, and a serializer of a project may query the database.
    schema.get_response_serializers = functools.cache(schema.get_response_serializers)
    make_operation = functools.partial(schema.get_operation, path, path, "", method)
    if shared is not None:
        operation, is_complete = shared.generate(make_operation)
        if is_complete:
            return operation, shared.schemas
    registry = SharedComponents()
    return make_operation(registry), registry.schemas


def _replace_file_fields(body: Schema | None, schema: Any) -> Schema | None:
    """Return the body with files in its file fields.

    drf-spectacular describes them as URLs unless COMPONENT_SPLIT_REQUEST is set. The serializer is asked only if a
    property may be one.
    """
    properties = (body or {}).get("properties", {})
    if body is None or not any(strip_null(inner).get("format") == "uri" for inner in properties.values()):
        return body
    files = {name: inner for name, inner in _find_file_fields(schema).items() if name in properties}
    return {**body, "properties": {**properties, **files}}


def _find_file_fields(schema: Any) -> dict[str, Schema]:
    """Return the file fields of the declared request.

    The value is a serializer, or a mapping of media types to serializers.
    """
    declared = schema.get_request_serializer()
    if isinstance(declared, Mapping):
        forms = [one for media_type, one in declared.items() if str(media_type).startswith("multipart/")]
        declared = next(iter(forms), None)
    if isinstance(declared, type) and issubclass(declared, serializers.Serializer):
        declared = declared()
    if not isinstance(declared, serializers.Serializer):
        return {}
    return {name: inner for name, inner in build_body_schema(declared)["properties"].items() if is_file(inner)}


def _translate_response(responses: JSONMapping, translator: "_SchemaTranslator") -> Schema | None:
    for status, response in sorted(responses.items(), key=lambda item: str(item[0])):
        if str(status).startswith("2"):
            for media_type, content in response.get("content", {}).items():
                if is_json(media_type):
                    return dict(translator.translate(content.get("schema", {})))
    return None


def _simplify(schema: Schema) -> Schema:
    """Return the schema without an `allOf` of one schema, and without `anyOf` inside `anyOf`.

    drf-spectacular writes both, because a reference of OpenAPI 3.0 allows nothing beside it.
    """
    if len(schema.get("allOf", ())) == 1 and schema.keys() - ANNOTATION_KEYWORDS == {"allOf"}:
        return {**schema["allOf"][0], **{key: value for key, value in schema.items() if key != "allOf"}}
    if "anyOf" not in schema:
        return schema
    branches: list[Any] = []
    for branch in schema["anyOf"]:
        inner = branch["anyOf"] if isinstance(branch, dict) and branch.keys() == {"anyOf"} else [branch]
        branches += [one for one in inner if one not in branches]
    return {**schema, "anyOf": branches}


@dataclass(frozen=True, slots=True)
class _SchemaTranslator:
    """Converter of OpenAPI schemas to JSON Schema. No property of an output is required."""

    components: JSONMapping
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
        for keyword in LIMIT_KEYWORDS & translated.keys():
            if not isinstance(translated[keyword], int | float | Decimal):
                del translated[keyword]  # such as a date, which JSON Schema cannot limit
        move_exclusive_limits(schema, translated)
        translated = _simplify(translated | self._translate_inner(schema, depth + 1))
        return make_nullable(translated) if schema.get("nullable") else translated

    def _translate_inner(self, schema: JSONMapping, depth: int) -> Schema:
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

    def _is_included(self, schema: JSONMapping) -> bool:
        return not schema.get("readOnly" if self.is_input else "writeOnly")
