"""Builder of request plans from views, serializers, filters and routes."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from rest_framework import serializers

from mcp_django.contrib.http_tools.bodies import JSON_MEDIA_TYPE, is_json
from mcp_django.contrib.http_tools.parameters import OperationParameter
from mcp_django.contrib.http_tools.tools import Schema
from mcp_django.contrib.rest.actions import STANDARD_ACTIONS, ViewAction
from mcp_django.contrib.rest.openapi import SharedComponents, describe_operation
from mcp_django.contrib.rest.plan import ITEMS_ARGUMENT, RequestPlan
from mcp_django.contrib.rest.requests.page_links import PageLinks, build_page_links
from mcp_django.contrib.rest.requests.preparation import Prepare
from mcp_django.contrib.rest.requests.query_params import (
    build_page_schema,
    collect_parameters,
    find_page_size_parameter,
)
from mcp_django.contrib.rest.requests.request_body import BodyWriter
from mcp_django.contrib.rest.requests.versioning import get_api_version
from mcp_django.contrib.rest.routes import ViewRoute, find_foreign_decorators, find_route
from mcp_django.contrib.rest.schema.fields import FILE_SCHEMA, get_column_schema, is_file
from mcp_django.contrib.rest.schema.serializers import build_body_schema, build_response_schema
from mcp_django.contrib.rest.views import build_callback, build_fake_view, get_initkwargs, get_view_actions
from mcp_django.extensions.calls import get_logger
from mcp_django.extensions.errors import find_database_failure

logger = get_logger("mcp_django.rest")
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
    prepare: Prepare | None = None
    """Function of the project that prepares the view's request."""


def resolve_route(action: ViewAction, options: ViewOptions) -> tuple[ViewRoute | None, Callable[..., Any]]:
    """Return the route of an action and the view for its calls.

    Raises:
        ImproperlyConfigured: the options of `expose` conflict with the route or the view.
    """
    subject, route = action.subject, find_route(action, options.route)
    callback = build_callback(subject, get_view_actions(action, route), get_initkwargs(action, route))
    if options.decorated:
        return route, callback
    for routed in (subject.callback, None if route is None else route.callback):
        decorators = [] if routed is None else find_foreign_decorators(routed, callback)
        if decorators:
            raise ImproperlyConfigured(
                f"{subject.name}.{action.name} is decorated with {', '.join(decorators)} where it is routed, and calls "
                "would bypass that; decorate the class with method_decorator, or set decorated=True"
            )
    return route, callback


