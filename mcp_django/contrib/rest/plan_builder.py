"""Builder of request plans from views, serializers, filters and routes."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from rest_framework import serializers
from rest_framework.request import Request

from mcp_django.contrib.http_tools.bodies import JSON_MEDIA_TYPE
from mcp_django.contrib.http_tools.parameters import OperationParameter
from mcp_django.contrib.rest.actions import ExposedView, ViewAction
from mcp_django.contrib.rest.openapi import SpectacularOperation, describe_operation
from mcp_django.contrib.rest.plan import RequestPlan, get_json_media_types
from mcp_django.contrib.rest.requests.pagination import build_page_schema, find_page_size_parameter
from mcp_django.contrib.rest.requests.query_params import collect_parameters
from mcp_django.contrib.rest.requests.request_body import BodyWriter
from mcp_django.contrib.rest.requests.versioning import get_api_version
from mcp_django.contrib.rest.routes import ViewRoute, find_foreign_decorators, find_route
from mcp_django.contrib.rest.schema.fields import FILE_SCHEMA, Schema, get_column_schema
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


def build_plan(subject: ExposedView, action: ViewAction, options: ViewOptions) -> RequestPlan:
    """Compile the request plan of an action.

    Raises:
        ImproperlyConfigured: the options of `expose` conflict with the route or the view.
    """
    route, callback = resolve_route(subject, action, options)
    initkwargs = get_initkwargs(subject, action, route)
    actions = get_view_actions(subject, action, route)
    view, request = build_fake_view(subject, action, actions, initkwargs)
    operation = describe_operation(view, action.function, _openapi_path(route, subject, action), action.method)

    serializer = _find_serializer(view, action)
    parsers = _read_or_default(view, "parsers", view.get_parsers, [parser() for parser in view.parser_classes])
    anything: Schema | None = {}
    body = _read_or_default(
        view, "input", lambda: _build_body_schema(parsers, action, serializer, operation, options), anything
    )

    version = get_api_version(view, options.version)
    path = _build_path_arguments(subject, action, route, options, version.param if version.location == "path" else "")
    schemas = {argument: _build_path_schema(view, name, route, subject) for argument, name in path.items()}

    nothing: dict[str, OperationParameter] = {}
    query = _read_or_default(
        view, "filters", lambda: _build_query_parameters(view, request, action, operation), nothing
    )
    query |= {name: OperationParameter(name, "query", dict(schema)) for name, schema in options.parameters.items()}
    reserved = {*path, *([version.param] if version.location else [])}
    query = {name: one for name, one in query.items() if name not in reserved}
    argument_names = {*path, *query, *([version.param] if version.is_argument else [])}

    return RequestPlan(
        subject=subject,
        action=action,
        route=route,
        callback=callback,
        path=path,
        path_schemas=schemas,
        query=query,
        version=version,
        body=body,
        is_body_flat=_can_be_flat(body, argument_names),
        writer=BodyWriter(parsers, _get_serializer_fields(serializer)),
        media_types=_read_or_default(
            view, "renderers", lambda: get_json_media_types(view.get_renderers()), (JSON_MEDIA_TYPE,)
        ),
        response_schema=_read_or_default(
            view, "output", lambda: _build_response_schema(view, action, serializer, operation, options), None
        ),
        description=operation.description if operation is not None else "",
        defaults=_build_query_defaults(view, action, options),
    )


def resolve_route(
    subject: ExposedView, action: ViewAction, options: ViewOptions
) -> tuple[ViewRoute | None, Callable[..., Any]]:
    """Return the route of an action and the view for its calls.

    Raises:
        ImproperlyConfigured: as for `build_plan`.
    """
    route = find_route(subject, action, options.route)
    actions = get_view_actions(subject, action, route)
    callback = build_callback(subject, actions, get_initkwargs(subject, action, route))
    _check_decorators(subject, action, route, callback, options)
    return route, callback


def _check_decorators(
    subject: ExposedView, action: ViewAction, route: ViewRoute | None, callback: Any, options: ViewOptions
) -> None:
    if options.decorated:
        return
    for routed in (subject.callback, None if route is None else route.callback):
        decorators = [] if routed is None else find_foreign_decorators(routed, callback)
        if decorators:
            raise ImproperlyConfigured(
                f"{subject.name}.{action.name} is decorated with {', '.join(decorators)} where it is routed, and calls "
                "would bypass that; decorate the class with method_decorator, or set decorated=True"
            )


def _openapi_path(route: ViewRoute | None, subject: ExposedView, action: ViewAction) -> str:
    names = list(route.arguments) if route is not None else ["id"] if action.is_detail else []
    return "/".join(["", subject.cls.__name__, *(f"{{{name}}}" for name in names), ""])


def _build_path_arguments(
    subject: ExposedView, action: ViewAction, route: ViewRoute | None, options: ViewOptions, version_param: str
) -> dict[str, str]:
    """Return a mapping of arguments to names in the path, without the version."""
    lookup_kwarg = _get_lookup_kwarg(subject)
    if route is not None:
        names = list(route.arguments)
    else:
        generic = action.key in ("retrieve", "update", "partial_update", "destroy")
        names = [lookup_kwarg] if action.is_detail or (action.is_detail is None and generic) else []
    left = [name for name in names if name not in options.fixed_kwargs and name != version_param]
    return {options.lookup if options.lookup and name == lookup_kwarg else name: name for name in left}


def _get_lookup_kwarg(subject: ExposedView) -> str:
    cls, given = subject.cls, subject.initkwargs
    field = given.get("lookup_field", getattr(cls, "lookup_field", None)) or "pk"
    return str(given.get("lookup_url_kwarg", getattr(cls, "lookup_url_kwarg", None)) or field)


def _build_path_schema(view: Any, name: str, route: ViewRoute | None, subject: ExposedView) -> Schema:
    known = dict(route.arguments.get(name, {})) if route is not None else {}
    if name == _get_lookup_kwarg(subject) and subject.model is not None:
        model = subject.model
        column = model._meta.pk
        lookup = getattr(view, "lookup_field", "pk")
        if lookup not in ("pk", "id"):
            column = next((f for f in model._meta.get_fields() if f.name == lookup and hasattr(f, "column")), None)
        known = known or ({} if column is None else get_column_schema(column))
        label = "Primary key" if lookup in ("pk", "id") else str(lookup)
        return {**(known or {"type": "string"}), "description": f"{label} of the {model._meta.verbose_name}"}
    return known or {"type": "string"}


def _read_or_default(view: Any, part: str, read: Callable[[], T], default: T) -> T:
    """Read a property of a view outside a request, or return a default if that fails."""
    try:
        return read()
    except Exception:
        logger.warning(
            "View property unavailable outside a request: %s, %s", type(view).__qualname__, part, exc_info=True
        )
        return default


def _build_query_parameters(
    view: Any, request: Request, action: ViewAction, operation: SpectacularOperation | None
) -> dict[str, OperationParameter]:
    if operation is not None:
        return dict(operation.query)
    if action.is_reading and (action.key == "list" or (action.is_extra and action.is_detail is False)):
        return collect_parameters(view, request)
    return {}


def _find_serializer(view: Any, action: ViewAction) -> Any:
    """Return the serializer of an action, or None if it is not certain.

    An extra action of the project may not use the view's serializer. It does if `@action` sets one, or if
    `get_serializer_class` returns another class than for an unknown action.
    """
    make = getattr(view, "get_serializer", None)
    if make is None:
        return None
    try:
        if action.is_extra and "serializer_class" not in action.kwargs and not _has_own_serializer(view, action):
            return None
        return make(partial=True) if action.method == "patch" else make()
    except Exception:
        return None  # it needs a real request; errors will come from the view


def _has_own_serializer(view: Any, action: ViewAction) -> bool:
    chosen = view.get_serializer_class()
    view.action = "an action that no view has"
    try:
        return chosen is not view.get_serializer_class()
    except Exception:
        return True
    finally:
        view.action = action.name


def _build_body_schema(
    parsers: list[Any],
    action: ViewAction,
    serializer: Any,
    operation: SpectacularOperation | None,
    options: ViewOptions,
) -> Schema | None:
    if options.input is not UNSET:
        return _resolve_schema(options.input, build_body_schema)

    if action.method not in ("post", "put", "patch"):
        return None
    if operation is not None and (not action.is_extra or _is_described(action)):
        return operation.body
    if serializer is not None:
        return build_body_schema(serializer)
    if BodyWriter(parsers, {}).is_file_body:
        return {"type": "object", "properties": {"file": dict(FILE_SCHEMA)}, "required": ["file"]}
    return {}


def _build_response_schema(
    view: Any, action: ViewAction, serializer: Any, operation: SpectacularOperation | None, options: ViewOptions
) -> Schema | None:
    if options.output is not UNSET:
        return _resolve_schema(options.output, build_response_schema)

    if operation is not None and (action.is_drf_method or _is_described(action)):
        return operation.response
    if serializer is None or not action.is_drf_method or action.method == "delete":
        return None

    is_many = isinstance(serializer, serializers.ListSerializer) and action.key == "list"
    one = build_response_schema(serializer.child if is_many else serializer)
    return build_page_schema(view, one, options.page_size) if action.key == "list" else one or None


def _is_described(action: ViewAction) -> bool:
    """Return True if the project described the action with `@extend_schema`."""
    return "schema" in action.kwargs or "schema" in getattr(action.function, "kwargs", {})


def _resolve_schema(declared: Any, read: Any) -> Schema | None:
    """Return the schema of an option of `expose`.

    The option is a JSON Schema, a serializer class or instance, or None.
    """
    if declared is None or isinstance(declared, dict):
        return declared
    if isinstance(declared, type) and issubclass(declared, serializers.BaseSerializer):
        declared = declared()
    schema: Schema = read(declared)
    return schema


def _get_serializer_fields(serializer: Any) -> Mapping[str, Any]:
    return getattr(serializer, "fields", {}) if isinstance(serializer, serializers.Serializer) else {}


def _can_be_flat(body: Schema | None, taken: set[str]) -> bool:
    if body is None or body.get("type") != "object" or body.get("additionalProperties"):
        return False
    properties = body.get("properties")
    return isinstance(properties, dict) and bool(properties) and not properties.keys() & taken


def _build_query_defaults(view: Any, action: ViewAction, options: ViewOptions) -> dict[str, str]:
    if options.page_size is None or action.key != "list":
        return {}
    name = find_page_size_parameter(view)
    if name is None:
        raise ImproperlyConfigured(
            f"{type(view).__name__}: page_size= needs a paginator with a parameter for it (page_size_query_param, or "
            "LimitOffsetPagination)"
        )
    return {name: str(options.page_size)}
