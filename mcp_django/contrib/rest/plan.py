"""Request plan: conversion of a tool's arguments to a request.

A plan is compiled once per URLconf. Arguments are flat: path arguments, query parameters and fields of the body, side
by side. The body is a single argument `body` if its fields are unknown or conflict with other names. A body that is an
object or a list of such objects has the fields of the object, and `items` for the list.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest
from django.urls import ResolverMatch

from mcp_django.contrib.http_tools.argument_layout import ArgumentLayout, build_argument_layout
from mcp_django.contrib.http_tools.parameters import OperationParameter, Pairs
from mcp_django.contrib.http_tools.tools import Schema
from mcp_django.contrib.rest.actions import ViewAction
from mcp_django.contrib.rest.requests.page_links import ArrangeArguments, PageLinks
from mcp_django.contrib.rest.requests.request_body import BodyWriter, decode_upload
from mcp_django.contrib.rest.requests.versioning import ApiVersion
from mcp_django.contrib.rest.routes import ViewRoute, map_namespaces, to_path_text
from mcp_django.contrib.rest.schema.fields import FILE_SCHEMA, is_file
from mcp_django.extensions.errors import ArgumentError
from mcp_django.extensions.internal_requests import RequestContent
from mcp_django.extensions.schemas import JSONMapping, JSONObject, strip_null

BODY_ARGUMENT = "body"
ITEMS_ARGUMENT = "items"
_SCALAR_TYPES = ["string", "number", "boolean", "null"]
_PERMISSIVE_SCHEMA: Schema = {"type": [*_SCALAR_TYPES, "array"], "items": {"type": _SCALAR_TYPES}}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestPlan:
    """Compiled request of one action, with the schemas of its arguments."""

    action: ViewAction
    route: ViewRoute | None
    callback: Callable[..., Any]
    """The view, authenticating as the call's principal."""
    path: Mapping[str, str]
    """Argument → name in the path."""
    path_schemas: Mapping[str, Schema]
    query: Mapping[str, OperationParameter]
    version: ApiVersion
    body: Schema | None
    """Schema of the body; None without body."""
    is_body_flat: bool
    """True if the body's fields are separate arguments."""
    is_body_repeatable: bool
    """True if the body may also be a list of objects with these fields, given as `items`."""
    writer: BodyWriter
    media_types: tuple[str, ...]
    """Media types that the view renders, JSON first."""
    response_schema: Schema | None
    """Output schema before it is wrapped; None if the output is unknown."""
    description: str = ""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Default values of query parameters."""
    page_links: PageLinks | None = None
    """Conversion of links to other pages; None for an action without pages."""

    @property
    def body_fields(self) -> Mapping[str, Schema]:
        """Return the body's fields that are separate arguments, with their schemas."""
        return (self.body or {}).get("properties", {}) if self.is_body_flat else {}

    def decode_files(self, arguments: JSONMapping) -> JSONObject:
        """Return the arguments with a `FormPart` for each file.

        Raises:
            ArgumentError: a file is not valid base64.
        """
        files = {name for name, schema in self.body_fields.items() if is_file(schema)}
        return {name: decode_upload(value, name) if name in files else value for name, value in arguments.items()}

    def build_layout(self) -> ArgumentLayout:
        """Return the layout of the tool's arguments."""
        filters = [name for name, one in self.query.items() if not one.is_required]
        return build_argument_layout(self.build_schema()["properties"], filters)

    def build_schema(self) -> Schema:
        """Return the full schema of the arguments of the operation."""
        properties: dict[str, Schema] = dict(self.path_schemas)
        properties |= {name: parameter.schema for name, parameter in self.query.items()}
        required = [*self.path, *(name for name, parameter in self.query.items() if parameter.is_required)]
        if self.version.is_argument:
            properties[self.version.param] = self.version.schema
            if self._needs_version():
                required.append(self.version.param)

        if self.is_body_repeatable:
            properties |= self._build_repeatable_body()
        elif self.is_body_flat:
            properties |= self.body_fields
            required += (self.body or {}).get("required", [])
        elif self.body is not None:
            properties[BODY_ARGUMENT] = self.body or {"description": "The request's JSON body"}
            if self.body.get("required") or self.body.get("minItems"):
                required.append(BODY_ARGUMENT)

        schema: Schema = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        return {**schema, "additionalProperties": False}

    def _build_repeatable_body(self) -> dict[str, Schema]:
        """Return the fields of one object, and the argument for several.

        No field is required in the schema, because a list replaces all of them. Their descriptions have this
        requirement instead: several hosts reject alternatives at the root of a schema.
        """
        required = set((self.body or {}).get("required", ()))
        fields = {
            name: _add_sentence(schema, f"Required without `{ITEMS_ARGUMENT}`.") if name in required else schema
            for name, schema in self.body_fields.items()
        }
        text = "Several at once: objects with the fields that are arguments of this tool, in place of these arguments"
        items: Schema = {"type": "object", **({"required": sorted(required)} if required else {})}
        return {**fields, ITEMS_ARGUMENT: {"type": "array", "items": items, "minItems": 1, "description": text}}

    def build_gate_schema(self) -> Schema:
        """Return the schema that is checked before the view runs.

        It only checks names and values that cannot be part of a request. The view validates the rest, in its own order
        (permissions and throttles first) and with its own messages.
        """
        properties: dict[str, Schema] = {name: {"type": ["string", "integer"]} for name in self.path}
        properties |= dict.fromkeys(self.query, _PERMISSIVE_SCHEMA)

        if self.version.is_argument:
            properties[self.version.param] = {"type": ["string", "null"]}
        for name, schema in self.body_fields.items():
            properties[name] = _build_file_gate(schema) if is_file(schema) else {}
        if self.is_body_repeatable:
            properties[ITEMS_ARGUMENT] = {"type": "array"}
        if not self.is_body_flat and self.body is not None:
            properties[BODY_ARGUMENT] = {}

        required = [*self.path, *([self.version.param] if self._needs_version() else [])]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def _needs_version(self) -> bool:
        version = self.version
        return version.is_argument and version.location == "path" and version.default is None

    def build_body(self, arguments: JSONMapping) -> RequestContent:
        """Return the body for the arguments.

        Raises:
            ArgumentError: fields of one object are given beside a list.
        """
        if self.body is None:
            return RequestContent()
        if not self.is_body_flat:
            return self.writer.write(arguments[BODY_ARGUMENT]) if BODY_ARGUMENT in arguments else RequestContent()
        given = {name: value for name, value in arguments.items() if name in self.body_fields}
        if self.is_body_repeatable and ITEMS_ARGUMENT in arguments:
            if given:
                raise ArgumentError(f"{ITEMS_ARGUMENT} replaces {', '.join(given)}; put them into each object of it")
            return self.writer.write(arguments[ITEMS_ARGUMENT])
        return self.writer.write(given)

    def build_query(self, arguments: JSONMapping) -> str:
        """Return the query string."""
        pairs = [pair for name, one in self.query.items() for pair in _encode_query_value(one, arguments.get(name))]
        others = {name: value for name, value in self.defaults.items() if arguments.get(name) is None}
        if self.version.location == "query" and (version := self._choose_version(arguments)) is not None:
            others[self.version.param] = version
        return "&".join([*(f"{name}={text}" for name, text in pairs), *([urlencode(others)] if others else [])])

    def build_converter(
        self,
        request: HttpRequest,
        arguments: JSONMapping,
        arrange: ArrangeArguments,
    ) -> Callable[[object], object] | None:
        """Return the conversion of the page that answers `request`; None for an action without pages.

        `arrange` converts arguments of the operation to those of the tool.
        """
        if self.page_links is None:
            return None
        return functools.partial(self.page_links.convert, request=request, arguments=arguments, arrange=arrange)

    def build_accept_header(self, arguments: JSONMapping) -> str:
        """Return the Accept header, with the view's JSON media types first."""
        version = self._choose_version(arguments) if self.version.location == "accept" else None
        asked = [
            f"{kind}; {self.version.param}={_check_version_token(version)}" for kind in self.media_types[:1] if version
        ]
        return ", ".join([*asked, *self.media_types, "*/*"])

    def resolve_path(self, arguments: JSONMapping, fixed: JSONMapping) -> tuple[str, JSONObject, ResolverMatch | None]:
        """Return the path, the view's keyword arguments, and the resolver match.

        The match is None for a view without a route.

        Raises:
            Http404: over HTTP these values would match no view, or another view.
        """
        kwargs = {name: arguments[argument] for argument, name in self.path.items()} | dict(fixed)
        route = self.route

        version = self._choose_version(arguments)
        by_path = self.version.location == "path" and version is not None
        if by_path and (route is None or self.version.param in route.arguments):
            kwargs[self.version.param] = version

        if self.version.location == "namespace" and version is not None and route is not None:
            route = map_namespaces(self.action, route).get(version)
            if route is None and arguments.get(self.version.param) is not None:
                raise Http404("Not found.")
            route = route or self.route

        if route is None:
            kwargs = {name: to_path_text(value) for name, value in kwargs.items()}
            return self._build_placeholder_path(kwargs), kwargs, None
        path, match = route.match(kwargs)
        if match.args:
            raise Http404("Not found.")
        return path, match.kwargs, match

    def _choose_version(self, arguments: JSONMapping) -> str | None:
        return self.version.choose(arguments.get(self.version.param)) if self.version.location else None

    def _build_placeholder_path(self, kwargs: Mapping[str, str]) -> str:
        """Return an invented path for a view without a route.

        Links in its responses do not work.
        """
        parts = [self.action.subject.cls.__name__.lower(), *kwargs.values()]
        if any("/" in part or not part for part in parts):
            raise Http404("Not found.")
        return f"/{'/'.join(parts)}/"


