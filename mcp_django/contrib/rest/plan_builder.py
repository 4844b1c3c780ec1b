"""Builder of request plans from views, serializers, filters and routes."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from rest_framework import serializers

from mcp_django.contrib.http_tools.bodies import JSON_MEDIA_TYPE, is_json
from mcp_django.contrib.http_tools.parameters import OperationParameter
from mcp_django.contrib.http_tools.tools import Schema
from mcp_django.contrib.rest.actions import ViewAction
from mcp_django.contrib.rest.openapi import describe_operation
from mcp_django.contrib.rest.plan import RequestPlan
from mcp_django.contrib.rest.requests.page_links import PageLinks, build_page_links
from mcp_django.contrib.rest.requests.query_params import (
    build_page_schema,
    collect_parameters,
    find_page_size_parameter,
)
from mcp_django.contrib.rest.requests.request_body import BodyWriter
from mcp_django.contrib.rest.requests.versioning import get_api_version
from mcp_django.contrib.rest.routes import ViewRoute, find_foreign_decorators, find_route
from mcp_django.contrib.rest.schema.fields import FILE_SCHEMA, get_column_schema
from mcp_django.contrib.rest.schema.serializers import build_body_schema, build_response_schema
from mcp_django.contrib.rest.views import build_callback, build_fake_view, get_initkwargs, get_view_actions

logger = logging.getLogger("mcp_django.rest")
T = TypeVar("T")
UNSET: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """Options of `expose` for one action."""

    route: str = ""
    lookup: str = ""
    fixed_kwargs: frozenset[str] = frozenset()
    """Captured path arguments that are set by the project, not by callers."""
    version: str | None = None
    page_size: int | None = None
    input: Any = UNSET
    output: Any = UNSET
    parameters: Mapping[str, Schema] = field(default_factory=dict)
    decorated: bool = False


def resolve_route(action: ViewAction, options: ViewOptions) -> tuple[ViewRoute | None, Callable[..., Any]]:
    """Return the route of an action and the view for its calls.

    Raises:
        ImproperlyConfigured: the options of `expose` conflict with the route or the view.
    """
    subject, route = action.subject, find_route(action, options.route)
    callback = build_callback(subject, get_view_actions(action, route), get_initkwargs(action, route))
    for routed in () if options.decorated else (subject.callback, None if route is None else route.callback):
        decorators = [] if routed is None else find_foreign_decorators(routed, callback)
        if decorators:
            raise ImproperlyConfigured(
                f"{subject.name}.{action.name} is decorated with {', '.join(decorators)} where it is routed, and calls "
                "would bypass that; decorate the class with method_decorator, or set decorated=True"
            )
    return route, callback


class PlanBuilder:
    """Builder of an action's request plan, from its view outside a request."""

    def __init__(self, action: ViewAction, options: ViewOptions) -> None:
        """Prepare the view.

        Raises:
            ImproperlyConfigured: as for `resolve_route`.
        """
        self.action = action
        self.options = options
        self.route, self.callback = resolve_route(action, options)
        self.view, self.request = build_fake_view(
            action, get_view_actions(action, self.route), get_initkwargs(action, self.route)
        )
        self.operation = describe_operation(self.view, action.function, self._build_openapi_path(), action.method)
        self.serializer = self._find_serializer()
        parsers = [parser() for parser in self.view.parser_classes]
        fields = getattr(self.serializer, "fields", {}) if isinstance(self.serializer, serializers.Serializer) else {}
        self.writer = BodyWriter(self._read("parsers", self.view.get_parsers, parsers), fields)

    def build(self) -> RequestPlan:
        """Build the plan.

        Raises:
            ImproperlyConfigured: `page_size` is set, but the paginator has no parameter for it.
        """
        anything: Schema | None = {}
        body = self._read("input", self._build_body_schema, anything)
        version = get_api_version(self.view, self.options.version)
        path = self._build_path_arguments(version.param if version.location == "path" else "")

        nothing: dict[str, OperationParameter] = {}
        query = self._read("filters", self._collect_query_parameters, nothing)
        query |= {name: OperationParameter(name, "query", dict(one)) for name, one in self.options.parameters.items()}
        reserved = {*path, *([version.param] if version.location else [])}
        query = {name: one for name, one in query.items() if name not in reserved}
        argument_names = {*path, *query, *([version.param] if version.is_argument else [])}
        response_schema = self._read("output", self._build_response_schema, None)
        no_links: tuple[PageLinks | None, Schema | None] = None, response_schema
        page_links, response_schema = self._read(
            "paginator", lambda: self._build_page_links(query, response_schema), no_links
        )

        return RequestPlan(
            action=self.action,
            route=self.route,
            callback=self.callback,
            path=path,
            path_schemas={argument: self._build_path_schema(name) for argument, name in path.items()},
            query=query,
            version=version,
            body=body,
            is_body_flat=_can_be_flat(body, argument_names),
            writer=self.writer,
            media_types=self._read("renderers", self._list_json_media_types, (JSON_MEDIA_TYPE,)),
            response_schema=response_schema,
            description=self.operation.description if self.operation is not None else "",
            defaults=self._build_query_defaults(),
            page_links=page_links,
        )

    def _read(self, part: str, read: Callable[[], T], default: T) -> T:
        """Read a property of the view, or return a default if that fails."""
        try:
            return read()
        except Exception:
            name = type(self.view).__qualname__
            logger.warning("View property unavailable outside a request: %s, %s", name, part, exc_info=True)
            return default

    def _build_openapi_path(self) -> str:
        names = list(self.route.arguments) if self.route is not None else ["id"] if self.action.is_detail else []
        return "/".join(["", self.action.subject.cls.__name__, *(f"{{{name}}}" for name in names), ""])

    def _build_path_arguments(self, version_param: str) -> dict[str, str]:
        """Return a mapping of arguments to names in the path, without the version."""
        action, lookup_kwarg = self.action, self._get_lookup_kwarg()
        if self.route is not None:
            names = list(self.route.arguments)
        else:
            generic = action.key in ("retrieve", "update", "partial_update", "destroy")
            names = [lookup_kwarg] if action.is_detail or (action.is_detail is None and generic) else []
        left = [name for name in names if name not in self.options.fixed_kwargs and name != version_param]
        lookup = self.options.lookup or lookup_kwarg
        return {lookup if name == lookup_kwarg else name: name for name in left}

    def _get_lookup_kwarg(self) -> str:
        cls, given = self.action.subject.cls, self.action.subject.initkwargs
        lookup_field = given.get("lookup_field", getattr(cls, "lookup_field", None)) or "pk"
        return str(given.get("lookup_url_kwarg", getattr(cls, "lookup_url_kwarg", None)) or lookup_field)

    def _build_path_schema(self, name: str) -> Schema:
        model = self.action.subject.model
        known = dict(self.route.arguments.get(name, {})) if self.route is not None else {}
        if name != self._get_lookup_kwarg() or model is None:
            return known or {"type": "string"}

        label, column = "Primary key", model._meta.pk
        lookup = getattr(self.view, "lookup_field", "pk")
        if lookup not in ("pk", "id"):
            label = str(lookup)
            column = next((f for f in model._meta.get_fields() if f.name == lookup and hasattr(f, "column")), None)
        known = known or ({} if column is None else get_column_schema(column))
        return {**(known or {"type": "string"}), "description": f"{label} of the {model._meta.verbose_name}"}

    def _collect_query_parameters(self) -> dict[str, OperationParameter]:
        if self.operation is not None:
            return dict(self.operation.query)
        if self._is_list():
            return collect_parameters(self.view, self.request)
        return {}

    def _is_list(self) -> bool:
        action = self.action
        return action.is_reading and (action.key == "list" or (action.is_extra and action.is_detail is False))

    def _build_page_links(
        self, query: Mapping[str, OperationParameter], schema: Schema | None
    ) -> tuple[PageLinks | None, Schema | None]:
        """Return the conversion of links to other pages, and the output schema after it."""
        return build_page_links(self.view, query, schema) if self._is_list() else (None, schema)

    def _list_json_media_types(self) -> tuple[str, ...]:
        media_types = [str(renderer.media_type) for renderer in self.view.get_renderers()]
        return tuple(dict.fromkeys(media_type for media_type in media_types if is_json(media_type)))

    def _find_serializer(self) -> Any:
        """Return the serializer of the action, or None if it is not certain.

        An extra action of the project may not use the view's serializer. It does if `@action` sets one, or if
        `get_serializer_class` returns another class than for an unknown action.
        """
        action, make = self.action, getattr(self.view, "get_serializer", None)
        if make is None:
            return None
        try:
            if action.is_extra and "serializer_class" not in action.kwargs and not self._has_own_serializer():
                return None
            return make(partial=True) if action.method == "patch" else make()
        except Exception:
            return None  # it needs a real request; errors will come from the view

    def _has_own_serializer(self) -> bool:
        chosen = self.view.get_serializer_class()
        self.view.action = "an action that no view has"
        try:
            return chosen is not self.view.get_serializer_class()
        except Exception:
            return True
        finally:
            self.view.action = self.action.name

    def _build_body_schema(self) -> Schema | None:
        if self.options.input is not UNSET:
            return _resolve_schema(self.options.input, build_body_schema)

        if self.action.method not in ("post", "put", "patch"):
            return None
        if self.operation is not None and (not self.action.is_extra or self._is_described()):
            return self.operation.body
        if self.serializer is not None:
            return build_body_schema(self.serializer)
        if self.writer.is_file_body:
            return {"type": "object", "properties": {"file": dict(FILE_SCHEMA)}, "required": ["file"]}
        return {}

    def _build_response_schema(self) -> Schema | None:
        action, serializer = self.action, self.serializer
        if self.options.output is not UNSET:
            return _resolve_schema(self.options.output, build_response_schema)

        if self.operation is not None and (action.is_drf_method or self._is_described()):
            return self.operation.response
        if serializer is None or not action.is_drf_method or action.method == "delete":
            return None

        is_many = isinstance(serializer, serializers.ListSerializer) and action.key == "list"
        one = build_response_schema(serializer.child if is_many else serializer)
        return build_page_schema(self.view, one, self.options.page_size) if action.key == "list" else one or None

    def _is_described(self) -> bool:
        """Return True if the project described the action with `@extend_schema`."""
        return "schema" in self.action.kwargs or "schema" in getattr(self.action.function, "kwargs", {})

    def _build_query_defaults(self) -> dict[str, str]:
        if self.options.page_size is None or self.action.key != "list":
            return {}
        name = find_page_size_parameter(self.view)
        if name is None:
            raise ImproperlyConfigured(
                f"{type(self.view).__name__}: page_size= needs a paginator with a parameter for it "
                "(page_size_query_param, or LimitOffsetPagination)"
            )
        return {name: str(self.options.page_size)}


def _resolve_schema(declared: Any, read: Callable[[Any], Schema]) -> Schema | None:
    """Return the schema of an option of `expose`.

    The option is a JSON Schema, a serializer class or instance, or None.
    """
    if declared is None or isinstance(declared, dict):
        return declared
    if isinstance(declared, type) and issubclass(declared, serializers.BaseSerializer):
        declared = declared()
    return read(declared)


def _can_be_flat(body: Schema | None, taken: set[str]) -> bool:
    if body is None or body.get("type") != "object" or body.get("additionalProperties"):
        return False
    properties = body.get("properties")
    return isinstance(properties, dict) and bool(properties) and not properties.keys() & taken