class PlanBuilder:
    """Builder of an action's request plan, from its view outside a request."""

    def __init__(
        self,
        action: ViewAction,
        options: ViewOptions,
        request: HttpRequest,
        components: SharedComponents | None = None,
    ) -> None:
        """Prepare the view; `request` is one of `build_fake_request`.

        Raises:
            ImproperlyConfigured: as for `resolve_route`.
        """
        self.action = action
        self.options = options
        self.route, self.callback = resolve_route(action, options)
        self.view, self.request = build_fake_view(
            action, get_view_actions(action, self.route), get_initkwargs(action, self.route), request
        )
        self.operation = describe_operation(
            self.view, action.function, self._build_openapi_path(), action.method, components
        )
        self.parsers = self._read("parsers", self.view.get_parsers, [parser() for parser in self.view.parser_classes])

    def build(self) -> RequestPlan:
        """Build the plan.

        Raises:
            ImproperlyConfigured: `page_size` is set, but the paginator has no parameter for it.
        """
        anything: Schema | None = {}
        body, is_list_possible = _split_list_form(self._read("input", self._build_body_schema, anything))
        version = get_api_version(self.view, self.options.version)
        if version.param in (body or {}).get("properties", {}):
            version = version.fix_default()
        path = self._build_path_arguments(version.param if version.location == "path" else "")

        nothing: dict[str, OperationParameter] = {}
        query = self._read("filters", self._collect_query_parameters, nothing)
        query |= {name: OperationParameter(name, "query", dict(one)) for name, one in self.options.parameters.items()}
        reserved = {*path, *([version.param] if version.location else [])}
        query = {name: one for name, one in query.items() if name not in reserved}
        argument_names = {*path, *query, *([version.param] if version.is_argument else [])}
        if is_list_possible:
            argument_names.add(ITEMS_ARGUMENT)
        is_flat = _can_be_flat(body, argument_names)
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
            body=_join_list_form(body) if is_list_possible and not is_flat else body,
            is_body_flat=is_flat,
            is_body_repeatable=is_list_possible and is_flat,
            writer=self._build_body_writer(body),
            media_types=self._read("renderers", self._list_json_media_types, (JSON_MEDIA_TYPE,)),
            response_schema=response_schema,
            description=self.operation.description if self.operation is not None else "",
            defaults=self._build_query_defaults(),
            page_links=page_links,
        )

    def _read(self, part: str, read: Callable[[], T], default: T) -> T:
        """Read a property of the view, or return a default if that fails.

        A failure of the database is raised, because it ends: the plan is compiled again.
        """
        try:
            return read()
        except Exception as problem:
            if find_database_failure(problem) is not None:
                raise
            name = type(self.view).__qualname__
            logger.warning("View property unavailable outside a request: %s, %s", name, part, exc_info=True)
            return default

    def _build_openapi_path(self) -> str:
        if self.route is not None:
            names = list(self.route.arguments)
        else:
            names = ["id"] if self.action.is_detail else []
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
        """Return True if the action may read several rows, so that filters and pages apply."""
        action = self.action
        if action.key in STANDARD_ACTIONS or not action.is_reading:
            return action.key == "list"
        if action.is_detail is None and action.subject.is_viewset:  # a method that as_view() maps
            return self.route is None or self._get_lookup_kwarg() not in self.route.arguments
        return action.is_extra and action.is_detail is False

    def _build_page_links(
        self, query: Mapping[str, OperationParameter], schema: Schema | None
    ) -> tuple[PageLinks | None, Schema | None]:
        """Return the conversion of links to other pages, and the output schema after it."""
        return build_page_links(self.view, query, schema) if self._is_list() else (None, schema)

    def _list_json_media_types(self) -> tuple[str, ...]:
        media_types = [str(renderer.media_type) for renderer in self.view.get_renderers()]
        return tuple(dict.fromkeys(media_type for media_type in media_types if is_json(media_type)))

    def _build_body_writer(self, body: Schema | None) -> BodyWriter:
        """Return the encoder of the body. It has the serializer's fields if it may encode a form."""
        writer, nothing = BodyWriter(self.parsers, {}), dict[str, Any]()
        has_file = any(is_file(schema) for schema in (body or {}).get("properties", {}).values())
        if not (has_file or writer.needs_form) or not isinstance(self.serializer, serializers.Serializer):
            return writer
        return BodyWriter(self.parsers, self._read("fields", lambda: self.serializer.fields, nothing))

    @functools.cached_property
    def serializer(self) -> Any:
        """Serializer of the action, or None if it is not certain.

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
        except Exception as problem:
            if find_database_failure(problem) is not None:
                raise
            return None  # it needs a real request; errors will come from the view

    def _has_own_serializer(self) -> bool:
        """Return True if the view chooses another serializer for the action than for an unknown one."""
        if not hasattr(self.view, "get_serializer_class"):
            return False
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

        if self.action.method == "delete" and not self.action.is_drf_method and self._has_own_serializer():
            return build_body_schema(self.view.get_serializer())  # such as a password that confirms it
        if self.action.method not in ("post", "put", "patch"):
            return None
        if self.operation is not None and (not self.action.is_extra or self._is_described()):
            return self.operation.body
        if (serializer := self.serializer) is not None:
            return build_body_schema(serializer)
        if BodyWriter(self.parsers, {}).is_file_body:
            return {"type": "object", "properties": {"file": dict(FILE_SCHEMA)}, "required": ["file"]}
        return {}

    def _build_response_schema(self) -> Schema | None:
        action = self.action
        if self.options.output is not UNSET:
            return _resolve_schema(self.options.output, build_response_schema)

        if self.operation is not None and (action.is_drf_method or self._is_described()):
            return self.operation.response
        if not action.is_drf_method or action.method == "delete" or (serializer := self.serializer) is None:
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


def _resolve_schema(declared: object, read: Callable[[Any], Schema]) -> Schema | None:
    """Return the schema of an option of `expose`.

    The option is a JSON Schema, a serializer class or instance, or None.
    """
    if declared is None or isinstance(declared, dict):
        return declared
    if isinstance(declared, type) and issubclass(declared, serializers.BaseSerializer):
        declared = declared()
    return read(declared)


def _split_list_form(body: Schema | None) -> tuple[Schema | None, bool]:
    """Return the object form of a body, and True if the body may also be a list of such objects."""
    forms = [form for key in ("anyOf", "oneOf") for form in (body or {}).get(key, ())]
    objects = [form for form in forms if form.get("type") == "object"]
    lists = [form for form in forms if form.get("type") == "array"]
    if len(forms) == 2 and len(objects) == len(lists) == 1 and lists[0].get("items") == objects[0]:
        return objects[0], True
    return body, False


def _join_list_form(body: Schema | None) -> Schema:
    return {"anyOf": [body, {"type": "array", "items": body}]}


def _can_be_flat(body: Schema | None, taken: set[str]) -> bool:
    if body is None or body.get("type") != "object" or body.get("additionalProperties"):
        return False
    properties = body.get("properties")
    return isinstance(properties, dict) and bool(properties) and not properties.keys() & taken