def _encode_query_value(parameter: OperationParameter, value: object) -> Pairs:
    """Encode the items of a list, or a single value; null has no pairs."""
    items = [item for item in (value if isinstance(value, list) else [value]) if item is not None]
    # A text filter may be given as 1.0, which must not become 1.
    return parameter.encode_pairs([str(item) if isinstance(item, float) else item for item in items])


def _build_file_gate(schema: Schema) -> Schema:
    one = {**FILE_SCHEMA, "type": ["object", "null"]}
    return {"type": ["array", "null"], "items": one} if "items" in strip_null(schema) else one


def _add_sentence(schema: Schema, sentence: str) -> Schema:
    """Return the schema with a sentence at the end of its description."""
    text = str(schema.get("description", "")).rstrip()
    if not text:
        return {**schema, "description": sentence}
    end = "" if text.endswith((".", "!", "?")) else "."
    return {**schema, "description": f"{text}{end} {sentence}"}


def _check_version_token(version: str) -> str:
    """Return a version as a media type parameter.

    Other characters could add further parameters.

    Raises:
        ArgumentError: the version has other characters than letters, digits and "._-".
    """
    if not version or not all(char.isalnum() or char in "._-" for char in version):
        raise ArgumentError(f"{version[:60]!r} is not a version")
    return version
